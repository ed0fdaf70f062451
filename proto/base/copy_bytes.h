// The copy itself.
#pragma once

#include <cstddef>
#include <vector>

namespace hixld {

// Copies like memmove. With `streaming` the target's cache lines are written past the cache where
// the machine can do so: faster when more is copied than the cache holds, since the old contents
// of the target need not be read first.
void CopyBytes(std::byte* target, const std::byte* source, size_t length, bool streaming);

// Asks for the first bytes of the next block while the current one is copied.
void PrefetchBlock(const std::byte* target, const std::byte* source, size_t length);

namespace copy_internal {

// Copies `length` bytes, whole cache lines, to a target that is aligned to the line, past the
// cache.
using StreamLines = void (*)(std::byte* target, const std::byte* source, size_t length);

// Those that this processor has; CopyBytes takes the last one.
std::vector<StreamLines> StreamWays();

}  // namespace copy_internal

}  // namespace hixld
