// Bytes that one key covers, by the numbers under which they are asked for: offsets in local
// memory, addresses in the target's.
#pragma once

#include <cstdint>

namespace hixld::rdma {

struct KeyRange {
  uint64_t begin = 0;
  uint64_t length = 0;
  uint64_t address = 0;  // where the device finds the byte at `begin`
  uint32_t key = 0;

  bool Holds(uint64_t at) const { return at >= begin && at - begin < length; }
  // Both for an `at` that it holds.
  uint64_t AddressOf(uint64_t at) const { return address + (at - begin); }
  uint64_t BytesFrom(uint64_t at) const { return length - (at - begin); }
};

}  // namespace hixld::rdma
