#include "daemon/host_check.h"

#include <grp.h>
#include <ifaddrs.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/endpoint.h"
#include "proto/base/status.h"
#include "transports/tcp/socket.h"

namespace hixld {
namespace {

// What is open in a daemon that has just started, and as much again for gRPC's first connections.
constexpr rlim_t kMinDescriptors = 128;

struct HostNetwork {
  std::set<std::string> interfaces;
  std::set<std::string> addresses;  // as Endpoint spells them, without port
};

HostNetwork ReadNetwork() {
  HostNetwork network;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return network;
  absl::Cleanup free_list = [list] { freeifaddrs(list); };
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    network.interfaces.insert(entry->ifa_name);
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    sockaddr_storage address = {};
    memcpy(&address, entry->ifa_addr, length);
    network.addresses.insert(EndpointFromSockaddr(address, length).WithPort(0).ToString());
  }
  return network;
}

}  // namespace

absl::StatusOr<gid_t> SocketGroup(const Config& config) {
  const std::string& name = config.socket.group;
  if (name.empty()) return static_cast<gid_t>(-1);
  const group* found = getgrnam(name.c_str());
  if (found != nullptr) return found->gr_gid;
  return ParamInvalid(absl::StrCat("socket.group: \"", name, "\" is no group of this host"),
                      {.object = "socket.group", .option = "socket.group"});
}

std::vector<std::string> MissingFromHost(const Config& config, const std::string& socket_path) {
  std::vector<std::string> lines;
  const std::filesystem::path directory = std::filesystem::path(socket_path).parent_path();
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    lines.push_back(absl::StrCat("socket.path: there is no directory ", directory.string()));
  }
  if (!config.tcp.congestion_control.empty()) {
    const absl::Status usable = TryCongestionControl(config.tcp.congestion_control);
    if (!usable.ok()) lines.push_back(absl::StrCat("tcp.congestion_control: ", usable.message()));
  }
  if (config.tcp.interfaces.empty() && config.node.data_address.empty()) return lines;
  const HostNetwork network = ReadNetwork();
  for (const std::string& name : config.tcp.interfaces) {
    if (network.interfaces.count(name) != 0) continue;
    lines.push_back(absl::StrCat("tcp.interfaces: this host has no interface \"", name,
                                 "\" (it has: ", absl::StrJoin(network.interfaces, ", "), ")"));
  }
  const std::string& address = config.node.data_address;
  if (address.empty()) return lines;
  const bool ipv6 = absl::StrContains(address, ':');
  const auto endpoint = ParseEndpoint(ipv6 ? absl::StrCat("[", address, "]") : address);
  // 127.0.0.2 and its like belong to every host, though no interface lists them.
  if (!endpoint.ok() || endpoint->loopback()) return lines;
  if (network.addresses.count(endpoint->WithPort(0).ToString()) == 0) {
    lines.push_back(absl::StrCat("node.data_address: ", address, " is no address of this host"));
  }
  return lines;
}

std::string UsableCongestionControl(const Config& config) {
  const std::string& name = config.tcp.congestion_control;
  return !name.empty() && TryCongestionControl(name).ok() ? name : "";
}

absl::Status CheckDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kMinDescriptors) {
    return absl::OkStatus();
  }
  return ResourceExhausted(
      absl::StrCat("RLIMIT_NOFILE (ulimit -n) is ", limit.rlim_cur, ": hixld needs ",
                   kMinDescriptors, " descriptors to start, and more for each client"),
      {.object = "RLIMIT_NOFILE", .allowed = absl::StrCat("from ", kMinDescriptors)});
}

}  // namespace hixld
