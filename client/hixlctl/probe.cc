#include "client/hixlctl/probe.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/fd.h"

namespace hixld::hixlctl {
namespace {

absl::Status NoDaemon(const std::string& path, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat(
      "no daemon at ", path, " (", why, "); start it (systemctl start hixld, or hixld --socket ",
      path, "), or name another socket with --socket or HIXLD_SOCKET"));
}

absl::Status NoAccess(const std::string& path, int error_number) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "no access to ", path, ": ", strerrordesc_np(error_number), " on the way to the socket"));
  }
  const group* const owner = getgrgid(status.st_gid);
  return absl::PermissionDeniedError(
      absl::StrFormat("no access to %s: %s; it has mode %04o and group %s: join that group, or ask "
                      "for socket.group "
                      "or socket.mode to be changed",
                      path, strerrordesc_np(error_number), status.st_mode & 07777,
                      owner == nullptr ? absl::StrCat(status.st_gid) : owner->gr_name));
}

absl::Status ConnectError(const std::string& path, int error_number) {
  struct stat status;
  switch (error_number) {
    case EACCES:
    case EPERM:
      return NoAccess(path, error_number);
    case EAGAIN:
    case ETIMEDOUT:
      return absl::DeadlineExceededError(
          absl::StrCat("the daemon at ", path, " does not accept connections; it hangs"));
    case ECONNREFUSED:
      if (stat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
        return NoDaemon(path, "not a socket");
      }
      return NoDaemon(path, "a socket is left, but nobody listens");
    default:
      return NoDaemon(path, strerrordesc_np(error_number));
  }
}

}  // namespace

absl::Status ProbeDaemon(const std::string& path, std::chrono::milliseconds timeout) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path \"", path, "\" has ", path.size(),
                                                   " bytes; allowed: 1..",
                                                   sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Bounds how long connect waits while a hanging daemon's backlog is full.
  const timeval limit = {.tv_sec = timeout.count() / 1000,
                         .tv_usec = (timeout.count() % 1000) * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ConnectError(path, errno);
  }
  return absl::OkStatus();
}

}  // namespace hixld::hixlctl
