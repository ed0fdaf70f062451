// The client's end of a gate: goes in and out around its copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/fd.h"
#include "proto/direct/gate.h"

namespace hixld::direct {

// Thread-safe.
class Copier {
 public:
  // `memory` is the gate's mapping, `wake` the daemon's eventfd. PARAM_INVALID when the header or
  // the regions make no sense.
  static absl::StatusOr<std::unique_ptr<Copier>> Attach(Mapping memory, UniqueFd wake);

  // Whether a copy may begin. After true, the copy ends with Leave on the same lane. `lane` is any
  // number; threads that use different ones do not disturb each other.
  bool Enter(uint32_t lane) {
    Lane& own = lanes_[lane % kLanes];
    own.inside.fetch_add(1, std::memory_order_seq_cst);
    if (header_->state.load(std::memory_order_seq_cst) == kOpen) return true;
    Leave(lane);
    return false;
  }

  // Every byte that was written before it is visible to whoever sees the gate empty.
  void Leave(uint32_t lane) {
    lanes_[lane % kLanes].inside.fetch_sub(1, std::memory_order_seq_cst);
    if (header_->state.load(std::memory_order_seq_cst) != kOpen) TellDaemon();
  }

  // A copy is done; before its Leave, so that whoever closes the gate finds it counted.
  void Count(uint32_t lane, bool read, uint64_t bytes, uint64_t descriptors) {
    Lane& own = lanes_[lane % kLanes];
    (read ? own.reads : own.writes).fetch_add(1, std::memory_order_relaxed);
    (read ? own.bytes_read : own.bytes_written).fetch_add(bytes, std::memory_order_relaxed);
    (read ? own.descriptors_read : own.descriptors_written)
        .fetch_add(descriptors, std::memory_order_relaxed);
  }

  bool closed() const { return header_->state.load(std::memory_order_acquire) != kOpen; }
  // The target has memory that the table lacks.
  bool outdated() const {
    return header_->generation.load(std::memory_order_acquire) != generation_;
  }

  uint64_t max_bytes() const { return max_bytes_; }
  uint64_t max_descriptors() const { return max_descriptors_; }
  int32_t target_pid() const { return target_pid_; }
  uint32_t files() const { return files_; }
  // A copy of the table, by address and without overlap.
  const std::vector<Region>& regions() const { return regions_; }

 private:
  Copier(Mapping memory, UniqueFd wake);
  absl::Status Check();
  // The daemon may be waiting for the gate to be empty.
  void TellDaemon() const;

  const Mapping memory_;
  const UniqueFd wake_;
  Header* const header_;
  Lane* const lanes_;
  uint32_t generation_ = 0;
  uint64_t max_bytes_ = 0;
  uint64_t max_descriptors_ = 0;
  int32_t target_pid_ = 0;
  uint32_t files_ = 0;
  std::vector<Region> regions_;
};

}  // namespace hixld::direct
