// Tells systemd how the daemon is (sd_notify(3)). Without a service manager every call does
// nothing, so callers need not ask.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace hixld {

// The daemon serves; `status` is one line for `systemctl status`.
void NotifyReady(absl::string_view status);
// The daemon has begun to stop.
void NotifyStopping();
void NotifyStatus(absl::string_view status);

// How often NotifyAlive is due: half of what the watchdog allows, in nanoseconds; 0 without one.
int64_t WatchdogIntervalNanos();
// The daemon makes progress. To be called only by something that a hang would stop.
void NotifyAlive();

}  // namespace hixld
