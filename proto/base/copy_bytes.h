// The copy itself.
#pragma once

#include <cstddef>

namespace hixld {

// Copies like memmove. With `streaming` the target's cache lines are written past the cache where
// the machine can do so: faster when more is copied than the cache holds, since the old contents
// of the target need not be read first.
void CopyBytes(std::byte* target, const std::byte* source, size_t length, bool streaming);

// Asks for the first bytes of the next block while the current one is copied.
void PrefetchBlock(const std::byte* target, const std::byte* source, size_t length);

}  // namespace hixld
