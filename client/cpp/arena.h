// A pool arena of the daemon as this process sees it, and copies between it and plain memory.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/base/fd.h"

namespace hixld::client {

// Owns the descriptor and one mapping of the whole arena. Immutable, so thread-safe.
class Arena {
 public:
  static absl::StatusOr<std::shared_ptr<Arena>> Map(UniqueFd fd, uint64_t size);

  int fd() const { return fd_.get(); }
  uint64_t size() const { return mapping_.size(); }
  std::byte* data() const { return mapping_.data(); }

  // Copy `length` bytes between plain memory of this process at `address` and the arena. A bad
  // address is an error number such as EFAULT, never a signal; 0 = every byte was copied.
  int CopyFromMemory(uint64_t address, uint64_t arena_offset, uint64_t length) const;
  int CopyToMemory(uint64_t address, uint64_t arena_offset, uint64_t length) const;

 private:
  Arena(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  bool Contains(uint64_t offset, uint64_t length) const {
    return offset <= size() && length <= size() - offset;
  }

  const UniqueFd fd_;
  const Mapping mapping_;
};

}  // namespace hixld::client
