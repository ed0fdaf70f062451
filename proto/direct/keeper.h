// The daemon's end of a gate: makes it, closes it, sees whether it is empty, reads its totals.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/fd.h"
#include "proto/direct/gate.h"

namespace hixld::direct {

// What was copied; every number only grows.
struct Counts {
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t descriptors_read = 0;
  uint64_t descriptors_written = 0;
};

class Keeper {
 public:
  struct Spec {
    // By address, without overlap.
    absl::Span<const Region> regions;
    uint32_t files = 0;
    uint64_t max_bytes = 0;
    uint64_t max_descriptors = 0;
    int32_t target_pid = 0;
    int64_t now_ns = 0;  // CLOCK_MONOTONIC
  };
  // `memory` gets the descriptor for the client; the keeper needs only its mapping.
  static absl::StatusOr<std::unique_ptr<Keeper>> Create(const Spec& spec, UniqueFd* memory);

  uint64_t size() const { return memory_.size(); }
  const Mapping& memory() const { return memory_; }
  // No copy begins any more. Thread-safe.
  void Close() { header_->state.store(kClosed, std::memory_order_seq_cst); }
  // Whether nobody is inside. After Close true means that no byte lands any more, unless the
  // client lies about itself. Thread-safe.
  bool Empty() const;
  // The target has registered more. Thread-safe.
  void NoteMoreRegions() { header_->generation.fetch_add(1, std::memory_order_acq_rel); }

  // What was copied since the last call. The client can write anything there: what goes back, or
  // grows faster than any memory, is not believed. Not thread-safe.
  Counts Take(int64_t now_ns);

 private:
  explicit Keeper(Mapping memory, int64_t now_ns);

  const Mapping memory_;
  Header* const header_;
  Lane* const lanes_;
  const int64_t made_ns_;
  std::array<Counts, kLanes> taken_ = {};
};

}  // namespace hixld::direct
