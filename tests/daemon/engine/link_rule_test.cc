// Which protocol joins two engines and what it moves (contract 3.4 and 7).
#include "daemon/engine/link_rule.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "daemon/engine/options.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

using Catch::Matchers::Contains;

constexpr MemoryType kDevice = MemoryType::kDevice;
constexpr MemoryType kHost = MemoryType::kHost;

EndpointSet Set(const std::string& product, std::vector<std::string> endpoints,
                const std::string& net = "pod") {
  return {.product = product, .net_instance = net, .endpoints = std::move(endpoints)};
}

std::string Protocol(const EndpointSet& a, const EndpointSet& b) {
  const auto rule = LinkRule::Make("a", a, "b", b);
  if (!rule.ok()) return std::string(ApiCodeName(ApiCodeOf(rule.status())));
  return *rule == nullptr ? "none" : (*rule)->protocol();
}

TEST_CASE("inside a pod UB comes before HCCS before UBoE before RoCE; between pods UBoE first") {
  const std::vector<std::string> all = {"roce:host",    "roce:device", "ub_rtp:device",
                                        "uboe:device",  "hccs:device", "ub_ctp:host",
                                        "ub_ctp:device"};
  const std::vector<std::string> order = {"ub_ctp",        "hccs:device", "uboe:device",
                                          "ub_rtp:device", "roce:device", "roce:host"};
  std::vector<std::string> left = all;
  for (const std::string& expected : order) {
    CHECK(Protocol(Set("Ascend950PR", left), Set("Ascend950PR", left)) == expected);
    left.erase(std::remove_if(left.begin(), left.end(),
                              [&](const std::string& e) { return e.rfind(expected, 0) == 0; }),
               left.end());
  }
  left = all;
  for (const std::string expected : {"uboe:device", "ub_rtp:device", "roce:device", "roce:host"}) {
    CHECK(Protocol(Set("Ascend950PR", left), Set("Ascend950PR", left, "other")) == expected);
    left.erase(std::find(left.begin(), left.end(), expected));
  }
}

TEST_CASE("without a common protocol the link is refused and both sides are named") {
  const auto rule = LinkRule::Make("127.0.0.1:1", Set("Ascend910B3", {"hccs:device"}),
                                   "127.0.0.1:2", Set("Ascend910B3", {"roce:device"}));
  REQUIRE_FALSE(rule.ok());
  CHECK(ApiCodeOf(rule.status()) == ApiCode::kParamInvalid);
  CHECK_THAT(std::string(rule.status().message()), Contains("127.0.0.1:1 (Ascend910B3) has hccs") &&
                                                       Contains("127.0.0.1:2") &&
                                                       Contains("roce:device"));
  // HCCS does not leave the pod.
  CHECK(Protocol(Set("Ascend910B3", {"hccs:device"}), Set("Ascend910B3", {"hccs:device"}, "x")) ==
        "PARAM_INVALID");
}

TEST_CASE("an engine without product limits links with everybody, unlimited") {
  CHECK(Protocol(Set("Ascend910B3", {"hccs:device"}), {}) == "none");
  CHECK(Protocol({}, Set("Ascend910B3", {"hccs:device"})) == "none");
}

TEST_CASE("what the protocol does not move is UNSUPPORTED, with the reason") {
  const auto rule = LinkRule::Make("a", Set("Ascend910B3", {"hccs:device"}), "b",
                                   Set("Ascend910B3", {"hccs:device"}));
  REQUIRE(rule.ok());
  CHECK((*rule)->Check(0, kDevice, kDevice).ok());
  const absl::Status refused = (*rule)->Check(7, kHost, kDevice);
  CHECK(ApiCodeOf(refused) == ApiCode::kUnsupported);
  CHECK_THAT(std::string(refused.message()), Contains("descriptor 7") && Contains("Ascend910B3") &&
                                                 Contains("hccs:device") &&
                                                 Contains("local host") && Contains("roce:device"));
}

TEST_CASE("ub_ctp reaches the placements for which each side has an endpoint") {
  const auto rule = LinkRule::Make("a", Set("Ascend950PR", {"ub_ctp:device"}), "b",
                                   Set("Ascend950PR", {"ub_ctp:device", "ub_ctp:host"}));
  REQUIRE(rule.ok());
  CHECK((*rule)->Check(0, kDevice, kDevice).ok());
  CHECK((*rule)->Check(0, kDevice, kHost).ok());
  CHECK_FALSE((*rule)->Check(0, kHost, kDevice).ok());
}

EngineOptions Applied(const Product& product, EngineProfile profile, absl::Status* status) {
  EngineOptions options;
  options.profile = std::move(profile);
  *status = ApplyProduct(product, "node", &options);
  return options;
}

TEST_CASE("a product's limits fill in the endpoints, or refuse what it lacks") {
  const auto product = [](const std::string& name, bool limits = true) {
    return Product{.name = name, .form = ProductFormOf(name), .limits = limits};
  };
  absl::Status status;
  EngineOptions options = Applied(product("Ascend910B3"), {.kind = EngineKind::kComm}, &status);
  CHECK(status.ok());
  CHECK(options.endpoints.endpoints == std::vector<std::string>{"hccs:device", "roce:device"});
  CHECK(options.endpoints.net_instance == "node");
  CHECK(options.profile.effective.back().source == "product Ascend910B3");

  options = Applied(product("Ascend910B3", false), {.kind = EngineKind::kFabric}, &status);
  CHECK(status.ok());
  CHECK(options.endpoints.empty());

  Applied(product("Ascend910B3"), {.kind = EngineKind::kFabric}, &status);
  CHECK(ApiCodeOf(status) == ApiCode::kUnsupported);
  Applied(product("Ascend910_9391"), {.kind = EngineKind::kFabric}, &status);
  CHECK(status.ok());
  Applied(product("Ascend910B3"), {.kind = EngineKind::kHixl, .endpoints = {"ub_ctp:device"}},
          &status);
  CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
  Applied(product("Ascend950PR"), {.kind = EngineKind::kComm}, &status);
  CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
  Applied(product("Ascend950PR"), {.kind = EngineKind::kHixl, .force_roce = true}, &status);
  CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
}

}  // namespace
}  // namespace hixld
