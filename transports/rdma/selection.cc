#include "transports/rdma/selection.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

constexpr uint32_t kMtus[] = {256, 512, 1024, 2048, 4096};

std::string PortName(absl::string_view device, uint32_t port) {
  return absl::StrCat(device, " port ", port);
}

// The configured name without its ":port".
std::string DeviceOf(const std::string& name) { return name.substr(0, name.find(':')); }

bool Named(const PortCandidate& candidate, const std::vector<std::string>& names) {
  if (names.empty()) return true;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == candidate.device ||
           name == absl::StrCat(candidate.device, ":", candidate.info.number);
  });
}

bool OnInterface(const PortInfo& port, const std::vector<std::string>& interfaces) {
  if (interfaces.empty()) return true;
  return std::any_of(port.gids.begin(), port.gids.end(), [&](const GidEntry& gid) {
    return std::find(interfaces.begin(), interfaces.end(), gid.interface) != interfaces.end();
  });
}

bool GidAllowed(const PortInfo& port, const GidEntry& gid, const SelectionRules& rules) {
  if (IsUnusable(gid.gid)) return false;
  if (rules.gid_index >= 0) return gid.index == static_cast<uint32_t>(rules.gid_index);
  if (!rules.interfaces.empty() && !gid.interface.empty() &&
      std::find(rules.interfaces.begin(), rules.interfaces.end(), gid.interface) ==
          rules.interfaces.end()) {
    return false;
  }
  return !port.ethernet || rules.allow_link_local || !IsLinkLocal(gid.gid);
}

// Smaller is better.
std::tuple<int, int, int, uint32_t> Rank(const GidEntry& gid) {
  return {IsLinkLocal(gid.gid) ? 1 : 0, gid.type == GidType::kRoceV1 ? 1 : 0,
          IsV4Mapped(gid.gid) ? 0 : 1, gid.index};
}

std::string GidList(const PortInfo& port) {
  if (port.gids.empty()) return "none";
  return absl::StrJoin(port.gids, ", ", [](std::string* out, const GidEntry& gid) {
    absl::StrAppend(out, gid.index, " ", GidText(gid.gid),
                    gid.type == GidType::kRoceV1   ? " v1"
                    : gid.type == GidType::kRoceV2 ? " v2"
                                                   : "");
  });
}

std::string DeviceList(const std::vector<PortCandidate>& candidates) {
  std::set<std::string> names;
  for (const PortCandidate& candidate : candidates) names.insert(candidate.device);
  return absl::StrJoin(names, ", ");
}

absl::Status CheckNames(const std::vector<PortCandidate>& candidates, const SelectionRules& rules) {
  for (const std::string& name : rules.devices) {
    const bool known = std::any_of(candidates.begin(), candidates.end(),
                                   [&](const PortCandidate& c) { return Named(c, {name}); });
    if (known) continue;
    const bool device = std::any_of(candidates.begin(), candidates.end(),
                                    [&](const auto& c) { return c.device == DeviceOf(name); });
    return ParamInvalid(
        absl::StrCat("rdma.devices names ", name, ", but there is no such ",
                     device ? "port" : "device", "; there are: ", DeviceList(candidates)),
        {.object = name, .option = "rdma.devices", .allowed = DeviceList(candidates)});
  }
  for (const std::string& name : rules.interfaces) {
    const bool known =
        std::any_of(candidates.begin(), candidates.end(),
                    [&](const PortCandidate& c) { return OnInterface(c.info, {name}); });
    if (!known) {
      return ParamInvalid(absl::StrCat("rdma.interfaces names ", name,
                                       ", but no RDMA device belongs to that interface"),
                          {.object = name, .option = "rdma.interfaces"});
    }
  }
  return absl::OkStatus();
}

absl::Status NoDevice(const SelectionRules& rules) {
  std::string wanted;
  if (!rules.devices.empty()) {
    wanted = absl::StrCat("rdma.devices names ", absl::StrJoin(rules.devices, ", "), ", but ");
  } else if (!rules.interfaces.empty()) {
    wanted =
        absl::StrCat("rdma.interfaces names ", absl::StrJoin(rules.interfaces, ", "), ", but ");
  }
  return absl::NotFoundError(
      absl::StrCat(wanted, "there is no RDMA device on this node (`rdma link` lists none)"));
}

absl::StatusOr<UsablePort> Usable(const PortCandidate& candidate, const SelectionRules& rules) {
  const PortInfo& info = candidate.info;
  const std::string name = PortName(candidate.device, info.number);
  if (!info.active) {
    return Failed(absl::StrCat(name, " is ", info.state,
                               ", not ACTIVE: check the cable or `ip "
                               "link` of its interface"),
                  {.object = name});
  }
  UsablePort usable{candidate.device, candidate.device_number, info.number, info.mtu, info.lid, {}};
  if (rules.mtu > info.mtu) {
    return ParamInvalid(
        absl::StrCat("rdma.mtu is ", rules.mtu, ", but ", name, " has an active MTU of ", info.mtu,
                     ": raise the MTU of its interface or lower rdma.mtu"),
        {.object = name, .limit = absl::StrCat(info.mtu, " bytes"), .option = "rdma.mtu"});
  }
  if (rules.mtu != 0) usable.mtu = rules.mtu;
  for (const GidEntry& gid : info.gids) {
    if (GidAllowed(info, gid, rules)) usable.gids.push_back(gid);
  }
  if (usable.gids.empty()) {
    return Failed(
        absl::StrCat(name, " has no usable GID (rdma.gid_index ",
                     rules.gid_index < 0 ? "auto" : absl::StrCat(rules.gid_index),
                     "; link-local ones are ", rules.allow_link_local ? "allowed" : "not used",
                     "); its GIDs: ", GidList(info),
                     ". Give its interface an IP address, or set rdma.gid_index"),
        {.object = name, .option = "rdma.gid_index"});
  }
  std::sort(usable.gids.begin(), usable.gids.end(),
            [](const GidEntry& a, const GidEntry& b) { return Rank(a) < Rank(b); });
  return usable;
}

std::string PortGids(const std::vector<UsablePort>& ports) {
  return absl::StrJoin(ports, ", ", [](std::string* out, const UsablePort& port) {
    absl::StrAppend(out, port.Name(), " (",
                    absl::StrJoin(port.gids, ", ",
                                  [](std::string* text, const GidEntry& gid) {
                                    absl::StrAppend(text, GidText(gid.gid));
                                  }),
                    ")");
  });
}

bool CanSpeak(const GidEntry& a, const GidEntry& b) {
  return a.type == b.type && IsV4Mapped(a.gid) == IsV4Mapped(b.gid) &&
         IsLinkLocal(a.gid) == IsLinkLocal(b.gid);
}

bool InOneSubnet(const GidEntry& a, const GidEntry& b) {
  return SameSubnet(a, b.gid) || SameSubnet(b, a.gid);
}

struct Way {
  // Smaller is better; the first entry tells a subnet of its own from a way through a router.
  std::tuple<int, int, int, size_t, size_t> rank;
  PortPair pair;
};

// The best way between two ports, if there is any.
void AddBestWay(const std::vector<UsablePort>& local, size_t i,
                const std::vector<UsablePort>& remote, size_t j, const Gid& route_source,
                std::vector<Way>* ways) {
  bool found = false;
  Way best;
  for (const GidEntry& a : local[i].gids) {
    for (const GidEntry& b : remote[j].gids) {
      if (!CanSpeak(a, b)) continue;
      const bool near = InOneSubnet(a, b);
      // RoCE v1 and link-local addresses do not pass a router.
      if (!near && (a.type == GidType::kRoceV1 || IsLinkLocal(a.gid))) continue;
      const Way way{
          {near ? 0 : 1, a.gid == route_source ? 0 : 1, a.type == GidType::kRoceV1 ? 1 : 0, i,
           (j + remote.size() - i) % remote.size()},
          {i, a, j, b}};
      if (!found || way.rank < best.rank) best = way;
      found = true;
    }
  }
  if (found) ways->push_back(best);
}

}  // namespace

std::string UsablePort::Name() const { return PortName(device, port); }

absl::StatusOr<std::vector<UsablePort>> ChoosePorts(const std::vector<PortCandidate>& candidates,
                                                    const SelectionRules& rules) {
  if (candidates.empty()) return NoDevice(rules);
  HIXLD_RETURN_IF_ERROR(CheckNames(candidates, rules));
  std::vector<UsablePort> ports;
  absl::Status first_problem;
  for (const PortCandidate& candidate : candidates) {
    if (!Named(candidate, rules.devices) || !OnInterface(candidate.info, rules.interfaces)) {
      continue;
    }
    auto usable = Usable(candidate, rules);
    if (usable.ok()) {
      ports.push_back(*std::move(usable));
    } else if (first_problem.ok()) {
      first_problem = usable.status();
    }
  }
  if (!ports.empty()) return ports;
  if (!first_problem.ok()) return first_problem;
  return ParamInvalid(
      absl::StrCat("no port of rdma.devices [", absl::StrJoin(rules.devices, ", "),
                   "] belongs to rdma.interfaces [", absl::StrJoin(rules.interfaces, ", "), "]"),
      {.option = "rdma.devices"});
}

absl::StatusOr<std::vector<PortPair>> PairPorts(const std::vector<UsablePort>& local,
                                                const std::vector<UsablePort>& remote,
                                                const Gid& route_source) {
  std::vector<Way> ways;
  for (size_t i = 0; i < local.size(); ++i) {
    for (size_t j = 0; j < remote.size(); ++j) {
      AddBestWay(local, i, remote, j, route_source, &ways);
    }
  }
  if (ways.empty()) {
    return Failed(absl::StrCat("no RDMA port of this node, ", PortGids(local),
                               ", can reach one of the peer's, ", PortGids(remote),
                               ": give them addresses of one subnet, or set rdma.gid_index"),
                  {.option = "rdma.gid_index"});
  }
  std::sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.rank < b.rank; });
  const int nearest = std::get<0>(ways.front().rank);
  std::set<size_t> used_local;
  std::set<size_t> used_remote;
  std::vector<PortPair> pairs;
  for (const Way& way : ways) {
    if (std::get<0>(way.rank) != nearest) break;
    if (used_local.count(way.pair.local) != 0 || used_remote.count(way.pair.remote) != 0) continue;
    used_local.insert(way.pair.local);
    used_remote.insert(way.pair.remote);
    pairs.push_back(way.pair);
  }
  return pairs;
}

bool IsLinkLocal(const Gid& gid) {
  if (IsV4Mapped(gid)) return gid[12] == 169 && gid[13] == 254;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

bool IsUnusable(const Gid& gid) {
  if (gid == Gid{}) return true;
  if (IsV4Mapped(gid)) return gid[12] == 0 || gid[12] >= 224;
  return gid[0] == 0xff;
}

bool IsV4Mapped(const Gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return memcmp(gid.data(), kPrefix, sizeof(kPrefix)) == 0;
}

bool SameSubnet(const GidEntry& a, const Gid& b) {
  if (IsV4Mapped(a.gid) != IsV4Mapped(b)) return false;
  // Without a known prefix (InfiniBand, or an address that is gone): the upper half is the subnet.
  const uint32_t bits = a.prefix_bits != 0 ? a.prefix_bits : IsV4Mapped(a.gid) ? 128 : 64;
  for (uint32_t bit = 0; bit < bits && bit < 128; bit += 8) {
    const auto mask = static_cast<uint8_t>(bits - bit >= 8 ? 0xff : 0xff << (8 - (bits - bit)));
    if (((a.gid[bit / 8] ^ b[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

ibv_mtu MtuEnum(uint32_t bytes) {
  ibv_mtu best = IBV_MTU_256;
  for (size_t i = 0; i < std::size(kMtus); ++i) {
    if (kMtus[i] <= bytes) best = static_cast<ibv_mtu>(IBV_MTU_256 + static_cast<int>(i));
  }
  return best;
}

bool IsMtu(uint32_t bytes) {
  return std::find(std::begin(kMtus), std::end(kMtus), bytes) != std::end(kMtus);
}

}  // namespace hixld::rdma
