#include "proto/base/socket_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace hixld {
namespace {

bool IsSocket(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISSOCK(status.st_mode);
}

bool IsDirectory(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

std::string PrivateSocketPath() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && IsDirectory(runtime)) return absl::StrCat(runtime, "/hixld.sock");
  return absl::StrCat("/tmp/hixld-", geteuid(), "/hixld.sock");
}

std::string DefaultSocketPath() {
  const char* const named = std::getenv("HIXLD_SOCKET");
  if (named != nullptr && named[0] != '\0') return named;
  return IsSocket(kSystemSocketPath) ? kSystemSocketPath : PrivateSocketPath();
}

std::string FdSocketPath(absl::string_view socket_path) { return absl::StrCat(socket_path, ".fd"); }

std::string LockFilePath(absl::string_view socket_path) {
  return absl::StrCat(socket_path, ".lock");
}

}  // namespace hixld
