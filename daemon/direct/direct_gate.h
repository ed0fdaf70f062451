// One grant: a client may copy from and to one engine's memory by itself while its gate is open.
//
// Life: open -> closed -> empty. It is closed when any of the memory, the channel or an engine
// goes, and never opened again. Once it is empty no byte of the client's copies can land any more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/direct/direct_copier.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "proto/direct/gate.h"
#include "proto/direct/keeper.h"
#include "transports/loop/loop.h"

namespace hixld {

// Thread-safe. Callbacks run on any thread and under no lock of the gate.
class DirectGate : public std::enable_shared_from_this<DirectGate> {
 public:
  // A memfd that regions lie in. The descriptor is its memory's.
  struct File {
    int fd = -1;
    uint64_t size = 0;
  };
  // What is granted.
  struct Plan {
    std::vector<direct::Region> regions;  // by address, without overlap
    std::vector<File> files;
    int32_t target_pid = 0;
    int target_pidfd = -1;  // -1: no region is plain memory
    uint64_t max_bytes = 0;
    uint64_t max_descriptors = 0;
    // Keeps the memory, and so the descriptors, until the gate is empty.
    std::shared_ptr<const void> pin;
    // How long a Close waits for a client that neither leaves nor ends.
    int64_t patience_ns = 0;
    // Runs once, when the gate is empty, before any callback of Close. Not called when the gate is
    // destroyed before.
    absl::AnyInvocable<void(DirectGate*)> on_empty;
  };
  // `memory` gets the gate's descriptor, for the client.
  static absl::StatusOr<std::shared_ptr<DirectGate>> Create(std::shared_ptr<DirectCopier> copier,
                                                            Plan plan, UniqueFd* memory);
  // Closes it, for a client that still has it.
  ~DirectGate();

  uint64_t size() const { return keeper_->size(); }
  const std::shared_ptr<DirectCopier>& copier() const { return copier_; }
  int target_pidfd() const { return target_pidfd_; }
  // PARAM_INVALID when there is no such file or the gate is closed. `pin` keeps the descriptor.
  absl::StatusOr<File> FindFile(uint32_t index, std::shared_ptr<const void>* pin) const;

  // The target has registered more than the plan says.
  void NoteMoreRegions() { keeper_->NoteMoreRegions(); }

  // No copy begins any more. `left` gets OK once nobody is inside, or FAILED that names the client
  // when it is still there after the plan's patience: then bytes may still land. May be called
  // again, and then waits again.
  void Close(absl::AnyInvocable<void(absl::Status)> left);
  bool closed() const;
  // Whether it is closed and empty; if it has become so, everybody who waits is told.
  bool Look();

  // What was copied since the last call.
  direct::Counts TakeCounts();

 private:
  DirectGate(std::shared_ptr<DirectCopier> copier, std::unique_ptr<direct::Keeper> keeper,
             Plan plan);
  void GiveUp(uint64_t waiter);
  void StartTimer(uint64_t waiter);

  const std::shared_ptr<DirectCopier> copier_;
  const std::unique_ptr<direct::Keeper> keeper_;
  const int target_pidfd_;
  const int64_t patience_ns_;

  mutable Mutex mutex_;
  std::vector<File> files_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const void> pin_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void(DirectGate*)> on_empty_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool empty_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_waiter_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, absl::AnyInvocable<void(absl::Status)>> waiters_ ABSL_GUARDED_BY(mutex_);

  // Guards what the keeper has taken.
  Mutex counts_mutex_;
};

}  // namespace hixld
