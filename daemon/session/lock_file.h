// One daemon per socket: a lock that dies with its process.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/fd.h"

namespace hixld {

// A file that is locked with flock for as long as this object lives, and removed with it. After a
// kill -9 the file stays and the lock does not, so the next daemon starts.
class LockFile {
 public:
  // kAlreadyExists, "already running, pid N", when another process holds the lock.
  static absl::StatusOr<LockFile> Acquire(const std::string& path);

  LockFile(LockFile&&) = default;
  LockFile& operator=(LockFile&&) = delete;
  ~LockFile();

 private:
  LockFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  UniqueFd fd_;
};

}  // namespace hixld
