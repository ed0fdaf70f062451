#include "transports/tcp/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>

#include "proto/base/status.h"

namespace hixld {
namespace {

using Catch::Matchers::Contains;

UniqueFd NewSocket() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(fd.valid());
  return fd;
}

std::string ControlOf(int socket) {
  char name[16] = {};
  socklen_t length = sizeof(name);
  REQUIRE(getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
  return name;
}

TEST_CASE("A lane on loopback does not pace; another one has the kernel's default") {
  const std::string usual = ControlOf(NewSocket().get());
  const UniqueFd near = NewSocket();
  SetLaneOptions(near.get(), /*loopback=*/true, {});
  CHECK(ControlOf(near.get()) == "reno");
  const UniqueFd far = NewSocket();
  SetLaneOptions(far.get(), /*loopback=*/false, {});
  CHECK(ControlOf(far.get()) == usual);
}

TEST_CASE("The configured congestion control goes before everything else") {
  const std::string usual = ControlOf(NewSocket().get());
  TcpOptions options;
  for (const std::string& name : {std::string("reno"), usual}) {
    // qemu-user passes on names of four letters only.
    if (name != "reno" && !TryCongestionControl(name).ok()) continue;
    options.congestion_control = name;
    for (const bool loopback : {false, true}) {
      const UniqueFd fd = NewSocket();
      SetLaneOptions(fd.get(), loopback, options);
      CHECK(ControlOf(fd.get()) == name);
    }
  }
}

TEST_CASE("One that is not there counts as none, and is told with the choice") {
  CHECK(TryCongestionControl("reno").ok());
  const absl::Status status = TryCongestionControl("nosuch");
  CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
  CHECK_THAT(std::string(status.message()), Contains("\"nosuch\"") && Contains("reno"));
  TcpOptions options;
  options.congestion_control = "nosuch";
  const UniqueFd far = NewSocket();
  const std::string before = ControlOf(far.get());
  SetLaneOptions(far.get(), /*loopback=*/false, options);
  CHECK(ControlOf(far.get()) == before);
  const UniqueFd near = NewSocket();
  SetLaneOptions(near.get(), /*loopback=*/true, options);
  CHECK(ControlOf(near.get()) == "reno");
}

}  // namespace
}  // namespace hixld
