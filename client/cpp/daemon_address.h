// Which daemon this process uses, and whether it may start it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hixld::client {

struct DaemonAddress {
  // Absolute path of the gRPC socket.
  std::string socket;
  // A private daemon may be started there: it is not the system service's, and
  // HIXLD_NO_AUTOSTART=1 does not forbid it.
  bool may_start = false;
};

// The socket that proto/base/socket_path.h finds. A private daemon's directory below /tmp is
// created with mode 0700; one that is not ours alone is FAILED.
absl::StatusOr<DaemonAddress> FindDaemon();

// Makes `directory` if it is missing. FAILED unless it is a directory of this user with no rights
// for others.
absl::Status EnsurePrivateDirectory(const std::string& directory);

}  // namespace hixld::client
