// Memfds of other processes that this one copies from and to by itself, each mapped once.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/process.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"

namespace hixld::client {

// A file, and its first bytes mapped as a whole. Forked children inherit neither.
class PeerFile {
 public:
  PeerFile(UniqueFd fd, Mapping mapping)
      : fd_(std::move(fd)), close_on_fork_(fd_.get()), mapping_(std::move(mapping)) {}

  int fd() const { return fd_.get(); }
  std::byte* data() const { return mapping_.data(); }
  uint64_t size() const { return mapping_.size(); }

 private:
  const UniqueFd fd_;
  const CloseOnFork close_on_fork_;
  const Mapping mapping_;
};

// Thread-safe. Knows the files; those who use them own them.
class PeerFiles {
 public:
  // The first `size` bytes of the file. FAILED: it is shorter.
  absl::StatusOr<std::shared_ptr<const PeerFile>> Map(UniqueFd fd, uint64_t size);

 private:
  Mutex mutex_;
  // By device and inode, which a file that is mapped keeps to itself.
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<const PeerFile>> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
