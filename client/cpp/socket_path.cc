#include "client/cpp/socket_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

std::string Absolute(const std::string& path) {
  if (!path.empty() && path.front() == '/') return path;
  char directory[PATH_MAX];
  if (getcwd(directory, sizeof(directory)) == nullptr) return path;
  return absl::StrCat(directory, "/", path);
}

// The directory of the private socket where there is no runtime directory: ours, mode 0700.
absl::StatusOr<std::string> PrivateDirectory(uid_t uid) {
  const std::string directory = absl::StrCat("/tmp/hixld-", uid);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoError(errno, absl::StrCat("create directory ", directory));
  }
  struct stat st;
  // Not through symbolic links: somebody else may have put one there.
  if (lstat(directory.c_str(), &st) != 0) return ErrnoError(errno, absl::StrCat("stat ", directory));
  if (!S_ISDIR(st.st_mode) || st.st_uid != uid || (st.st_mode & 077) != 0) {
    return Failed(absl::StrCat(directory, " is not a directory that only user ", uid, " can use"),
                  {.object = absl::StrCat("directory ", directory),
                   .option = "HIXLD_SOCKET, XDG_RUNTIME_DIR",
                   .allowed = absl::StrCat("owner ", uid, ", mode 0700")});
  }
  return directory;
}

}  // namespace

SocketPathContext SocketPathContext::System() {
  return {.getenv = [](const char* name) -> std::optional<std::string> {
            const char* value = std::getenv(name);
            return value == nullptr ? std::nullopt : std::optional<std::string>(value);
          },
          .exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; },
          .uid = geteuid()};
}

absl::StatusOr<DaemonAddress> FindDaemon(const SocketPathContext& context) {
  const bool may_start = context.getenv("HIXLD_NO_AUTOSTART").value_or("") != "1";
  const std::string given = context.getenv("HIXLD_SOCKET").value_or("");
  if (!given.empty()) return DaemonAddress{.socket = Absolute(given), .may_start = may_start};
  if (context.exists(kSystemSocket)) {
    return DaemonAddress{.socket = kSystemSocket, .may_start = false};
  }
  std::string directory = context.getenv("XDG_RUNTIME_DIR").value_or("");
  if (directory.empty() || !context.exists(directory)) {
    HIXLD_ASSIGN_OR_RETURN(directory, PrivateDirectory(context.uid));
  }
  return DaemonAddress{.socket = Absolute(absl::StrCat(directory, "/hixld.sock")),
                       .may_start = may_start};
}

}  // namespace hixld::client
