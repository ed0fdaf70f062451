// Starting this user's private daemon.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hixld::client {

// The hixld to start: $HIXLD_DAEMON, else ../bin/hixld beside this library, else hixld beside
// the program, else hixld in PATH.
// FAILED names the places that were looked at.
absl::StatusOr<std::string> FindDaemonBinary();

// Starts `binary --private --socket SOCKET --ready-fd N` in a session of its own, with stdio in
// SOCKET.log and no descriptor of ours, and returns once it serves. FAILED carries what it said
// when it did not, ALREADY_EXISTS when another has the socket's lock. `deadline` is in
// MonotonicNanos.
absl::Status StartDaemon(const std::string& binary, const std::string& socket, int64_t deadline);

}  // namespace hixld::client
