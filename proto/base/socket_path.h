// Where daemon and clients of one node meet: the same answer for the daemon, the client library
// and the tools.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hixld {

// The system service's socket.
constexpr char kSystemSocketPath[] = "/run/hixld/hixld.sock";

// The socket of this user's private daemon: $XDG_RUNTIME_DIR/hixld.sock, or
// /tmp/hixld-UID/hixld.sock where that variable names no directory.
std::string PrivateSocketPath();

// Which daemon a client means: $HIXLD_SOCKET if set, else the system service's socket if it
// exists, else the private daemon's.
std::string DefaultSocketPath();

// The fd channel's socket and the lock file that belong to a gRPC socket.
std::string FdSocketPath(absl::string_view socket_path);
std::string LockFilePath(absl::string_view socket_path);

// Whether a daemon may publish a socket at `path`: nothing is there, or a socket, which may go when
// nobody serves it. PARAM_INVALID otherwise: the file is somebody's.
absl::Status CheckSocketPlace(const std::string& path);

// How a daemon begins to say that another one holds the lock file; by these words a client that
// started it knows to wait for the other.
constexpr char kAlreadyRunning[] = "already running";

}  // namespace hixld
