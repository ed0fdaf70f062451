// Engine ids and the network endpoints in them (contract 1.4).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hixld {

// An IP literal with an optional port. Host names are never accepted.
struct Endpoint {
  sockaddr_storage address = {};
  socklen_t address_len = 0;
  // 0 when absent, zero or negative: such an engine never listens.
  uint16_t port = 0;
  bool ipv6 = false;

  bool listens() const { return port > 0; }
  bool loopback() const;
  // "10.0.0.1:26000" or "[fe80::1%eth0]:26000"; without the port when it is 0.
  std::string ToString() const;
  const sockaddr* sockaddr_ptr() const { return reinterpret_cast<const sockaddr*>(&address); }
  // The same address with another port.
  Endpoint WithPort(uint16_t new_port) const;
};

// Accepts "a.b.c.d[:port]", "[v6]" and "[v6]:port", with a zone ("[fe80::1%eth0]:p"); a port of
// 0 or below means "client only". Everything else is PARAM_INVALID and names the value and the
// allowed forms.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text);

// The endpoint of a socket address, such as getpeername or accept gives.
Endpoint EndpointFromSockaddr(const sockaddr_storage& address, socklen_t length);

}  // namespace hixld
