// One transfer's record, and the daemon's memory of transfers for operators.
//
// Life: planned -> running -> ended. It ends exactly once, when its transport has fenced it. An
// asynchronous one is then kept until its state has been reported or its channel or engine is
// closed (contract 1.9).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "proto/direct/keeper.h"
#include "transports/transport.h"

namespace hixld {

class Engine;

// Runs a function when its last holder lets go: "when all of these have ended".
class Gate {
 public:
  Gate() = default;  // for callers that need not know
  explicit Gate(absl::AnyInvocable<void()> open) : open_(std::move(open)) {}
  ~Gate() {
    if (open_) open_();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

 private:
  absl::AnyInvocable<void()> open_;
};
using GateRef = std::shared_ptr<Gate>;

enum class TransferState : uint8_t { kWaiting, kCompleted, kFailed, kTimeout };

// What a transport or a remote channel is to a transfer: where it was submitted, to cancel it.
class TransferRoute {
 public:
  virtual ~TransferRoute() = default;
  virtual absl::string_view transport() const = 0;
  virtual void Submit(std::shared_ptr<TransferJob> job) = 0;
  virtual void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) = 0;
};

class Transfer {
 public:
  // Fixed once the transfer is visible to anybody else.
  uint64_t id = 0;
  CopyDirection direction = CopyDirection::kRead;
  uint64_t descriptors = 0;
  uint64_t pieces = 0;
  uint64_t bytes = 0;
  uint64_t user_data = 0;
  // Some of its memory is not registered (contract 1.11).
  bool relayed = false;
  int64_t started_ns = 0;
  int64_t deadline_ns = kNoDeadline;
  std::string remote_engine;
  std::shared_ptr<TransferRoute> route;
  // The engine whose memory is the remote side, when it lives in this daemon.
  std::shared_ptr<Engine> target;
  // The target's regions it touches, sorted.
  std::vector<uint64_t> target_regions;
  // Whose transfer it is, until it ends.
  std::shared_ptr<Engine> engine;
  // The channel it runs on, for Disconnect.
  uint64_t channel_key = 0;
  // A synchronous one has a caller that waits; the state of an asynchronous one is asked for.
  bool synchronous = false;
  absl::AnyInvocable<void(const Transfer&, const absl::Status&)> on_end;
  // On a channel to another daemon: takes over when the target has refused a range, as one that is
  // not registered, before the transfer ends.
  absl::AnyInvocable<void(const std::shared_ptr<Transfer>&, const absl::Status&)> on_refused;

  // Guarded by the initiating engine's lock.
  TransferState state = TransferState::kWaiting;
  absl::Status status;
  // Its channel is closed: it runs on until it is fenced, but nobody may ask for it any more.
  bool dropped = false;
  std::vector<GateRef> gates;

  std::shared_ptr<TransferJob> Job() const;  // nullptr once it has ended
  void SetJob(std::shared_ptr<TransferJob> job);
  void DropJob() { SetJob(nullptr); }

  // Hands the job to the route, unless Cancel came first; then the transfer ends here.
  void Start();
  // Ends the transfer early. It ends once it is fenced, also when this came before Start.
  void Cancel(const absl::Status& reason);

 private:
  Mutex start_mutex_;  // guards the two below: Cancel may race with Start
  bool started_ ABSL_GUARDED_BY(start_mutex_) = false;
  absl::Status cancelled_ ABSL_GUARDED_BY(start_mutex_);
  mutable Mutex job_mutex_;
  std::shared_ptr<TransferJob> job_ ABSL_GUARDED_BY(job_mutex_);
};

// What operators see of a transfer.
struct TransferDescription {
  uint64_t id = 0;
  std::string local_engine;
  std::string remote_engine;
  CopyDirection direction = CopyDirection::kRead;
  TransferState state = TransferState::kWaiting;
  uint64_t descriptors = 0;
  uint64_t bytes = 0;
  uint64_t bytes_done = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  int64_t deadline_ns = kNoDeadline;
  std::string transport;
  std::string message;
};

struct TransferTotals {
  uint64_t active = 0;
  uint64_t completed = 0;
  uint64_t failed = 0;
  uint64_t timed_out = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t descriptors = 0;
  uint64_t pieces = 0;
  uint64_t merges = 0;            // transfers on links that stood for several
  uint64_t merged_transfers = 0;  // those that they stood for
};

// Counts all transfers of the daemon and remembers the last failures. Thread-safe.
class TransferLog {
 public:
  static constexpr size_t kRecentFailures = 128;

  void Started(uint64_t descriptors, uint64_t pieces);
  // So many transfers went over a link as one.
  void Merged(uint64_t transfers);
  void Ended(TransferState state, CopyDirection direction, uint64_t bytes);
  // It starts once more, as another one.
  void Withdrawn();
  void Failed(TransferDescription description);
  // Transfers that a client has made by itself; all of them were completed.
  void CopiedByClient(const direct::Counts& counts);

  TransferTotals Totals() const;
  // Newest first.
  std::vector<TransferDescription> RecentFailures() const;

 private:
  std::atomic<uint64_t> active_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<uint64_t> failed_{0};
  std::atomic<uint64_t> timed_out_{0};
  std::atomic<uint64_t> bytes_read_{0};
  std::atomic<uint64_t> bytes_written_{0};
  std::atomic<uint64_t> descriptors_{0};
  std::atomic<uint64_t> pieces_{0};
  std::atomic<uint64_t> merges_{0};
  std::atomic<uint64_t> merged_transfers_{0};
  mutable Mutex mutex_;
  std::deque<TransferDescription> recent_ ABSL_GUARDED_BY(mutex_);
};

// COMPLETED, TIMEOUT or FAILED, by the status a transport ended with.
TransferState StateOf(const absl::Status& status);

}  // namespace hixld
