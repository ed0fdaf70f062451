// Memory of this process that a daemon can map, handed out without any engine or daemon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/memory_table.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"

namespace hixld::client {

// Thread-safe. One per process: engines look up in it what a range that they register is made of.
class SharedMemory {
 public:
  // Never destroyed: memory may be freed while the process exits.
  static SharedMemory& Instance();

  // Page-aligned zeroed memory of at least `length` (> 0) bytes. RESOURCE_EXHAUSTED: none left.
  absl::StatusOr<uint64_t> Allocate(size_t length);
  // PARAM_INVALID: not the start of an allocation. Registrations of it stay usable for peers.
  absl::Status Free(uint64_t address);
  bool Contains(uint64_t address) const;
  // What backs a range that lies in one allocation as a whole.
  std::optional<MemoryBacking> Find(const MemoryRange& range) const;

 private:
  struct Entry {
    Mapping mapping;
    std::shared_ptr<UniqueFd> memfd;
  };
  const Entry* EntryOf(uint64_t address, uint64_t* offset) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
