#include "daemon/engine/relay_rounds.h"

#include <algorithm>
#include <utility>

namespace hixld {

void RelayRounds::Submit(std::shared_ptr<TransferJob> job) {
  {
    MutexLock lock(&mutex_);
    whole_ = std::move(job);
  }
  StartRound();
}

// nullptr: nothing is left.
std::shared_ptr<TransferJob> RelayRounds::NextLocked() {
  const CopyPieces& pieces = whole_->pieces;
  if (piece_ == pieces.size()) return nullptr;
  auto round = std::make_shared<TransferJob>();
  round->id = next_id_->fetch_add(1, std::memory_order_relaxed);
  round->direction = whole_->direction;
  round->worker = whole_->worker;
  round->deadline_ns = whole_->deadline_ns;
  // The whole one holds the pins.
  round->pins.push_back(whole_);
  while (piece_ < pieces.size() && round->bytes < round_bytes_) {
    CopyPiece part = pieces[piece_];
    part.local.offset += offset_;
    part.remote.offset += offset_;
    part.remote_address += offset_;
    part.length = std::min(part.length - offset_, round_bytes_ - round->bytes);
    round->bytes += part.length;
    offset_ += part.length;
    if (offset_ == pieces[piece_].length) {
      ++piece_;
      offset_ = 0;
    }
    round->pieces.push_back(part);
  }
  return round;
}

void RelayRounds::StartRound() {
  std::shared_ptr<TransferJob> round;
  absl::Status cancelled;
  {
    MutexLock lock(&mutex_);
    cancelled = cancelled_;
    if (cancelled.ok()) round = round_ = NextLocked();
  }
  if (round == nullptr) return End(cancelled);
  round->done = [self = shared_from_this()](const absl::Status& status) {
    self->RoundEnded(status);
  };
  inner_->Submit(round);
  // Who was cancelled before the round was known to `inner_` could not reach it.
  {
    MutexLock lock(&mutex_);
    cancelled = cancelled_;
  }
  if (!cancelled.ok()) inner_->Cancel(round, cancelled);
}

// The next one starts from the loop: a round may end before its Submit returns.
void RelayRounds::RoundEnded(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    const std::shared_ptr<TransferJob> round = std::exchange(round_, nullptr);
    if (status.ok()) whole_->bytes_done.fetch_add(round->bytes, std::memory_order_relaxed);
    if (status.ok() || round->moved.load(std::memory_order_relaxed)) {
      whole_->moved.store(true, std::memory_order_relaxed);
    }
  }
  if (!status.ok()) return End(status);
  loop_->Post([self = shared_from_this()] { self->StartRound(); });
}

void RelayRounds::End(absl::Status status) {
  std::shared_ptr<TransferJob> whole;
  {
    MutexLock lock(&mutex_);
    whole = std::move(whole_);
  }
  std::exchange(whole->done, nullptr)(std::move(status));
}

void RelayRounds::Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) {
  std::shared_ptr<TransferJob> round;
  {
    MutexLock lock(&mutex_);
    if (whole_ != job || !cancelled_.ok()) return;
    cancelled_ = reason;
    round = round_;
  }
  if (round != nullptr) inner_->Cancel(round, std::move(reason));
}

}  // namespace hixld
