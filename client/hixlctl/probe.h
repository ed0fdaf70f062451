// Finds out why a daemon cannot be reached, which gRPC does not tell.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"

namespace hixld::hixlctl {

// Connects to the unix socket at `path` and closes the connection. UNAVAILABLE: no daemon;
// PERMISSION_DENIED: not for this user; DEADLINE_EXCEEDED: it does not accept; INVALID_ARGUMENT: no
// usable path. Messages are one line that names the path and what to do.
absl::Status ProbeDaemon(const std::string& path, std::chrono::milliseconds timeout);

}  // namespace hixld::hixlctl
