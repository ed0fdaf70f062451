#include "daemon/telemetry/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>

#include "proto/base/fd.h"

namespace hixld {
namespace {

// Stands for systemd: receives what NOTIFY_SOCKET gets.
class FakeManager {
 public:
  FakeManager() : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    // Abstract, so that nothing is left behind.
    const std::string name = "@hixld-notify-test-" + std::to_string(getpid());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    REQUIRE(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~FakeManager() { unsetenv("NOTIFY_SOCKET"); }

  std::string Next() {
    char buffer[1024];
    const ssize_t bytes = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    return bytes < 0 ? "nothing" : std::string(buffer, static_cast<size_t>(bytes));
  }

 private:
  UniqueFd fd_;
};

TEST_CASE("the service manager hears of start, progress, status and stop") {
  FakeManager manager;
  NotifyReady("serving\non 2 workers");
  CHECK(manager.Next() == "READY=1\nSTATUS=serving on 2 workers");
  NotifyAlive();
  CHECK(manager.Next() == "WATCHDOG=1");
  NotifyStatus("3 sessions");
  CHECK(manager.Next() == "STATUS=3 sessions");
  NotifyStopping();
  CHECK(manager.Next() == "STOPPING=1");
  CHECK(manager.Next() == "nothing");
}

TEST_CASE("without a service manager nothing happens") {
  unsetenv("NOTIFY_SOCKET");
  NotifyReady("serving");
  NotifyAlive();
  NotifyStopping();
  CHECK(WatchdogIntervalNanos() == 0);
}

TEST_CASE("the watchdog is fed twice as often as it asks, and only by its own process") {
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  CHECK(WatchdogIntervalNanos() == 15'000'000'000);
  setenv("WATCHDOG_PID", "1", 1);
  CHECK(WatchdogIntervalNanos() == 0);
  unsetenv("WATCHDOG_USEC");
  unsetenv("WATCHDOG_PID");
}

}  // namespace
}  // namespace hixld
