#include "proto/base/endpoint.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

constexpr char kAllowed[] = "a.b.c.d, a.b.c.d:port, [v6] or [v6]:port with port -2147483648..65535";

absl::Status BadEndpoint(absl::string_view text, absl::string_view reason) {
  return ParamInvalid(
      absl::StrCat("engine id \"", text, "\" is malformed: ", reason, "; allowed: ", kAllowed),
      {.object = absl::StrCat("engine ", text), .allowed = kAllowed});
}

// A port of 0 or below is legal and means that the engine only acts as a client.
absl::Status ParsePort(absl::string_view text, absl::string_view port, uint16_t* out) {
  int32_t value = 0;
  // SimpleAtoi alone takes white space and "+" as well: one port would have many names.
  const bool digits = port.find_first_not_of("0123456789", port.substr(0, 1) == "-" ? 1 : 0) ==
                      absl::string_view::npos;
  if (!digits || !absl::SimpleAtoi(port, &value) || value > 65535) {
    return BadEndpoint(text, absl::StrCat("port \"", port, "\" is not a number up to 65535"));
  }
  *out = value > 0 ? static_cast<uint16_t>(value) : 0;
  return absl::OkStatus();
}

absl::Status ParseV6(absl::string_view text, absl::string_view host, Endpoint* out) {
  auto* sin6 = reinterpret_cast<sockaddr_in6*>(&out->address);
  const size_t percent = host.find('%');
  const std::string ip(host.substr(0, percent));
  if (inet_pton(AF_INET6, ip.c_str(), &sin6->sin6_addr) != 1) {
    return BadEndpoint(text, absl::StrCat("\"", ip, "\" is not an IPv6 literal"));
  }
  if (percent != absl::string_view::npos) {
    const std::string zone(host.substr(percent + 1));
    uint32_t index = if_nametoindex(zone.c_str());
    if (index == 0 && !absl::SimpleAtoi(zone, &index)) {
      return BadEndpoint(text, absl::StrCat("zone \"", zone, "\" is no interface of this host"));
    }
    sin6->sin6_scope_id = index;
  }
  sin6->sin6_family = AF_INET6;
  sin6->sin6_port = htons(out->port);
  out->address_len = sizeof(sockaddr_in6);
  out->ipv6 = true;
  return absl::OkStatus();
}

absl::Status ParseV4(absl::string_view text, absl::string_view host, Endpoint* out) {
  auto* sin = reinterpret_cast<sockaddr_in*>(&out->address);
  const std::string ip(host);
  if (inet_pton(AF_INET, ip.c_str(), &sin->sin_addr) != 1) {
    return BadEndpoint(text, absl::StrCat("\"", ip, "\" is not an IPv4 literal"));
  }
  sin->sin_family = AF_INET;
  sin->sin_port = htons(out->port);
  out->address_len = sizeof(sockaddr_in);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text) {
  Endpoint endpoint;
  if (text.empty()) return BadEndpoint(text, "it is empty");
  if (text.front() == '[') {
    const size_t close = text.find(']');
    if (close == absl::string_view::npos) return BadEndpoint(text, "\"]\" is missing");
    const absl::string_view rest = text.substr(close + 1);
    if (!rest.empty()) {
      if (rest.front() != ':') return BadEndpoint(text, "\":port\" must follow \"]\"");
      HIXLD_RETURN_IF_ERROR(ParsePort(text, rest.substr(1), &endpoint.port));
    }
    HIXLD_RETURN_IF_ERROR(ParseV6(text, text.substr(1, close - 1), &endpoint));
    return endpoint;
  }
  const size_t colon = text.find(':');
  if (colon != absl::string_view::npos) {
    HIXLD_RETURN_IF_ERROR(ParsePort(text, text.substr(colon + 1), &endpoint.port));
  }
  HIXLD_RETURN_IF_ERROR(ParseV4(text, text.substr(0, colon), &endpoint));
  return endpoint;
}

bool Endpoint::loopback() const {
  if (ipv6) {
    const auto* sin6 = reinterpret_cast<const sockaddr_in6*>(&address);
    if (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr)) return sin6->sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr);
  }
  const auto* sin = reinterpret_cast<const sockaddr_in*>(&address);
  return (ntohl(sin->sin_addr.s_addr) >> 24) == 127;
}

std::string Endpoint::ToString() const {
  char ip[INET6_ADDRSTRLEN] = {};
  std::string host;
  if (ipv6) {
    const auto* sin6 = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &sin6->sin6_addr, ip, sizeof(ip));
    host = absl::StrCat("[", ip);
    if (sin6->sin6_scope_id != 0) {
      char zone[IF_NAMESIZE] = {};
      if (if_indextoname(sin6->sin6_scope_id, zone) != nullptr) {
        absl::StrAppend(&host, "%", zone);
      } else {
        absl::StrAppend(&host, "%", sin6->sin6_scope_id);
      }
    }
    host += "]";
  } else {
    const auto* sin = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &sin->sin_addr, ip, sizeof(ip));
    host = ip;
  }
  return port > 0 ? absl::StrCat(host, ":", port) : host;
}

Endpoint Endpoint::WithPort(uint16_t new_port) const {
  Endpoint copy = *this;
  copy.port = new_port;
  if (ipv6) {
    reinterpret_cast<sockaddr_in6*>(&copy.address)->sin6_port = htons(new_port);
  } else {
    reinterpret_cast<sockaddr_in*>(&copy.address)->sin_port = htons(new_port);
  }
  return copy;
}

Endpoint EndpointFromSockaddr(const sockaddr_storage& address, socklen_t length) {
  Endpoint endpoint;
  endpoint.address = address;
  endpoint.address_len = length;
  endpoint.ipv6 = address.ss_family == AF_INET6;
  endpoint.port = ntohs(endpoint.ipv6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                      : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  return endpoint;
}

}  // namespace hixld
