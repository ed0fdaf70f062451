#include "daemon/engine/transfer.h"

#include "proto/base/status.h"

namespace hixld {

std::shared_ptr<TransferJob> Transfer::Job() const {
  MutexLock lock(&job_mutex_);
  return job_;
}

void Transfer::SetJob(std::shared_ptr<TransferJob> job) {
  // What it was is let go of outside the lock.
  MutexLock lock(&job_mutex_);
  job_.swap(job);
}

void Transfer::Start() {
  const std::shared_ptr<TransferJob> job = Job();
  absl::Status cancelled;
  {
    // Held while the route takes the job, so that a Cancel finds it there. The route may end the
    // job before it returns; ending never takes this lock.
    MutexLock lock(&start_mutex_);
    if (cancelled_.ok()) {
      started_ = true;
      route->Submit(job);
      return;
    }
    cancelled = cancelled_;
  }
  job->done(cancelled);
}

void Transfer::Cancel(const absl::Status& reason) {
  {
    MutexLock lock(&start_mutex_);
    if (!started_) {
      if (cancelled_.ok()) cancelled_ = reason;
      return;
    }
  }
  if (const auto job = Job()) route->Cancel(job, reason);
}

void TransferLog::Started(uint64_t descriptors, uint64_t pieces) {
  active_.fetch_add(1, std::memory_order_relaxed);
  descriptors_.fetch_add(descriptors, std::memory_order_relaxed);
  pieces_.fetch_add(pieces, std::memory_order_relaxed);
}

void TransferLog::Merged(uint64_t transfers) {
  merges_.fetch_add(1, std::memory_order_relaxed);
  merged_transfers_.fetch_add(transfers, std::memory_order_relaxed);
}

void TransferLog::Ended(TransferState state, CopyDirection direction, uint64_t bytes) {
  active_.fetch_sub(1, std::memory_order_relaxed);
  switch (state) {
    case TransferState::kCompleted: {
      completed_.fetch_add(1, std::memory_order_relaxed);
      auto& sum = direction == CopyDirection::kRead ? bytes_read_ : bytes_written_;
      sum.fetch_add(bytes, std::memory_order_relaxed);
      break;
    }
    case TransferState::kTimeout:
      timed_out_.fetch_add(1, std::memory_order_relaxed);
      break;
    default:
      failed_.fetch_add(1, std::memory_order_relaxed);
  }
}

void TransferLog::Withdrawn() { active_.fetch_sub(1, std::memory_order_relaxed); }

void TransferLog::CopiedByClient(const direct::Counts& counts) {
  completed_.fetch_add(counts.reads + counts.writes, std::memory_order_relaxed);
  bytes_read_.fetch_add(counts.bytes_read, std::memory_order_relaxed);
  bytes_written_.fetch_add(counts.bytes_written, std::memory_order_relaxed);
  // A client joins no neighbours.
  const uint64_t descriptors = counts.descriptors_read + counts.descriptors_written;
  descriptors_.fetch_add(descriptors, std::memory_order_relaxed);
  pieces_.fetch_add(descriptors, std::memory_order_relaxed);
}

void TransferLog::Failed(TransferDescription description) {
  MutexLock lock(&mutex_);
  recent_.push_front(std::move(description));
  if (recent_.size() > kRecentFailures) recent_.pop_back();
}

TransferTotals TransferLog::Totals() const {
  TransferTotals totals;
  totals.active = active_.load(std::memory_order_relaxed);
  totals.completed = completed_.load(std::memory_order_relaxed);
  totals.failed = failed_.load(std::memory_order_relaxed);
  totals.timed_out = timed_out_.load(std::memory_order_relaxed);
  totals.bytes_read = bytes_read_.load(std::memory_order_relaxed);
  totals.bytes_written = bytes_written_.load(std::memory_order_relaxed);
  totals.descriptors = descriptors_.load(std::memory_order_relaxed);
  totals.pieces = pieces_.load(std::memory_order_relaxed);
  totals.merges = merges_.load(std::memory_order_relaxed);
  totals.merged_transfers = merged_transfers_.load(std::memory_order_relaxed);
  return totals;
}

std::vector<TransferDescription> TransferLog::RecentFailures() const {
  MutexLock lock(&mutex_);
  return {recent_.begin(), recent_.end()};
}

TransferState StateOf(const absl::Status& status) {
  if (status.ok()) return TransferState::kCompleted;
  return ApiCodeOf(status) == ApiCode::kTimeout ? TransferState::kTimeout : TransferState::kFailed;
}

}  // namespace hixld
