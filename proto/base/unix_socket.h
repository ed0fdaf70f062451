// Unix sockets with a name in the file system.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/fd.h"

namespace hixld {

// PARAM_INVALID for an empty path and one that is too long.
absl::StatusOr<sockaddr_un> UnixAddress(absl::string_view path);

// A listening, non-blocking socket of `type` (SOCK_STREAM, SOCK_SEQPACKET) at `path`, with exactly
// `mode` and `group` (-1 leaves it). Replaces a socket that is there, and only a socket.
absl::StatusOr<UniqueFd> ListenUnixSocket(const std::string& path, int type, mode_t mode,
                                          gid_t group);

}  // namespace hixld
