// Batch request merging: tiny transfers of one channel wait a moment for each other and go over
// the link as one.
//
// It saves a frame and an answer per transfer where an engine sends floods of them, and costs each
// one up to the window of latency; off by default (batching.window_us).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "daemon/engine/transfer.h"
#include "proto/base/mutex.h"
#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld {

constexpr uint64_t kMaxBatchingWindowMicros = 100'000;
constexpr uint64_t kMaxBatchingRequests = 4096;
constexpr uint64_t kMaxBatchingBytes = 16 << 20;

struct BatchingOptions {
  int64_t window_ns = 0;           // 0: off
  uint64_t max_requests = 64;      // transfers in one, at most
  uint64_t max_bytes = 256 << 10;  // bytes of one, at most; a transfer half as large goes alone
};

// Every transfer keeps its own end: a merged one that fails is tried again part by part, since a
// copy may be repeated until it has been reported; one that is cancelled, or whose deadline has
// passed, ends alone. Thread-safe. Made by make_shared.
class Batcher : public TransferRoute, public std::enable_shared_from_this<Batcher> {
 public:
  // `inner` carries the transfers; the timer runs on `loop`; `next_id` names merged ones.
  Batcher(BatchingOptions options, std::shared_ptr<TransferRoute> inner, Loop* loop,
          std::atomic<uint64_t>* next_id, TransferLog* log);

  absl::string_view transport() const override { return inner_->transport(); }
  void Submit(std::shared_ptr<TransferJob> job) override;
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override;

 private:
  using JobRef = std::shared_ptr<TransferJob>;
  // Transfers of one direction that wait, or that are under way as one.
  struct Group {
    std::vector<JobRef> members;
    uint64_t bytes = 0;
    uint64_t number = 0;  // which window it belongs to
    JobRef merged;        // once it is under way
  };
  using GroupRef = std::shared_ptr<Group>;
  // Where a transfer is, and whether it is to end.
  struct Place {
    GroupRef group;  // nullptr: it is being handed to `inner_` alone
    absl::Status cancelled;
  };

  bool Small(const TransferJob& job) const { return job.bytes <= options_.max_bytes / 2; }
  void ArmTimer(CopyDirection direction, uint64_t number);
  void OnTimer(CopyDirection direction, uint64_t number);
  GroupRef TakeLocked(CopyDirection direction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(const GroupRef& group);
  JobRef Merge(const GroupRef& group);
  void Ended(const GroupRef& group, const absl::Status& status);
  // Its place must have no group.
  void SubmitAlone(const JobRef& job);
  void EndLater(JobRef job, absl::Status status);

  const BatchingOptions options_;
  const std::shared_ptr<TransferRoute> inner_;
  Loop* const loop_;
  std::atomic<uint64_t>* const next_id_;
  TransferLog* const log_;

  Mutex mutex_;
  // By direction: those that wait for the window's end.
  GroupRef waiting_[2] ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
  // Transfers that `inner_` does not know under their own name.
  absl::flat_hash_map<const TransferJob*, Place> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld
