#include "daemon/engine/options.h"

#include <catch2/catch.hpp>

#include "proto/base/status.h"

namespace hixld {
namespace {

using Catch::Contains;

TEST_CASE("good options are taken") {
  for (const std::map<std::string, std::string>& good :
       std::vector<std::map<std::string, std::string>>{
           {},
           {{"EnableUseFabricMem", "0"}, {"AutoConnect", "0"}},
           {{"RdmaTrafficClass", "132"}, {"adxl.RdmaServiceLevel", "7"}},
           {{"BufferPool", "4:8"}},
           {{"adxl.BufferPool", "0:0"}, {"LocalCommRes", ""}},
           {{"GlobalResourceConfig", R"({"connect_pool.thread_num": 2})"}}}) {
    const auto parsed = ParseEngineOptions(good, {});
    REQUIRE(parsed.ok());
    CHECK_FALSE(parsed->auto_connect);
    CHECK(parsed->given == good);
  }
  CHECK(ParseEngineOptions({{"AutoConnect", "1"}}, {})->auto_connect);
}

TEST_CASE("batching comes from the daemon's configuration, key by key replaced by the engine's") {
  const BatchingOptions configured = {.window_ns = 5000, .max_requests = 8, .max_bytes = 65536};
  const auto parsed = ParseEngineOptions(
      {{"GlobalResourceConfig", R"({"hixld.batching.window_us": 20, "hixld.batching.other": 1,
                                    "hixld.batching.max_requests": 9})"}},
      configured);
  REQUIRE(parsed.ok());
  CHECK(parsed->batching.window_ns == 20'000);
  CHECK(parsed->batching.max_requests == 9);
  CHECK(parsed->batching.max_bytes == 65536);
  CHECK(ParseEngineOptions({{"GlobalResourceConfig", ""}}, configured)->batching.window_ns == 5000);
  for (const char* bad :
       {R"({"hixld.batching.window_us": 100001})", R"({"hixld.batching.window_us": -1})",
        R"({"hixld.batching.max_requests": 1})", R"({"hixld.batching.max_bytes": "many"})"}) {
    const auto refused = ParseEngineOptions({{"GlobalResourceConfig", bad}}, configured);
    CHECK(ApiCodeOf(refused.status()) == ApiCode::kParamInvalid);
    CHECK_THAT(std::string(refused.status().message()), Contains("hixld.batching."));
  }
}

TEST_CASE("how RDMA packets are treated comes from either spelling; the plain one wins") {
  CHECK_FALSE(ParseEngineOptions({}, {})->traffic_class.has_value());
  CHECK_FALSE(ParseEngineOptions({{"RdmaServiceLevel", ""}}, {})->service_level.has_value());
  CHECK(ParseEngineOptions({{"RdmaTrafficClass", "252"}}, {})->traffic_class == 252);
  CHECK(ParseEngineOptions({{"adxl.RdmaTrafficClass", "0"}}, {})->traffic_class == 0);
  CHECK(ParseEngineOptions({{"adxl.RdmaServiceLevel", "1"}, {"RdmaServiceLevel", "2"}}, {})
            ->service_level == 2);
}

TEST_CASE("bad options are PARAM_INVALID and name key and value") {
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"InvalidOption", "x"},
                                                        {"AutoConnect", ""},
                                                        {"AutoConnect", "yes"},
                                                        {"RdmaTrafficClass", "133"},
                                                        {"RdmaTrafficClass", "256"},
                                                        {"RdmaTrafficClass", "4x"},
                                                        {"RdmaServiceLevel", "8"},
                                                        {"RdmaServiceLevel", "-1"},
                                                        {"BufferPool", "4"},
                                                        {"BufferPool", "4:0"},
                                                        {"BufferPool", "1:2:3"},
                                                        {"GlobalResourceConfig", "[1]"},
                                                        {"GlobalResourceConfig", "{"},
                                                        {"LocalCommRes", "version"}}) {
    const auto parsed = ParseEngineOptions({{key, value}}, {});
    CHECK(ApiCodeOf(parsed.status()) == ApiCode::kParamInvalid);
    CHECK_THAT(std::string(parsed.status().message()), Contains(key));
  }
}

}  // namespace
}  // namespace hixld
