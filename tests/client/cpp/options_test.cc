// Table tests of the options (contract 3.1 to 3.4) and of device numbers.
#include "client/cpp/options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "client/cpp/devices.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

struct World {
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;
  std::string soc_name;
};

absl::StatusOr<EngineOptions> Parse(const OptionMap& options, const World& world = {}) {
  OptionsContext context;
  context.getenv = [&](const char* name) -> std::optional<std::string> {
    const auto found = world.variables.find(name);
    return found == world.variables.end() ? std::nullopt : std::optional(found->second);
  };
  context.read_file = [&](const std::string& path) -> absl::StatusOr<std::string> {
    const auto found = world.files.find(path);
    if (found == world.files.end()) return ParamInvalid("no such file");
    return found->second;
  };
  context.soc_name = world.soc_name;
  return ParseOptions(options, context);
}

OptionMap Resources(const std::string& json) { return {{"GlobalResourceConfig", json}}; }
OptionMap CommRes(const std::string& json) { return {{"LocalCommRes", json}}; }

TEST_CASE("defaults") {
  const auto options = Parse({});
  REQUIRE(options.ok());
  CHECK(options->kind == EngineKind::kComm);
  CHECK_FALSE(options->auto_connect);
  CHECK(options->traffic_class == 132);
  CHECK(options->service_level == 4);
  CHECK(options->relay_buffers == 4);
  CHECK(options->relay_buffer_mib == 8);
  CHECK(options->connect_threads == 2);
  CHECK(options->connect_queue_capacity == 128);
  // The daemon is told of the pool, given or not; other kinds of engine have none.
  CHECK(options->for_daemon == OptionMap{{"BufferPool", "4:8"}});
}

TEST_CASE("values that are refused name their option") {
  struct Bad {
    OptionMap options;
    std::string option;
  };
  const std::vector<Bad> table = {
      {{{"InvalidOption", "x"}}, "InvalidOption"},
      {{{"adxl.AutoConnect", "1"}}, "adxl.AutoConnect"},
      {{{"RdmaTrafficClass", "256"}}, "RdmaTrafficClass"},
      {{{"RdmaTrafficClass", "130"}}, "RdmaTrafficClass"},
      {{{"RdmaTrafficClass", "-4"}}, "RdmaTrafficClass"},
      {{{"RdmaTrafficClass", "4x"}}, "RdmaTrafficClass"},
      {{{"RdmaTrafficClass", " 4"}}, "RdmaTrafficClass"},
      {{{"adxl.RdmaTrafficClass", "1"}}, "RdmaTrafficClass"},
      {{{"RdmaServiceLevel", "8"}}, "RdmaServiceLevel"},
      {{{"BufferPool", "4"}}, "BufferPool"},
      {{{"BufferPool", "4:8:1"}}, "BufferPool"},
      {{{"BufferPool", "4:0"}}, "BufferPool"},
      {{{"BufferPool", "0:8"}}, "BufferPool"},
      {{{"BufferPool", "-1:8"}}, "BufferPool"},
      {{{"BufferPool", "a:b"}}, "BufferPool"},
      {{{"BufferPool", "99999999999999999999:1"}}, "BufferPool"},
      {{{"EnableUseFabricMem", "2"}}, "EnableUseFabricMem"},
      {{{"AutoConnect", ""}}, "AutoConnect"},
      {{{"AutoConnect", "true"}}, "AutoConnect"},
      {Resources("{"), "GlobalResourceConfig"},
      {Resources("[]"), "GlobalResourceConfig"},
      {Resources(R"({"connect_pool.thread_num":"0"})"), "connect_pool.thread_num"},
      {Resources(R"({"connect_pool.thread_num":65})"), "connect_pool.thread_num"},
      {Resources(R"({"connect_pool.thread_num":2.5})"), "connect_pool.thread_num"},
      {Resources(R"({"connect_pool.thread_num":true})"), "connect_pool.thread_num"},
      {Resources(R"({"connect_pool.task_queue_capacity":0})"), "connect_pool.task_queue_capacity"},
      {Resources(R"({"comm_resource_config.listen_port":65536})"),
       "comm_resource_config.listen_port"},
      {Resources(R"({"comm_resource_config.qos":8})"), "comm_resource_config.qos"},
      {Resources(R"({"comm_resource_config.max_active_channels":0})"),
       "comm_resource_config.max_active_channels"},
      {Resources(R"({"comm_resource_config.protocol_desc":"tcp:host"})"),
       "comm_resource_config.protocol_desc"},
      {Resources(R"({"comm_resource_config.protocol_desc":["uboe:host"]})"),
       "comm_resource_config.protocol_desc"},
      {Resources(R"({"comm_resource_config.protocol_desc":7})"),
       "comm_resource_config.protocol_desc"},
      {Resources(R"({"comm_resource_config.protocol_desc":["uboe:device","ub_rtp:device"]})"),
       "comm_resource_config.protocol_desc"},
      {Resources(R"({"fabric_memory.max_capacity":1025})"), "fabric_memory.max_capacity"},
      {Resources(R"({"fabric_memory":{"start_address":-1}})"), "start_address"},
      {Resources(R"({"fabric_memory.enable_aicpu_unfold":"true"})"),
       "fabric_memory.enable_aicpu_unfold"},
      {Resources(R"({"fabric_memory.task_stream_num":2})"), "fabric_memory.enable_aicpu_unfold"},
      {Resources(R"({"fabric_memory":3})"), "fabric_memory"},
      {Resources(R"({"channel_pool.max_channel":10})"), "channel_pool.high_waterline"},
      {Resources(R"({"channel_pool.high_waterline":0.5})"), "channel_pool.low_waterline"},
      {Resources(R"({"channel_pool.high_waterline":0.5,"channel_pool.low_waterline":0.5})"),
       "channel_pool.high_waterline"},
      {Resources(R"({"channel_pool.high_waterline":1,"channel_pool.low_waterline":0.5})"),
       "channel_pool.high_waterline"},
      {Resources(R"({"local_comm_res_path":""})"), "local_comm_res_path"},
      {Resources(R"({"local_comm_res_path":7})"), "local_comm_res_path"},
      {CommRes("{"), "LocalCommRes"},
      {CommRes("7"), "LocalCommRes"},
      {CommRes(R"({"version":"1.3","net_instance_id":"a","endpoint_list":7})"), "endpoint_list"},
      {CommRes(R"({"version":"1.3","net_instance_id":"a","endpoint_list":[
                  {"protocol":"tcp","comm_id":"1.2.3.4","placement":"host"}]})"),
       "protocol"},
      {CommRes(R"({"version":"1.3","net_instance_id":"a","endpoint_list":[
                  {"protocol":"roce","comm_id":"1.2.3","placement":"host"}]})"),
       "comm_id"},
      {CommRes(R"({"version":"1.3","net_instance_id":"a","endpoint_list":[
                  {"protocol":"hccs","comm_id":"12345678901","placement":"device"}]})"),
       "comm_id"},
      {CommRes(R"({"version":"1.3","net_instance_id":"a","endpoint_list":[
                  {"protocol":"ub_ctp","comm_id":"00","placement":"device"}]})"),
       "comm_id"},
      {CommRes(R"({"version":"1.3","net_instance_id":"a","endpoint_list":[
                  {"protocol":"roce","comm_id":"::1","placement":"npu"}]})"),
       "placement"},
      {CommRes(R"({"version":"1.3","net_instance_id":"a","endpoint_list":[
                  {"protocol":"uboe","comm_id":"1.2.3.4","placement":"device"},
                  {"protocol":"ub_rtp","comm_id":"0123456789abcdef0123456789abcdef",
                   "placement":"device"}]})"),
       "endpoint_list"},
  };
  for (const Bad& bad : table) {
    const auto options = Parse(bad.options);
    INFO(bad.options.begin()->first << " = " << bad.options.begin()->second);
    REQUIRE(ApiCodeOf(options.status()) == ApiCode::kParamInvalid);
    CHECK(ErrorInfoOf(options.status()).option == bad.option);
    CHECK_FALSE(ErrorInfoOf(options.status()).allowed.empty());
  }
}

TEST_CASE("values that are taken") {
  const auto options = Parse({
      {"RdmaTrafficClass", "0"},
      {"adxl.RdmaTrafficClass", "4"},  // the plain key wins
      {"adxl.RdmaServiceLevel", "7"},
      {"BufferPool", "16:4"},
      {"AutoConnect", "1"},
      {"EnableUseFabricMem", "0"},
      {"GlobalResourceConfig",
       R"({"connect_pool.thread_num":"64","connect_pool.task_queue_capacity":65535,
           "fabric_memory":{"task_stream_num":3,"max_capacity":5},
           "fabric_memory.max_capacity":6,"fabric_memory.enable_aicpu_unfold":false,
           "comm_resource_config.qos":"7","unknown.key":[1]})"},
  });
  REQUIRE(options.ok());
  CHECK(options->traffic_class == 0);
  CHECK(options->service_level == 7);
  CHECK(options->relay_buffers == 16);
  CHECK(options->relay_buffer_mib == 4);
  CHECK(options->auto_connect);
  CHECK(options->kind == EngineKind::kComm);
  CHECK(options->connect_threads == 64);
  CHECK(options->connect_queue_capacity == 65535);
  CHECK(options->fabric.task_streams == 3);
  CHECK(options->fabric.max_capacity_tib == 6);
  CHECK(options->qos == 7);
  CHECK(options->for_daemon.count("adxl.RdmaServiceLevel") == 0);
  CHECK(options->for_daemon.at("RdmaServiceLevel") == "7");

  CHECK(Parse({{"BufferPool", "0:0"}})->relay_buffers == 0);
  CHECK(Parse({{"BufferPool", ""}})->relay_buffers == 4);
  CHECK(Parse({{"EnableUseFabricMem", ""}}).ok());
  CHECK(Parse({{"GlobalResourceConfig", ""}, {"LocalCommRes", ""}}).ok());
  CHECK(Parse(Resources(R"({"channel_pool.max_channel":10,"channel_pool.high_waterline":"0.8",
                            "channel_pool.low_waterline":0.5})"))
            ->auto_connect);
}

TEST_CASE("the environment fills in RDMA numbers and is checked as well") {
  CHECK(Parse({}, {.variables = {{"HCCL_RDMA_TC", "8"}}})->traffic_class == 8);
  CHECK(Parse({{"RdmaTrafficClass", ""}}, {.variables = {{"HCCL_RDMA_TC", "8"}}})->traffic_class ==
        8);
  CHECK(
      Parse({{"RdmaTrafficClass", "12"}}, {.variables = {{"HCCL_RDMA_TC", "9"}}})->traffic_class ==
      12);
  CHECK(Parse({}, {.variables = {{"HCCL_RDMA_SL", "1"}}})->for_daemon.at("RdmaServiceLevel") ==
        "1");
  const auto bad = Parse({}, {.variables = {{"HCCL_RDMA_SL", "9"}}});
  CHECK(ErrorInfoOf(bad.status()).option == "HCCL_RDMA_SL");
}

TEST_CASE("which engine the options ask for") {
  const std::string v13 = R"({"version":"1.3"})";
  const std::string desc = R"({"comm_resource_config.protocol_desc":["roce:device"]})";
  const World ascend950 = {.variables = {}, .files = {}, .soc_name = "Ascend950PR_9589"};
  CHECK(Parse(CommRes(v13))->kind == EngineKind::kHixl);
  CHECK(Parse({{"adxl.LocalCommRes", v13}})->kind == EngineKind::kHixl);
  CHECK(Parse(CommRes(R"({"version":"1.2"})"))->kind == EngineKind::kComm);
  CHECK(Parse(CommRes("{}"))->kind == EngineKind::kComm);
  CHECK(Parse(Resources(desc))->kind == EngineKind::kHixl);
  CHECK(Parse(Resources(R"({"comm_resource_config.protocol_desc":"hccs:device"})"))->kind ==
        EngineKind::kHixl);
  CHECK(Parse(Resources(R"({"comm_resource_config.protocol_desc":[]})"))->kind ==
        EngineKind::kComm);
  CHECK(Parse({{"LocalCommRes", R"({"version":"1.0"})"}, {"GlobalResourceConfig", desc}})->kind ==
        EngineKind::kComm);
  CHECK(Parse({{"EnableUseFabricMem", "1"}})->kind == EngineKind::kFabric);
  CHECK(Parse({{"EnableUseFabricMem", "1"}, {"LocalCommRes", v13}})->kind == EngineKind::kFabric);
  CHECK(Parse({}, ascend950)->kind == EngineKind::kHixl);
  CHECK(Parse(CommRes("{}"), ascend950)->kind == EngineKind::kComm);
}

TEST_CASE("what an engine does not take") {
  const std::string v13 = R"({"version":"1.3"})";
  CHECK(Parse({{"LocalCommRes", v13}, {"BufferPool", "0:0"}}).ok());
  CHECK(Parse({{"LocalCommRes", v13}, {"BufferPool", ""}}).ok());
  CHECK_FALSE(Parse({{"LocalCommRes", v13}, {"BufferPool", "4:8"}}).ok());
  CHECK_FALSE(Parse({{"LocalCommRes", v13}, {"EnableUseFabricMem", "0"}}).ok());
  CHECK_FALSE(Parse({{"EnableUseFabricMem", "1"}, {"BufferPool", "4:8"}}).ok());
  CHECK(Parse({{"EnableUseFabricMem", "0"}, {"BufferPool", "4:8"}}).ok());
}

TEST_CASE("the endpoint list and protocol_desc must leave something") {
  const std::string list = R"({"version":"1.3","net_instance_id":"pod","endpoint_list":[
      {"protocol":"roce","comm_id":"10.0.0.1","placement":"host"}]})";
  const auto with = [&](const std::string& protocol) {
    return Parse({{"LocalCommRes", list},
                  {"GlobalResourceConfig",
                   R"({"comm_resource_config.protocol_desc":")" + protocol + R"("})"}});
  };
  CHECK(with("roce:host").ok());
  CHECK(ErrorInfoOf(with("hccs:device").status()).option == "comm_resource_config.protocol_desc");
}

TEST_CASE("LocalCommRes may come from a file") {
  const World world = {.variables = {}, .files = {{"/f", R"({"version":"1.3"})"}, {"/bad", "{"}}};
  const auto from_file = Parse(Resources(R"({"local_comm_res_path":"/f"})"), world);
  REQUIRE(from_file.ok());
  CHECK(from_file->kind == EngineKind::kHixl);
  CHECK(from_file->for_daemon.at("LocalCommRes") == R"({"version":"1.3"})");
  CHECK_FALSE(Parse(Resources(R"({"local_comm_res_path":"/bad"})"), world).ok());
  CHECK_FALSE(Parse(Resources(R"({"local_comm_res_path":"/none"})"), world).ok());
  CHECK(Parse({{"LocalCommRes", "{}"},
               {"GlobalResourceConfig", R"({"local_comm_res_path":"/none"})"}},
              world)
            .ok());
}

TEST_CASE("files that are not taken") {
  const auto read = OptionsContext::System().read_file;
  char name[] = "/tmp/hixl.XXXXXX";
  const int fd = mkstemp(name);
  CHECK_FALSE(read(name).ok());  // empty
  CHECK(write(fd, "{}", 2) == 2);
  CHECK(read(name).value() == "{}");
  CHECK(ftruncate(fd, 1048577) == 0);
  CHECK_FALSE(read(name).ok());
  close(fd);
  unlink(name);
  CHECK_FALSE(read("/tmp").ok());
  CHECK_FALSE(read("/dev/null").ok());
  CHECK(mkfifo(name, 0600) == 0);
  CHECK_FALSE(read(name).ok());
  unlink(name);
  CHECK_FALSE(read(name).ok());
}

TEST_CASE("logical devices become physical ones") {
  CHECK(BoundDevice(-1, std::nullopt, std::nullopt).value() == 0);
  CHECK(BoundDevice(-1, "3", std::nullopt).value() == 3);
  CHECK(BoundDevice(-1, "", "4,5").value() == 4);
  CHECK(BoundDevice(-1, "1", "4, 5,7").value() == 5);
  CHECK(BoundDevice(2, "1", "4,5,7").value() == 7);
  CHECK(BoundDevice(-1, std::nullopt, "").value() == 0);
  const auto outside = BoundDevice(-1, "3", "4,5,7");
  CHECK(ApiCodeOf(outside.status()) == ApiCode::kFailed);
  CHECK_THAT(std::string(outside.status().message()), Catch::Contains("0..2"));
  CHECK(ApiCodeOf(BoundDevice(-1, "0", "").status()) == ApiCode::kFailed);
  CHECK(ApiCodeOf(BoundDevice(-1, "npu", std::nullopt).status()) == ApiCode::kParamInvalid);
  CHECK(ApiCodeOf(BoundDevice(-1, "-1", std::nullopt).status()) == ApiCode::kFailed);
  CHECK(ApiCodeOf(BoundDevice(-1, "0", "a,b").status()) == ApiCode::kParamInvalid);
}

std::string Shown(const EngineOptions& options, const std::string& name) {
  for (const EffectiveOption& option : options.effective) {
    if (option.name == name) return option.value + " <- " + option.source;
  }
  return "absent";
}

TEST_CASE("what took effect is told with where it came from") {
  const auto options = Parse({{"RdmaTrafficClass", "8"},
                              {"adxl.BufferPool", "2:16"},
                              {"GlobalResourceConfig",
                               R"({"connect_pool.thread_num":3,"channel_pool.high_waterline":0.5,
                                   "channel_pool.low_waterline":0.25})"}},
                             {.variables = {{"HCCL_RDMA_SL", "1"}}});
  REQUIRE(options.ok());
  CHECK(Shown(*options, "engine") == "Comm <- default");
  CHECK(Shown(*options, "RdmaTrafficClass") == "8 <- option");
  CHECK(Shown(*options, "RdmaServiceLevel") == "1 <- environment HCCL_RDMA_SL");
  CHECK(Shown(*options, "BufferPool") == "2:16 <- option");
  CHECK(Shown(*options, "EnableUseFabricMem") == "0 <- default");
  CHECK(Shown(*options, "AutoConnect") == "1 <- channel_pool.high_waterline");
  CHECK(Shown(*options, "connect_pool.thread_num") == "3 <- GlobalResourceConfig");
  CHECK(Shown(*options, "connect_pool.task_queue_capacity") == "128 <- default");
  CHECK(Shown(*options, "channel_pool.low_waterline") == "0.25 <- GlobalResourceConfig");
  CHECK(Shown(*options, "fabric_memory.max_capacity") == "absent");

  const auto fabric = Parse({{"EnableUseFabricMem", "1"},
                             {"GlobalResourceConfig", R"({"fabric_memory":{"max_capacity":7}})"}});
  CHECK(Shown(*fabric, "engine") == "Fabric <- EnableUseFabricMem");
  CHECK(Shown(*fabric, "fabric_memory.max_capacity") == "7 <- GlobalResourceConfig");
  CHECK(Shown(*fabric, "BufferPool") == "0:0 <- default");

  const auto file = Parse(Resources(R"({"local_comm_res_path":"/f"})"),
                          {.files = {{"/f", R"({"version":"1.3"})"}}});
  CHECK(Shown(*file, "LocalCommRes") == R"({"version":"1.3"} <- file /f)");
  CHECK(Shown(*file, "engine") == "Hixl <- LocalCommRes version 1.3");
  CHECK(Shown(*Parse({}, {.soc_name = "Ascend950PR_9589"}), "engine") ==
        "Hixl <- product Ascend950PR_9589");
  CHECK(Shown(*Parse({}, {.variables = {{"HCCL_INTRA_ROCE_ENABLE", "1"}}}),
              "HCCL_INTRA_ROCE_ENABLE") == "1 <- environment");
  CHECK_FALSE(Parse({}, {.variables = {{"HCCL_INTRA_ROCE_ENABLE", "0"}}})->force_roce);
}

TEST_CASE("the endpoints are what protocol_desc leaves of LocalCommRes, else what it names") {
  const std::string list = R"({"version":"1.3","net_instance_id":"pod","endpoint_list":[
      {"protocol":"roce","comm_id":"10.0.0.1","placement":"device","plane":"a"},
      {"protocol":"hccs","comm_id":"7","placement":"device","device_info":{"phy_device_id":1}}]})";
  const auto all = Parse(CommRes(list));
  REQUIRE(all.ok());
  CHECK(all->endpoints == std::vector<std::string>{"roce:device", "hccs:device"});
  CHECK(all->net_instance_id == "pod");
  OptionMap filtered = CommRes(list);
  filtered["GlobalResourceConfig"] = R"({"comm_resource_config.protocol_desc":"hccs:device"})";
  CHECK(Parse(filtered)->endpoints == std::vector<std::string>{"hccs:device"});
  CHECK(Parse(Resources(R"({"comm_resource_config.protocol_desc":"ub_ctp:host"})"))->endpoints ==
        std::vector<std::string>{"ub_ctp:host"});
  CHECK(Parse({})->endpoints.empty());
}

TEST_CASE("numbers in strings are digits and nothing else; optional endpoint fields have a type") {
  for (const char* number : {" 1", "1 ", "+1", "0x1", "1.0", "1e0", ""}) {
    const std::string json = std::string(R"({"connect_pool.thread_num":")") + number + "\"}";
    CHECK_FALSE(Parse(Resources(json)).ok());
  }
  for (const char* line : {" 0.5", "nan", "inf", "0x1p-1"}) {
    const std::string json = std::string(R"({"channel_pool.low_waterline":0.1,
        "channel_pool.high_waterline":")") +
                             line + "\"}";
    CHECK_FALSE(Parse(Resources(json)).ok());
  }
  for (const char* field :
       {R"("plane":1)", R"("dst_eid":[])", R"("server_id":2)", R"("device_info":"x")"}) {
    const std::string json = std::string(R"({"version":"1.3","net_instance_id":"a","endpoint_list":[
        {"protocol":"roce","comm_id":"10.0.0.1","placement":"host",)") +
                             field + "}]}";
    INFO(json);
    CHECK_FALSE(Parse(CommRes(json)).ok());
  }
}

}  // namespace
}  // namespace hixld::client
