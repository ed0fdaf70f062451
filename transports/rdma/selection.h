// Which device, port and GID a lane uses: pure functions over what the devices report.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma {

// What the configuration asks for (keys rdma.*).
struct SelectionRules {
  // "mlx5_0" or "mlx5_0:1"; empty = all.
  std::vector<std::string> devices;
  // Network interfaces whose devices may be used; empty = all.
  std::vector<std::string> interfaces;
  // The entry of the GID table; negative = chosen by the rules below.
  int gid_index = -1;
  bool allow_link_local = false;
  // Bytes; 0 = the port's active MTU.
  uint32_t mtu = 0;
};

struct PortCandidate {
  std::string device;
  uint32_t device_number = 0;
  PortInfo info;
};

// A port that lanes may use, its usable GIDs with the best first.
struct UsablePort {
  std::string device;
  uint32_t device_number = 0;
  uint8_t port = 1;
  uint32_t mtu = 1024;  // bytes
  uint16_t lid = 0;
  std::vector<GidEntry> gids;

  // "rxe0 port 1".
  std::string Name() const;
};

// The ports that the rules allow. Otherwise an error that names the first thing that is wrong and
// the option that changes it: no device at all, a device name that does not exist (with those that
// do), no active port, no usable GID, an MTU above the port's.
//
// GIDs: never link-local on Ethernet unless allowed; RoCE v2 before v1, IPv4 before IPv6, then by
// index.
absl::StatusOr<std::vector<UsablePort>> ChoosePorts(const std::vector<PortCandidate>& candidates,
                                                    const SelectionRules& rules);

// One end-to-end way for lanes.
struct PortPair {
  size_t local = 0;  // index of the port
  GidEntry local_gid;
  size_t remote = 0;
  GidEntry remote_gid;
};

// Ways between the ports of two nodes, best first. Both ends speak the same version and address
// family. Ports in one subnet are paired with each other, each at most once; only where no such
// pair exists, ways through a router are used, the one from `route_source` first (the address
// that the routing table uses towards the peer; zero = unknown). An error names both sides' GIDs.
absl::StatusOr<std::vector<PortPair>> PairPorts(const std::vector<UsablePort>& local,
                                                const std::vector<UsablePort>& remote,
                                                const Gid& route_source);

bool IsLinkLocal(const Gid& gid);
// An address that nobody can have: zero, or multicast.
bool IsUnusable(const Gid& gid);
bool IsV4Mapped(const Gid& gid);
bool SameSubnet(const GidEntry& a, const Gid& b);

// The larger of the MTUs that verbs know (256..4096) and fit into `bytes`.
ibv_mtu MtuEnum(uint32_t bytes);
bool IsMtu(uint32_t bytes);

}  // namespace hixld::rdma
