// Whatever the options hold, parsing gives options or PARAM_INVALID that names one of them.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "client/cpp/options.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

const std::vector<std::string> kKeys = {
    "RdmaTrafficClass", "adxl.RdmaTrafficClass", "RdmaServiceLevel",    "adxl.RdmaServiceLevel",
    "BufferPool",       "adxl.BufferPool",       "AutoConnect",         "EnableUseFabricMem",
    "LocalCommRes",     "adxl.LocalCommRes",     "GlobalResourceConfig"};

const std::vector<std::string> kFields = {"fabric_memory",
                                          "fabric_memory.max_capacity",
                                          "fabric_memory.start_address",
                                          "fabric_memory.task_stream_num",
                                          "fabric_memory.enable_aicpu_unfold",
                                          "connect_pool.thread_num",
                                          "connect_pool.task_queue_capacity",
                                          "comm_resource_config.protocol_desc",
                                          "comm_resource_config.listen_port",
                                          "comm_resource_config.qos",
                                          "comm_resource_config.max_active_channels",
                                          "local_comm_res_path",
                                          "channel_pool.max_channel",
                                          "channel_pool.high_waterline",
                                          "channel_pool.low_waterline",
                                          "version",
                                          "net_instance_id",
                                          "endpoint_list",
                                          "protocol",
                                          "comm_id",
                                          "placement",
                                          "max_capacity",
                                          "unknown"};

const std::vector<std::string> kAtoms = {"0",
                                         "1",
                                         "-1",
                                         "2.5",
                                         "1e400",
                                         "18446744073709551616",
                                         "true",
                                         "null",
                                         "\"\"",
                                         "\"1\"",
                                         "\"1.3\"",
                                         "\" 1\"",
                                         "\"0x1\"",
                                         "\"nan\"",
                                         "\"inf\"",
                                         "\"roce:device\"",
                                         "\"roce\"",
                                         "\"device\"",
                                         "\"10.0.0.1\"",
                                         "\"\\u0000\"",
                                         "[]",
                                         "{}"};

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  std::string Json(int depth) {
    switch (depth > 0 ? Below(4) : 3) {
      case 0:
        return Object(depth);
      case 1: {
        std::string list = "[";
        for (uint32_t i = Below(4); i > 0; --i) list += Json(depth - 1) + (i > 1 ? "," : "");
        return list + "]";
      }
      default:
        return Pick(kAtoms);
    }
  }

  std::string Object(int depth) {
    std::string object = "{";
    for (uint32_t i = Below(6); i > 0; --i) {
      object += "\"" + Pick(kFields) + "\":" + Json(depth - 1) + (i > 1 ? "," : "");
    }
    return object + "}";
  }

  // A value that may be right, nearly right, or noise.
  std::string Value() {
    switch (Below(5)) {
      case 0:
        return std::to_string(static_cast<int32_t>(random_()) % 300);
      case 1:
        return Pick({"", "0", "1", "4:8", "0:0", "1:0", ":", "4:8:", "-1", "132", "7"});
      case 2: {
        std::string noise;
        for (uint32_t i = Below(40); i > 0; --i) noise += static_cast<char>(random_());
        return noise;
      }
      case 3: {
        std::string json = Object(3);
        if (Below(3) == 0) json.resize(Below(static_cast<uint32_t>(json.size()) + 1));
        return json;
      }
      default:
        return Object(3);
    }
  }

  OptionMap Options() {
    OptionMap options;
    for (uint32_t i = Below(5); i > 0; --i) options[Pick(kKeys)] = Value();
    if (Below(20) == 0) options["Unknown"] = "1";
    return options;
  }

  uint32_t Below(uint32_t limit) { return random_() % limit; }
  std::string Pick(const std::vector<std::string>& from) {
    return from[Below(static_cast<uint32_t>(from.size()))];
  }

 private:
  std::mt19937 random_;
};

TEST_CASE("any options are taken, or refused as PARAM_INVALID with the option's name") {
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    Generator generator(seed);
    const OptionMap options = generator.Options();
    OptionsContext context;
    context.getenv = [&](const char*) -> std::optional<std::string> {
      return generator.Below(4) == 0 ? std::optional(generator.Value()) : std::nullopt;
    };
    context.read_file = [&](const std::string&) -> absl::StatusOr<std::string> {
      return generator.Value();
    };
    context.soc_name = generator.Pick({"", "Ascend910B3", "Ascend950PR"});
    const auto parsed = ParseOptions(options, context);
    INFO("seed " << seed);
    if (parsed.ok()) {
      CHECK((parsed->traffic_class >= 0 && parsed->traffic_class <= 255));
      CHECK(parsed->traffic_class % 4 == 0);
      CHECK((parsed->connect_threads >= 1 && parsed->connect_threads <= 64));
      CHECK(parsed->effective.size() >= 10);
    } else {
      REQUIRE(ApiCodeOf(parsed.status()) == ApiCode::kParamInvalid);
      CHECK_FALSE(ErrorInfoOf(parsed.status()).option.empty());
      CHECK_FALSE(ErrorInfoOf(parsed.status()).allowed.empty());
    }
  }
}

TEST_CASE("JSON that nests a megabyte deep ends in an error, not in the stack's end") {
  const std::string deep(1U << 20, '[');
  OptionsContext context = OptionsContext::System();
  for (const char* key : {"GlobalResourceConfig", "LocalCommRes"}) {
    CHECK_FALSE(ParseOptions({{key, deep}}, context).ok());
    CHECK_FALSE(ParseOptions({{key, deep + std::string(1U << 20, ']')}}, context).ok());
    const std::string inside = "{\"a\":" + deep + std::string(1U << 20, ']') + "}";
    CHECK(ParseOptions({{key, inside}}, context).ok());
    // A message about such a value is short.
    const std::string named = key == std::string("LocalCommRes")
                                  ? R"({"version":"1.3","net_instance_id":)"
                                  : R"({"connect_pool.thread_num":)";
    const auto refused =
        ParseOptions({{key, named + deep + std::string(1U << 20, ']') + "}"}}, context);
    REQUIRE(ApiCodeOf(refused.status()) == ApiCode::kParamInvalid);
    CHECK(refused.status().message().size() < 1000);
  }
}

}  // namespace
}  // namespace hixld::client
