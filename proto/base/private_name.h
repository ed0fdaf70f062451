// A name that only its maker can open, for a socket that gets its mode before it gets its place.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hixld {

// Names a file inside a new 0700 directory beside `path`. What is made under that name is removed
// with this object, unless it was published.
class PrivateName {
 public:
  // PARAM_INVALID when something is at `path` that is no socket.
  static absl::StatusOr<PrivateName> Beside(const std::string& path);
  PrivateName(PrivateName&& other) noexcept;
  PrivateName& operator=(PrivateName&&) = delete;
  ~PrivateName();

  const std::string& name() const { return name_; }
  // Gives the file exactly `mode` and `group` (-1 leaves it), then renames it to `path`, replacing
  // a socket that is there: no moment has a wider mode.
  absl::Status Publish(mode_t mode, gid_t group) const;

 private:
  PrivateName(std::string path, std::string directory);

  std::string path_;
  std::string directory_;
  std::string name_;
};

}  // namespace hixld
