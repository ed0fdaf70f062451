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
    const auto parsed = ParseEngineOptions(good);
    REQUIRE(parsed.ok());
    CHECK_FALSE(parsed->auto_connect);
    CHECK(parsed->given == good);
  }
  CHECK(ParseEngineOptions({{"AutoConnect", "1"}})->auto_connect);
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
    const auto parsed = ParseEngineOptions({{key, value}});
    CHECK(ApiCodeOf(parsed.status()) == ApiCode::kParamInvalid);
    CHECK_THAT(std::string(parsed.status().message()), Contains(key));
  }
}

}  // namespace
}  // namespace hixld
