#include "proto/base/endpoint.h"

#include <catch2/catch.hpp>
#include <string>

#include "proto/base/status.h"

namespace hixld {
namespace {

struct Good {
  const char* text;
  const char* printed;
  uint16_t port;
  bool ipv6;
  bool loopback;
};

struct Bad {
  const char* text;
  const char* reason;
};

}  // namespace

TEST_CASE("every legal form of an engine id parses") {
  const Good cases[] = {
      {"10.0.0.1:26000", "10.0.0.1:26000", 26000, false, false},
      {"127.0.0.1", "127.0.0.1", 0, false, true},
      {"127.1.2.3:1", "127.1.2.3:1", 1, false, true},
      {"10.0.0.1:0", "10.0.0.1", 0, false, false},
      {"10.0.0.1:-5", "10.0.0.1", 0, false, false},
      {"[::1]:65535", "[::1]:65535", 65535, true, true},
      {"[fe80::1]", "[fe80::1]", 0, true, false},
      {"[::ffff:127.0.0.1]:9", "[::ffff:127.0.0.1]:9", 9, true, true},
      {"[fe80::1%lo]:7", "[fe80::1%lo]:7", 7, true, false},
  };
  for (const Good& c : cases) {
    CAPTURE(c.text);
    const auto endpoint = ParseEndpoint(c.text);
    REQUIRE(endpoint.ok());
    CHECK(endpoint->port == c.port);
    CHECK(endpoint->listens() == (c.port > 0));
    CHECK(endpoint->ipv6 == c.ipv6);
    CHECK(endpoint->loopback() == c.loopback);
    CHECK(endpoint->ToString() == c.printed);
  }
}

TEST_CASE("malformed engine ids are refused with the value, the reason and the allowed forms") {
  const Bad cases[] = {
      {"", "empty"},
      {"ad.0.0.1:26200", "not an IPv4 literal"},
      {"localhost:1", "not an IPv4 literal"},
      {"1.2.3:1", "not an IPv4 literal"},
      {"1.2.3.4:", "port"},
      {"1.2.3.4:65536", "port"},
      {"1.2.3.4:12x", "port"},
      {"1.2.3.4:12 ", "port"},
      {"1.2.3.4:+12", "port"},
      {"1.2.3.4:-", "port"},
      {"1.2.3.4:1:2", "port"},
      {"::1:9", "port"},
      {"[::1", "]"},
      {"[::1]9", ":port"},
      {"[::g]:9", "not an IPv6 literal"},
      {"[1.2.3.4]:9", "not an IPv6 literal"},
      {"[fe80::1%nosuchif0]:9", "no interface"},
      {" 1.2.3.4:5", "not an IPv4 literal"},
  };
  for (const Bad& c : cases) {
    CAPTURE(c.text);
    const auto status = ParseEndpoint(c.text).status();
    CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
    const std::string message(status.message());
    CHECK(message.find(c.reason) != std::string::npos);
    CHECK(message.find("allowed: ") != std::string::npos);
    CHECK(message.find(c.text) != std::string::npos);
  }
}

TEST_CASE("the same address with another port") {
  const auto endpoint = ParseEndpoint("[::1]:5");
  REQUIRE(endpoint.ok());
  CHECK(endpoint->WithPort(7).ToString() == "[::1]:7");
  CHECK(endpoint->ToString() == "[::1]:5");
  CHECK(EndpointFromSockaddr(endpoint->address, endpoint->address_len).port == 5);
}

}  // namespace hixld
