// A relayed transfer in rounds of what its buffers hold (contract 1.11): large pieces are split,
// and no more bytes are under way at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "daemon/engine/transfer.h"
#include "proto/base/mutex.h"
#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld {

// Carries one job. Made by make_shared. Thread-safe.
class RelayRounds : public TransferRoute, public std::enable_shared_from_this<RelayRounds> {
 public:
  // `inner` carries the rounds of at most `round_bytes` (> 0); one follows the other on `loop`;
  // `next_id` names them.
  RelayRounds(std::shared_ptr<TransferRoute> inner, uint64_t round_bytes, Loop* loop,
              std::atomic<uint64_t>* next_id)
      : inner_(std::move(inner)), round_bytes_(round_bytes), loop_(loop), next_id_(next_id) {}

  absl::string_view transport() const override { return inner_->transport(); }
  void Submit(std::shared_ptr<TransferJob> job) override;
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override;

 private:
  std::shared_ptr<TransferJob> NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartRound();
  void RoundEnded(const absl::Status& status);
  void End(absl::Status status);

  const std::shared_ptr<TransferRoute> inner_;
  const uint64_t round_bytes_;
  Loop* const loop_;
  std::atomic<uint64_t>* const next_id_;

  Mutex mutex_;  // guards what follows; neither `inner_` nor `done` is called under it
  std::shared_ptr<TransferJob> whole_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<TransferJob> round_ ABSL_GUARDED_BY(mutex_);
  // Where the next round begins.
  size_t piece_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t offset_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld
