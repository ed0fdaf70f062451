// Where the daemon is looked for.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace hixld::client {

constexpr char kSystemSocket[] = "/run/hixld/hixld.sock";

struct DaemonAddress {
  // Absolute path of the gRPC socket; the fd channel is at path + ".fd".
  std::string socket;
  // A private daemon may be started there.
  bool may_start = false;

  std::string fd_socket() const { return socket + ".fd"; }
};

struct SocketPathContext {
  std::function<std::optional<std::string>(const char* name)> getenv;
  // Whether a file exists.
  std::function<bool(const std::string& path)> exists;
  uid_t uid = 0;

  static SocketPathContext System();
};

// HIXLD_SOCKET, else the system service's socket if it exists, else the private daemon's socket
// in XDG_RUNTIME_DIR or /tmp/hixld-UID, which is created with mode 0700. A directory that is not
// ours alone is FAILED. HIXLD_NO_AUTOSTART=1 forbids starting a daemon.
absl::StatusOr<DaemonAddress> FindDaemon(const SocketPathContext& context);

}  // namespace hixld::client
