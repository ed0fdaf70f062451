// The client's end of the rings: submits batches and watches their slots.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "proto/ring/layout.h"

namespace hixld::ring {

// Thread-safe. The mapping outlives the daemon, so that slots can still be read after its death.
class Producer {
 public:
  // `memory` is the ring memfd's mapping, `wake` the daemon's eventfd. PARAM_INVALID when the
  // header does not describe the mapping.
  static absl::StatusOr<std::unique_ptr<Producer>> Attach(Mapping memory, UniqueFd wake);

  struct Request {
    uint64_t engine = 0;
    uint64_t channel = 0;
    Op op = Op::kRead;
    uint64_t timeout_ns = 0;
    // The daemon says when it has accepted the transfer: WaitVerdict.
    bool verdict = false;
    // Either descriptors, or tables with one list of pairs for all of them: table after table,
    // local_blocks[i] of the one side goes with remote_blocks[i] of the other.
    absl::Span<const Descriptor> descriptors;
    absl::Span<const BlockTables> tables;
    absl::Span<const uint32_t> local_blocks;
    absl::Span<const uint32_t> remote_blocks;
    // Also bounds the wait for room; kNoDeadline = wait for ever.
    int64_t room_deadline_ns = 0;
  };

  // Submits one batch (> 0 descriptors or pairs) and returns its slot, which stays the caller's
  // until Release. Waits for room when the ring, the arena or the slots are full: TIMEOUT when that
  // takes beyond `room_deadline_ns`, RESOURCE_EXHAUSTED when no slot is free. An error before the
  // first descriptor was published leaves nothing behind.
  absl::StatusOr<uint32_t> Submit(const Request& request);

  // How a slot stands: one load.
  SlotState State(uint32_t slot) const;

  struct Result {
    SlotState state = kFree;
    uint32_t code = 0;
    uint64_t bytes = 0;
    uint64_t transfer_id = 0;
    std::string text;
  };
  // Waits until the slot's state is terminal, spinning for `spin_ns` first. False when
  // `deadline_ns` came before or Abandon was called.
  bool Wait(uint32_t slot, int64_t spin_ns, int64_t deadline_ns);
  // The same until the transfer is accepted (kRunning), or its state terminal; for a request that
  // asked for the verdict.
  bool WaitVerdict(uint32_t slot, int64_t spin_ns, int64_t deadline_ns);
  struct Extents {
    std::vector<Extent> local;
    std::vector<Extent> remote;
  };
  // Registered memory that a request with a verdict touches, some of it. Empty when the transfer
  // has failed.
  Extents ReadExtents(uint32_t slot) const;
  // Differs when memory that was registered before is not so any more.
  uint32_t RegionsGone() const { return header_->regions_gone.load(std::memory_order_seq_cst); }
  // What a terminal slot holds.
  Result Read(uint32_t slot) const;
  // Gives the slot back; it must be terminal, or the daemon dead.
  void Release(uint32_t slot);
  // Nobody will look at the slot any more: it is given back when its transfer has ended.
  void Forget(uint32_t slot);

  // The daemon is gone: every wait ends and every slot that is not terminal becomes FAILED.
  // Returns those slots: exactly the transfers that are lost.
  std::vector<uint32_t> Abandon();

 private:
  Producer(Mapping memory, UniqueFd wake);
  // What goes into one entry: descriptors, or pairs of one table.
  struct Part {
    absl::Span<const Descriptor> descriptors;
    const BlockTables* tables = nullptr;
    absl::Span<const uint32_t> local_blocks;
    absl::Span<const uint32_t> remote_blocks;
    uint32_t count() const;
    uint32_t places() const;  // in the arena
  };
  class Cutter;

  // Waits until an entry and `descriptors` arena places are free.
  absl::Status WaitForRoom(uint32_t descriptors, int64_t deadline_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReclaimArena(uint32_t head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PushEntry(const Request& request, uint32_t slot, const Part& part,
                         int64_t room_deadline_ns, bool more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteArena(const Part& part, uint32_t start);
  void SweepForgotten() ABSL_EXCLUSIVE_LOCKS_REQUIRED(slots_mutex_);
  bool WaitUntil(uint32_t slot, SlotState least, int64_t spin_ns, int64_t deadline_ns);
  absl::StatusOr<uint32_t> TakeSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeDaemon();

  const Mapping memory_;
  const UniqueFd wake_;
  Header* const header_;
  Entry* entries_;
  Slot* slots_;
  Descriptor* arena_;
  // Copies of the geometry: the daemon's page may not change it under us.
  Geometry geometry_;

  std::atomic<bool> abandoned_{false};

  Mutex mutex_;
  uint32_t tail_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t reclaimed_head_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t arena_tail_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t arena_head_ ABSL_GUARDED_BY(mutex_) = 0;
  // Where the arena's head moves to when the entry at this position has been consumed.
  std::vector<uint64_t> arena_after_ ABSL_GUARDED_BY(mutex_);

  Mutex slots_mutex_;
  std::vector<uint32_t> free_slots_ ABSL_GUARDED_BY(slots_mutex_);
  std::vector<uint32_t> forgotten_ ABSL_GUARDED_BY(slots_mutex_);
};

}  // namespace hixld::ring
