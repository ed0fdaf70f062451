// Finds the range that holds another, among ranges that do not overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace hixld::client {

// Immutable. `Entry` has begin and end; the last byte is end - 1.
template <typename Entry>
class RangeTable {
 public:
  // By address, without overlap.
  explicit RangeTable(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  // The entry that holds [address, address + length) as a whole, length > 0; nullptr when there is
  // none. Ranges of one batch mostly lie in one entry, so `last`, the former answer, is tried
  // first.
  const Entry* Find(uint64_t address, uint64_t length, const Entry* last) const {
    if (last != nullptr && Holds(*last, address, length)) return last;
    const auto after =
        std::upper_bound(entries_.begin(), entries_.end(), address,
                         [](uint64_t at, const Entry& entry) { return at < entry.begin; });
    if (after == entries_.begin()) return nullptr;
    const Entry& entry = *std::prev(after);
    return Holds(entry, address, length) ? &entry : nullptr;
  }
  size_t size() const { return entries_.size(); }

 private:
  // Written so that no sum can overflow.
  static bool Holds(const Entry& entry, uint64_t address, uint64_t length) {
    return address >= entry.begin && address < entry.end && length <= entry.end - address;
  }

  const std::vector<Entry> entries_;
};

// Host memory that this process has registered.
struct LocalRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  // Mapped by this library, which keeps it so. Anything else the program may have unmapped, or
  // made unreadable, since it was registered.
  bool ours = false;
};
using LocalRanges = RangeTable<LocalRange>;

}  // namespace hixld::client
