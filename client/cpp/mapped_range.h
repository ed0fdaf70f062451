// Whether an address means anything in this process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace hixld::client {

// True when every page of [begin, end) is mapped now; nothing is touched. Ranges may be registered
// that do not exist (contract 1.6): they are left to the daemon, for which they are an error.
inline bool IsMapped(uint64_t begin, uint64_t end) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t start = begin / page * page;
  // With MS_ASYNC this only walks the mappings, and tells of the first hole.
  return msync(reinterpret_cast<void*>(start), end - start, MS_ASYNC) == 0;
}

}  // namespace hixld::client
