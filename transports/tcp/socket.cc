#include "transports/tcp/socket.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

void SetInt(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

bool SetCongestionControl(int socket, const std::string& name) {
  return setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                    static_cast<socklen_t>(name.size())) == 0;
}

// Names that the kernel lists as "available" or "allowed".
std::string CongestionControls(const std::string& kind) {
  std::ifstream file(absl::StrCat("/proc/sys/net/ipv4/tcp_", kind, "_congestion_control"));
  std::string names;
  return std::getline(file, names) ? names : "unknown";
}

bool LinkLocal(const sockaddr* address) {
  if (address->sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// The first address of `interface` that can reach `peer`: same family, same kind of scope.
absl::StatusOr<Endpoint> InterfaceAddress(const std::string& interface, const Endpoint& peer) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoError(errno, "list the network interfaces");
  absl::Cleanup free_list = [list] { freeifaddrs(list); };
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || interface != entry->ifa_name) continue;
    if (entry->ifa_addr->sa_family != peer.address.ss_family) continue;
    if (LinkLocal(entry->ifa_addr) != LinkLocal(peer.sockaddr_ptr())) continue;
    sockaddr_storage address = {};
    memcpy(&address, entry->ifa_addr, peer.address_len);
    return EndpointFromSockaddr(address, peer.address_len).WithPort(0);
  }
  return Failed(
      absl::StrCat("interface ", interface, " has no address for lanes to ", peer.ToString()),
      {.object = absl::StrCat("interface ", interface)});
}

std::optional<Endpoint> EndOf(int socket, int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (get(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return std::nullopt;
  return EndpointFromSockaddr(address, length);
}

std::string AddressOf(int socket, int (*get)(int, sockaddr*, socklen_t*)) {
  const std::optional<Endpoint> end = EndOf(socket, get);
  return end.has_value() ? end->ToString() : "";
}

}  // namespace

absl::Status TryCongestionControl(const std::string& name) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() && errno == EAFNOSUPPORT)
    fd.reset(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket to try a congestion control");
  if (SetCongestionControl(fd.get(), name)) return absl::OkStatus();
  const bool refused = errno == EPERM;
  const std::string names = CongestionControls(refused ? "allowed" : "available");
  return ParamInvalid(
      absl::StrCat("congestion control \"", name, "\" ",
                   refused ? "is for processes with CAP_NET_ADMIN alone (all may choose: "
                           : "is not there (this host has: ",
                   names, "); lanes are as without it"),
      {.object = absl::StrCat("congestion control ", name)});
}

void SetLaneOptions(int socket, bool loopback, const TcpOptions& options) {
  const int flags = fcntl(socket, F_GETFL);
  fcntl(socket, F_SETFL, flags | O_NONBLOCK);
  SetInt(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  const int64_t stall_ms = std::max<int64_t>(1, options.stall_timeout_ns / kNanosPerMilli);
  const int stall_s = static_cast<int>(std::max<int64_t>(1, stall_ms / 1000));
  SetInt(socket, IPPROTO_TCP, TCP_KEEPIDLE, stall_s);
  SetInt(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, stall_s / 3));
  SetInt(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetInt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(stall_ms));
  // On loopback nothing is lost and nobody shares the way, so that pacing only costs time. Where
  // the choice is not allowed the lane works as well: the daemon has said so when it started.
  const bool chosen = !options.congestion_control.empty() &&
                      SetCongestionControl(socket, options.congestion_control);
  if (!chosen && loopback) SetCongestionControl(socket, "reno");
  if (options.socket_buffer_bytes > 0) {
    const int bytes = static_cast<int>(std::min<uint32_t>(options.socket_buffer_bytes, INT32_MAX));
    SetInt(socket, SOL_SOCKET, SO_SNDBUF, bytes);
    SetInt(socket, SOL_SOCKET, SO_RCVBUF, bytes);
  }
}

absl::StatusOr<UniqueFd> StartConnect(const Endpoint& peer, const std::string& interface,
                                      const TcpOptions& options) {
  UniqueFd fd(socket(peer.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoError(errno, absl::StrCat("socket for a lane to ", peer.ToString()));
  SetLaneOptions(fd.get(), peer.loopback(), options);
  if (!interface.empty()) {
    HIXLD_ASSIGN_OR_RETURN(const Endpoint local, InterfaceAddress(interface, peer));
    // The source address alone does not choose the way out: routes are looked up by destination.
    // Where the kernel does not allow this, policy routing by source address does the same.
    setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.c_str(),
               static_cast<socklen_t>(interface.size()));
    if (bind(fd.get(), local.sockaddr_ptr(), local.address_len) != 0) {
      return ErrnoError(errno, absl::StrCat("bind a lane to ", interface, " ", local.ToString()));
    }
  }
  if (connect(fd.get(), peer.sockaddr_ptr(), peer.address_len) != 0 && errno != EINPROGRESS) {
    return ErrnoError(errno, absl::StrCat("connect a lane to ", peer.ToString()));
  }
  return fd;
}

absl::Status SocketError(int socket, absl::string_view what) {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return ErrnoError(error != 0 ? error : ECONNRESET, what);
}

bool IsLoopback(int socket) {
  const std::optional<Endpoint> peer = EndOf(socket, getpeername);
  return peer.has_value() && peer->loopback();
}

std::string LocalAddress(int socket) { return AddressOf(socket, getsockname); }
std::string RemoteAddress(int socket) { return AddressOf(socket, getpeername); }

void CloseAbruptly(UniqueFd socket) {
  if (!socket.valid()) return;
  const linger abort = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
}

}  // namespace hixld
