#include "daemon/telemetry/service_manager.h"

#include <systemd/sd-daemon.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace hixld {
namespace {

// A missing or deaf service manager must not hurt the daemon, so results are not looked at.
void Notify(const std::string& state) { sd_notify(/*unset_environment=*/0, state.c_str()); }

// A line of its own: a line break would start another assignment.
std::string StatusLine(absl::string_view status) {
  std::string line = absl::StrCat("STATUS=", status);
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  return line;
}

}  // namespace

void NotifyReady(absl::string_view status) {
  Notify(absl::StrCat("READY=1\n", StatusLine(status)));
}

void NotifyStopping() { Notify("STOPPING=1"); }

void NotifyStatus(absl::string_view status) { Notify(StatusLine(status)); }

int64_t WatchdogIntervalNanos() {
  constexpr int64_t kNanosPerMicro = 1000;
  uint64_t limit_us = 0;
  if (sd_watchdog_enabled(/*unset_environment=*/0, &limit_us) <= 0) return 0;
  return static_cast<int64_t>(limit_us) * kNanosPerMicro / 2;
}

void NotifyAlive() { Notify("WATCHDOG=1"); }

}  // namespace hixld
