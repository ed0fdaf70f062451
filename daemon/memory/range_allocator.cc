#include "daemon/memory/range_allocator.h"

#include <iterator>

namespace hixld {

RangeAllocator::RangeAllocator(uint64_t size) : size_(size) {
  if (size > 0) free_.emplace(0, size);
}

std::optional<uint64_t> RangeAllocator::Allocate(uint64_t length, uint64_t alignment) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [start, free_length] = *it;
    const uint64_t padding = (alignment - (start & (alignment - 1))) & (alignment - 1);
    if (padding > free_length || free_length - padding < length) continue;
    const uint64_t offset = start + padding;
    const uint64_t rest = free_length - padding - length;
    if (padding > 0) {
      it->second = padding;
    } else {
      free_.erase(it);
    }
    if (rest > 0) free_.emplace(offset + length, rest);
    used_ += length;
    return offset;
  }
  return std::nullopt;
}

void RangeAllocator::Free(uint64_t offset, uint64_t length) {
  used_ -= length;
  const auto after = free_.lower_bound(offset);
  uint64_t merged = length;
  if (after != free_.end() && after->first == offset + length) merged += after->second;
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += merged;
      if (merged != length) free_.erase(after);
      return;
    }
  }
  if (merged != length) free_.erase(after);
  free_.emplace(offset, merged);
}

}  // namespace hixld
