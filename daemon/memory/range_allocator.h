// Hands out ranges of [0, size): where the buffers of an arena lie.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace hixld {

// First fit by address, with neighbours joined again when they are freed. Not thread-safe.
class RangeAllocator {
 public:
  explicit RangeAllocator(uint64_t size);

  // The offset of `length` bytes (> 0) aligned to `alignment` (a power of two), or nothing.
  std::optional<uint64_t> Allocate(uint64_t length, uint64_t alignment);
  // Gives back exactly what Allocate returned.
  void Free(uint64_t offset, uint64_t length);

  uint64_t size() const { return size_; }
  uint64_t used() const { return used_; }
  bool empty() const { return used_ == 0; }

 private:
  const uint64_t size_;
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> free_;  // offset -> length; never two neighbours
};

}  // namespace hixld
