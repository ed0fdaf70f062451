#include "client/cpp/daemon_address.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/socket_path.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

std::string Absolute(const std::string& path) {
  char directory[PATH_MAX];
  if (path.front() == '/' || getcwd(directory, sizeof(directory)) == nullptr) return path;
  return absl::StrCat(directory, "/", path);
}

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

absl::Status EnsurePrivateDirectory(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoError(errno, absl::StrCat("create directory ", directory));
  }
  struct stat st;
  // Not through symbolic links: somebody else may have put one there.
  if (lstat(directory.c_str(), &st) != 0) {
    return ErrnoError(errno, absl::StrCat("stat ", directory));
  }
  if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return Failed(
      absl::StrCat(directory, " is not a directory that only user ", geteuid(), " can use"),
      {.object = absl::StrCat("directory ", directory),
       .option = "HIXLD_SOCKET, XDG_RUNTIME_DIR",
       .allowed = absl::StrCat("owner ", geteuid(), ", mode 0700")});
}

absl::StatusOr<DaemonAddress> FindDaemon() {
  DaemonAddress address;
  address.socket = Absolute(DefaultSocketPath());
  if (!IsSet("HIXLD_SOCKET") && absl::StartsWith(address.socket, "/tmp/")) {
    HIXLD_RETURN_IF_ERROR(
        EnsurePrivateDirectory(address.socket.substr(0, address.socket.rfind('/'))));
  }
  const char* const set = std::getenv("HIXLD_NO_AUTOSTART");
  const std::string forbidden = set == nullptr ? "" : set;
  if (!forbidden.empty() && forbidden != "0" && forbidden != "1") {
    return ParamInvalid(absl::StrCat("HIXLD_NO_AUTOSTART is \"", forbidden, "\""),
                        {.object = "HIXLD_NO_AUTOSTART",
                         .option = "HIXLD_NO_AUTOSTART",
                         .allowed = "0, 1 or empty"});
  }
  address.may_start = address.socket != kSystemSocketPath && forbidden != "1";
  return address;
}

}  // namespace hixld::client
