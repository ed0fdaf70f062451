// The initiator's memory of the keys that a target gave for one channel and one of its devices.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "proto/wire/rdma.pb.h"
#include "transports/rdma/key_range.h"

namespace hixld::rdma {

class RemoteKeys {
 public:
  // The key that covers the byte.
  std::optional<KeyRange> Find(uint64_t address) const {
    auto at = keys_.upper_bound(address);
    if (at == keys_.begin()) return std::nullopt;
    --at;
    const KeyRange range{at->first, at->second.length, at->second.remote, at->second.key};
    return range.Holds(address) ? std::make_optional(range) : std::nullopt;
  }

  // A key that covers the same bytes replaces what was there. A range that overflows is refused:
  // the peer lies.
  absl::Status Add(const hixl::wire::v1::RdmaKey& key);
  void Clear() { keys_.clear(); }
  size_t size() const { return keys_.size(); }

 private:
  struct Entry {
    uint64_t length = 0;
    uint64_t remote = 0;
    uint32_t key = 0;
  };
  std::map<uint64_t, Entry> keys_;
};

}  // namespace hixld::rdma
