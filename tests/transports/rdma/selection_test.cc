#include "transports/rdma/selection.h"

#include <catch2/catch.hpp>

#include "proto/base/status.h"
#include "tests/transports/rdma/fake_verbs.h"

namespace hixld::rdma {
namespace {

using testing::V4;

const Gid kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 5, 6, 7, 8, 9};
const Gid kGlobal6 = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr auto kV1 = GidType::kRoceV1;
constexpr auto kV2 = GidType::kRoceV2;

PortCandidate Port(const std::string& device, std::vector<GidEntry> gids, bool active = true,
                   uint32_t number = 0) {
  PortCandidate port{device, number, {}};
  port.info.active = active;
  port.info.state = active ? "ACTIVE" : "DOWN";
  port.info.gids = std::move(gids);
  return port;
}

UsablePort Usable(const std::string& device, std::vector<GidEntry> gids) {
  return {device, 0, 1, 1024, 0, std::move(gids)};
}

std::string ErrorOf(const std::vector<PortCandidate>& ports, const SelectionRules& rules) {
  const auto chosen = ChoosePorts(ports, rules);
  REQUIRE_FALSE(chosen.ok());
  return std::string(chosen.status().message());
}

TEST_CASE("GID order: never link-local, v2 before v1, IPv4 before IPv6, then by index") {
  struct Row {
    const char* what;
    std::vector<GidEntry> gids;
    std::vector<uint32_t> expected;
  };
  const std::vector<Row> rows = {
      {"as devices list them",
       {{0, kLinkLocal, kV1, "e"},
        {1, kLinkLocal, kV2, "e"},
        {2, V4(10, 0, 0, 1), kV1, "e"},
        {3, V4(10, 0, 0, 1), kV2, "e"}},
       {3, 2}},
      {"v6 only", {{0, kLinkLocal, kV2, "e"}, {1, kGlobal6, kV2, "e"}}, {1}},
      {"v4 first", {{0, kGlobal6, kV2, "e"}, {1, V4(10, 0, 0, 1), kV2, "e"}}, {1, 0}},
      {"v2 of v6 before v1 of v4",
       {{0, V4(10, 0, 0, 1), kV1, "e"}, {1, kGlobal6, kV2, "e"}},
       {1, 0}},
      {"IPv4 link-local", {{0, V4(169, 254, 1, 1), kV2, "e"}, {1, V4(10, 0, 0, 1), kV2, "e"}}, {1}},
      {"empty entries", {{0, Gid{}, kV2, ""}, {5, V4(10, 0, 0, 1), kV2, "e"}}, {5}},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const auto ports = ChoosePorts({Port("a", row.gids)}, {});
    REQUIRE(ports.ok());
    std::vector<uint32_t> indices;
    for (const GidEntry& gid : ports->front().gids) indices.push_back(gid.index);
    CHECK(indices == row.expected);
  }
}

TEST_CASE("Link-local GIDs are used where they are allowed, and on InfiniBand") {
  SelectionRules rules;
  PortCandidate port = Port("a", {{0, kLinkLocal, kV2, "e"}});
  CHECK_FALSE(ChoosePorts({port}, rules).ok());
  rules.allow_link_local = true;
  CHECK(ChoosePorts({port}, rules).ok());
  rules.allow_link_local = false;
  port.info.ethernet = false;
  port.info.gids[0].type = GidType::kInfiniBand;
  CHECK(ChoosePorts({port}, rules).ok());
}

TEST_CASE("Ports are chosen by device, port and interface") {
  PortCandidate second = Port("b", {{0, V4(10, 0, 2, 1), kV2, "eth2"}});
  second.info.number = 2;
  const std::vector<PortCandidate> ports = {Port("a", {{0, V4(10, 0, 1, 1), kV2, "eth1"}}), second};
  struct Row {
    std::vector<std::string> devices;
    std::vector<std::string> interfaces;
    std::string expected;
  };
  const std::vector<Row> rows = {{{}, {}, "ab"},
                                 {{"a"}, {}, "a"},
                                 {{"b:2"}, {}, "b"},
                                 {{}, {"eth2"}, "b"},
                                 {{"a", "b"}, {}, "ab"}};
  for (const Row& row : rows) {
    const auto chosen = ChoosePorts(ports, {.devices = row.devices, .interfaces = row.interfaces});
    REQUIRE(chosen.ok());
    std::string names;
    for (const UsablePort& port : *chosen) names += port.device;
    CHECK(names == row.expected);
  }
}

TEST_CASE("What cannot be chosen is named, with the option") {
  const std::vector<PortCandidate> ports = {Port("rxe0", {{0, V4(10, 0, 1, 1), kV2, "eth1"}}),
                                            Port("rxe1", {{0, V4(10, 0, 2, 1), kV2, "eth2"}})};
  using Catch::Matchers::Contains;
  CHECK_THAT(ErrorOf({}, {}), Contains("no RDMA device"));
  CHECK_THAT(ErrorOf(ports, {.devices = {"mlx5_0"}}),
             Contains("rdma.devices names mlx5_0") && Contains("there are: rxe0, rxe1"));
  CHECK_THAT(ErrorOf(ports, {.devices = {"rxe0:3"}}), Contains("no such port"));
  CHECK_THAT(ErrorOf(ports, {.interfaces = {"eth9"}}), Contains("rdma.interfaces names eth9"));
  CHECK_THAT(ErrorOf(ports, {.devices = {"rxe0"}, .interfaces = {"eth2"}}),
             Contains("no port of rdma.devices [rxe0]"));
  CHECK_THAT(ErrorOf({Port("rxe0", {}, false)}, {}), Contains("rxe0 port 1 is DOWN, not ACTIVE"));
  CHECK_THAT(ErrorOf({Port("rxe0", {})}, {}),
             Contains("rxe0 port 1 has no usable GID") && Contains("its GIDs: none"));
  CHECK_THAT(ErrorOf(ports, {.gid_index = 4}), Contains("rdma.gid_index 4"));
  CHECK_THAT(ErrorOf(ports, {.mtu = 4096}),
             Contains("rdma.mtu is 4096") && Contains("active MTU of 1024"));
}

TEST_CASE("One bad port does not spoil the others") {
  const auto chosen =
      ChoosePorts({Port("a", {}, false), Port("b", {{0, V4(10, 0, 1, 1), kV2, "e"}})}, {});
  REQUIRE(chosen.ok());
  REQUIRE(chosen->size() == 1);
  CHECK(chosen->front().device == "b");
}

TEST_CASE("Pairs: one subnet first, each port once, a router only where there is no other way") {
  const GidEntry left{1, V4(10, 0, 1, 1), kV2, "e", 120};
  const GidEntry right{1, V4(10, 0, 2, 1), kV2, "e", 120};
  const GidEntry peer_left{1, V4(10, 0, 1, 2), kV2, "", 120};
  const GidEntry peer_right{1, V4(10, 0, 2, 2), kV2, "", 120};
  SECTION("crossed order") {
    const auto pairs = PairPorts({Usable("a", {left}), Usable("b", {right})},
                                 {Usable("x", {peer_right}), Usable("y", {peer_left})}, Gid{});
    REQUIRE(pairs.ok());
    REQUIRE(pairs->size() == 2);
    CHECK((*pairs)[0].local == 0);
    CHECK((*pairs)[0].remote == 1);
    CHECK((*pairs)[1].local == 1);
    CHECK((*pairs)[1].remote == 0);
  }
  SECTION("same subnet beats the route") {
    const auto pairs =
        PairPorts({Usable("a", {right, left})}, {Usable("x", {peer_left})}, right.gid);
    REQUIRE(pairs.ok());
    CHECK(pairs->front().local_gid.gid == left.gid);
  }
  SECTION("through a router, from where the route goes") {
    const GidEntry far{1, V4(192, 168, 9, 9), kV2, "", 120};
    const auto pairs =
        PairPorts({Usable("a", {left}), Usable("b", {right})}, {Usable("x", {far})}, right.gid);
    REQUIRE(pairs.ok());
    REQUIRE(pairs->size() == 1);
    CHECK(pairs->front().local == 1);
  }
  SECTION("v1 and v2 do not mix, and v1 passes no router") {
    GidEntry v1 = peer_left;
    v1.type = kV1;
    CHECK_FALSE(PairPorts({Usable("a", {left})}, {Usable("x", {v1})}, Gid{}).ok());
    GidEntry own_v1 = right;
    own_v1.type = kV1;
    CHECK_FALSE(PairPorts({Usable("a", {own_v1})}, {Usable("x", {v1})}, Gid{}).ok());
  }
  SECTION("the error names both sides") {
    const auto pairs =
        PairPorts({Usable("a", {left})}, {Usable("x", {{1, kGlobal6, kV2, "", 64}})}, Gid{});
    REQUIRE_FALSE(pairs.ok());
    CHECK_THAT(
        std::string(pairs.status().message()),
        Catch::Matchers::Contains("::ffff:10.0.1.1") && Catch::Matchers::Contains("2001:db8"));
  }
}

TEST_CASE("MTU steps") {
  CHECK(MtuEnum(4096) == IBV_MTU_4096);
  CHECK(MtuEnum(1500) == IBV_MTU_1024);
  CHECK(MtuEnum(100) == IBV_MTU_256);
  CHECK(IsMtu(2048));
  CHECK_FALSE(IsMtu(1500));
}

}  // namespace
}  // namespace hixld::rdma
