// Memfds of other processes that this one copies from and to by itself, each mapped once.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"

namespace hixld::client {

// Thread-safe. Knows the mappings; those who use them own them.
class PeerFiles {
 public:
  // The first `size` bytes of the file, mapped as a whole, and not inherited by forked children.
  // The descriptor stays the caller's. FAILED: the file is shorter.
  absl::StatusOr<std::shared_ptr<const Mapping>> Map(int fd, uint64_t size);

 private:
  Mutex mutex_;
  // By device and inode, which a file that is mapped keeps to itself.
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<const Mapping>> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
