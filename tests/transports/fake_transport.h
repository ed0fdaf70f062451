// A transport for tests of what lies above: it copies mapped pieces at once, or keeps transfers
// until the test lets them go.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "proto/base/mutex.h"
#include "transports/transport.h"

namespace hixld::testing {

class FakeTransport : public TransferSink {
 public:
  absl::string_view transport() const override { return "fake"; }

  void Submit(std::shared_ptr<TransferJob> job) override {
    {
      MutexLock lock(&mutex_);
      ++submitted_;
      changed_.SignalAll();
      if (held_) {
        waiting_.push_back(std::move(job));
        return;
      }
    }
    Finish(std::move(job), absl::OkStatus());
  }

  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    std::shared_ptr<TransferJob> found;
    {
      MutexLock lock(&mutex_);
      for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
        if (*at != job) continue;
        found = std::move(*at);
        waiting_.erase(at);
        break;
      }
    }
    if (found != nullptr) Finish(std::move(found), std::move(reason));
  }

  // Transfers wait from now on.
  void Hold() {
    MutexLock lock(&mutex_);
    held_ = true;
  }
  // Ends the oldest waiting transfer; returns false when there is none. Only OK copies.
  bool FinishNext(absl::Status status = absl::OkStatus()) {
    std::shared_ptr<TransferJob> job;
    {
      MutexLock lock(&mutex_);
      if (waiting_.empty()) return false;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Finish(std::move(job), std::move(status));
    return true;
  }
  // Ends all that wait, and later ones at once.
  void Release() {
    {
      MutexLock lock(&mutex_);
      held_ = false;
    }
    while (FinishNext()) {
    }
  }
  // Blocks until this many transfers have been submitted since the start.
  void WaitForSubmitted(size_t count) {
    MutexLock lock(&mutex_);
    while (submitted_ < count) changed_.Wait(&mutex_);
  }
  size_t waiting() const {
    MutexLock lock(&mutex_);
    return waiting_.size();
  }

 private:
  static void Finish(std::shared_ptr<TransferJob> job, absl::Status status) {
    if (status.ok()) {
      for (const CopyPiece& piece : job->pieces) Copy(*job, piece);
      job->bytes_done.store(job->bytes, std::memory_order_relaxed);
    }
    auto done = std::move(job->done);
    done(std::move(status));
  }
  static void Copy(const TransferJob& job, const CopyPiece& piece) {
    const bool read = job.direction == CopyDirection::kRead;
    const MemoryRef& from = read ? piece.remote : piece.local;
    const MemoryRef& to = read ? piece.local : piece.remote;
    if (from.access == nullptr || to.access == nullptr) return;
    if (from.access->mapped() == nullptr || to.access->mapped() == nullptr) return;
    memmove(to.access->mapped() + to.offset, from.access->mapped() + from.offset, piece.length);
  }

  mutable Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  size_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<TransferJob>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::testing
