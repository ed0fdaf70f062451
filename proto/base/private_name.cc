#include "proto/base/private_name.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/socket_path.h"
#include "proto/base/status.h"

namespace hixld {

PrivateName::PrivateName(std::string path, std::string directory)
    : path_(std::move(path)), directory_(std::move(directory)), name_(directory_ + "/s") {}

PrivateName::PrivateName(PrivateName&& other) noexcept
    : path_(std::move(other.path_)),
      directory_(std::exchange(other.directory_, {})),
      name_(std::move(other.name_)) {}

PrivateName::~PrivateName() {
  if (directory_.empty()) return;
  unlink(name_.c_str());
  rmdir(directory_.c_str());
}

absl::StatusOr<PrivateName> PrivateName::Beside(const std::string& path) {
  HIXLD_RETURN_IF_ERROR(CheckSocketPlace(path));
  std::string directory = absl::StrCat(path, ".XXXXXX");
  if (mkdtemp(directory.data()) == nullptr) {
    return ErrnoError(errno, absl::StrCat("create a directory beside ", path));
  }
  return PrivateName(path, std::move(directory));
}

absl::Status PrivateName::Publish(mode_t mode, gid_t group) const {
  if (group != static_cast<gid_t>(-1) && chown(name_.c_str(), static_cast<uid_t>(-1), group) != 0) {
    return ErrnoError(errno, absl::StrCat("give ", path_, " to group ", group), {.object = path_});
  }
  if (chmod(name_.c_str(), mode) != 0) return ErrnoError(errno, absl::StrCat("chmod ", path_));
  HIXLD_RETURN_IF_ERROR(CheckSocketPlace(path_));
  if (rename(name_.c_str(), path_.c_str()) != 0) {
    return ErrnoError(errno, absl::StrCat("rename to ", path_));
  }
  return absl::OkStatus();
}

}  // namespace hixld
