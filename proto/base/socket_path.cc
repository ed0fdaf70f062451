#include "proto/base/socket_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

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

absl::Status CheckSocketPlace(const std::string& path) {
  struct stat there;
  if (lstat(path.c_str(), &there) != 0 || S_ISSOCK(there.st_mode)) return absl::OkStatus();
  return ParamInvalid(absl::StrCat(path, " exists and is no socket; it is left as it is"),
                      {.object = path, .allowed = "a path that is free, or a socket's"});
}

std::string FdSocketPath(absl::string_view socket_path) { return absl::StrCat(socket_path, ".fd"); }

std::string LockFilePath(absl::string_view socket_path) {
  return absl::StrCat(socket_path, ".lock");
}

}  // namespace hixld
