// One round of a measurement: threads that repeat their transfers until the time is over.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/bench/latency.h"

namespace hixld::bench {

// What one thread repeats: `count()` transfers, one after the other, again from the first.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual uint64_t count() const = 0;
  virtual uint64_t blocks(uint64_t index) const = 0;
  virtual uint64_t bytes(uint64_t index) const = 0;
  // Moves and waits.
  virtual absl::Status Move(uint64_t index) = 0;

  // For several under way: starts transfer `index` in place `slot` (0 .. depth - 1), which is free.
  virtual absl::Status Submit(uint64_t index, uint64_t slot);
  // Whether the transfer in `slot` has ended well; it is then free again.
  virtual absl::StatusOr<bool> Done(uint64_t slot);
};

struct RoundBudget {
  // Time of at least one pass over all transfers, before the clock starts.
  int64_t warmup = 0;
  int64_t duration = 0;
  // Transfers per thread instead of `duration`, unless 0.
  uint64_t iterations = 0;
  // 0: synchronous.
  uint64_t depth = 0;
  // Between two synchronous transfers, not counted as their time.
  int64_t pause = 0;
};

struct RoundResult {
  LatencyHistogram latency;
  uint64_t transfers = 0;
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  // From the first thread's start to the last one's end.
  double seconds = 0;

  double gigabytes_per_second() const { return static_cast<double>(bytes) / seconds / 1e9; }
};

// Runs one thread per mover; each makes at least one whole pass after the warm-up. `watch` is
// called every 100 ms or so; its error, or the first error of a mover, ends the round.
absl::StatusOr<std::unique_ptr<RoundResult>> RunRound(
    const std::vector<std::unique_ptr<Mover>>& movers, const RoundBudget& budget,
    const std::function<absl::Status()>& watch);

}  // namespace hixld::bench
