// Registrations of this daemon's memory for its own READs and WRITEs, one cache per device.
//
// Memory is registered when a transfer first needs it, piece by piece, and stays registered until
// the MemoryAccess dies. Registering pins pages and may take long, so it runs on a thread of its
// own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "transports/loop/loop.h"
#include "transports/memory_access.h"
#include "transports/rdma/key_range.h"
#include "transports/rdma/registration.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma {

class LocalKeys : public std::enable_shared_from_this<LocalKeys> {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // `domain` and `registrar` must outlive the last use; call Clear before they go.
  LocalKeys(VerbsDomain* domain, std::shared_ptr<RegistrationCounters> counters, Loop* registrar,
            uint64_t piece_bytes);
  ~LocalKeys();

  // The key that covers the byte; it stays valid while the memory lives.
  std::optional<KeyRange> Find(const MemoryAccess& access, uint64_t offset) const;

  // Makes Find succeed for `offset`, or calls `done` with the reason why not. `pin` keeps the
  // memory alive meanwhile. `done` runs on the registrar's thread, or at once.
  void Register(MemoryAccess* access, uint64_t offset, std::shared_ptr<const void> pin, Done done);

  // Ends all registrations; nothing may be under way.
  void Clear();

 private:
  struct Piece {
    std::unique_ptr<VerbsRegion> region;  // null while it is being made
    uint64_t address = 0;
    uint64_t length = 0;
    std::vector<Done> waiters;
  };
  using Pieces = std::map<uint64_t, Piece>;  // by number of the piece
  class Tie;

  void Make(MemoryAccess* access, uint64_t index);
  void Forget(const MemoryAccess* access);

  VerbsDomain* const domain_;
  const std::shared_ptr<RegistrationCounters> counters_;
  Loop* const registrar_;
  const uint64_t piece_bytes_;
  mutable Mutex mutex_;
  std::unordered_map<const MemoryAccess*, Pieces> memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::rdma
