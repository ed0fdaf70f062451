// What an engine has registered, on the client's side: handles, the rules of contract 1.6, and
// what is needed to register everything again with a new daemon.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/arena.h"
#include "proto/base/fd.h"

namespace hixld::client {

enum class MemoryKind { kDevice, kHost };

struct MemoryRange {
  uint64_t address = 0;
  uint64_t length = 0;
  MemoryKind kind = MemoryKind::kHost;

  bool operator==(const MemoryRange& other) const {
    return address == other.address && length == other.length && kind == other.kind;
  }
};

// What backs a range. Neither: plain process memory.
struct MemoryBacking {
  // A memfd that the program passed in (our copy of the descriptor).
  std::shared_ptr<UniqueFd> memfd;
  // A buffer of the daemon's pool: its id, the number of the session that it belongs to (0 = no
  // buffer), and the arena that it lies in where the host can map it.
  uint64_t session = 0;
  uint64_t buffer_id = 0;
  std::shared_ptr<Arena> arena;
  uint64_t buffer_offset = 0;  // of the range in the buffer
  // Offset of the range in the memfd, or in the arena.
  uint64_t file_offset = 0;
};

struct Registration {
  MemoryRange range;
  MemoryBacking backing;
  uint64_t region_id = 0;  // the daemon's, of the session that is current; 0 = refused by it
  bool leaving = false;    // is being deregistered
};

struct UsableRange {
  MemoryRange range;
  bool pool = false;  // a buffer of the daemon's pool
};

// Not thread-safe: its owner locks.
class MemoryTable {
 public:
  // PARAM_INVALID in the contract's order: address 0, length 0, overflow, partial overlap with a
  // registration of the same kind.
  absl::Status Check(const MemoryRange& range) const;
  // The handle of exactly this range; 0 = none.
  uint64_t Find(const MemoryRange& range) const;
  // Returns a new handle, never 0 and never used before in this process.
  uint64_t Add(Registration registration);
  Registration* Get(uint64_t handle);
  void Remove(uint64_t handle);

  // Host ranges that the daemon has and keeps, by address; without those that device ranges
  // overlap, which a look-up would find first.
  std::vector<UsableRange> UsableHostRanges() const;

  // Everything, in order of registration. The registrations may be changed, not their ranges.
  std::map<uint64_t, Registration>& registrations() { return registrations_; }

 private:
  using Index = std::map<uint64_t, uint64_t>;  // start address -> handle
  const Index& IndexOf(MemoryKind kind) const {
    return kind == MemoryKind::kDevice ? device_ : host_;
  }

  std::map<uint64_t, Registration> registrations_;
  Index device_;
  Index host_;
};

}  // namespace hixld::client
