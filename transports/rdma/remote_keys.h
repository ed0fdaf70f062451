// The initiator's memory of the keys that a target gave for one channel and one of its devices.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "proto/wire/rdma.pb.h"

namespace hixld::rdma {

class RemoteKeys {
 public:
  struct Key {
    uint64_t address = 0;  // where READ and WRITE find the byte that was asked for
    uint64_t usable = 0;   // bytes from there on that the same key covers
    uint32_t key = 0;
  };
  std::optional<Key> Find(uint64_t address) const {
    auto at = keys_.upper_bound(address);
    if (at == keys_.begin()) return std::nullopt;
    --at;
    const uint64_t within = address - at->first;
    if (within >= at->second.length) return std::nullopt;
    return Key{at->second.remote + within, at->second.length - within, at->second.key};
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
