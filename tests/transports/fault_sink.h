// Puts faults between a caller and a real transport: chosen transfers fail, are delayed, or are
// lost until they are cancelled or pass their deadline.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld::testing {

class FaultSink : public TransferSink {
 public:
  enum class Action {
    kPass,       // to the transport
    kFail,       // ends with `status`, without reaching the transport
    kDelay,      // to the transport after `delay_ns`
    kDrop,       // never reaches the transport; ends by Cancel or deadline
    kFailAfter,  // the transport copies it, then it ends with `status`
  };
  struct Fault {
    Action action = Action::kPass;
    absl::Status status = absl::OkStatus();
    int64_t delay_ns = 0;
  };
  // Says what happens to the n-th transfer, counted from 0.
  using Plan = std::function<Fault(uint64_t n, const TransferJob& job)>;

  // `sink` and `loop` must outlive it; delays and deadlines run on `loop`.
  FaultSink(TransferSink* sink, Loop* loop, Plan plan)
      : sink_(sink), loop_(loop), plan_(std::move(plan)) {}

  absl::string_view transport() const override { return sink_->transport(); }

  void Submit(std::shared_ptr<TransferJob> job) override {
    Fault fault;
    {
      MutexLock lock(&mutex_);
      fault = plan_(count_++, *job);
      if (fault.action == Action::kDelay || fault.action == Action::kDrop) {
        parked_[job.get()] = job;
      }
    }
    switch (fault.action) {
      case Action::kPass:
        sink_->Submit(std::move(job));
        return;
      case Action::kFail:
        loop_->Post([job, status = std::move(fault.status)] { End(job, status); });
        return;
      case Action::kDelay:
        At(MonotonicNanos() + fault.delay_ns, [this, job] {
          if (Unpark(job.get())) sink_->Submit(job);
        });
        return;
      case Action::kDrop:
        At(job->deadline_ns, [this, job] {
          if (Unpark(job.get())) {
            End(job, Timeout(absl::StrCat("transfer ", job->id, " passed its deadline")));
          }
        });
        return;
      case Action::kFailAfter:
        job->done = [done = std::move(job->done),
                     status = std::move(fault.status)](absl::Status outcome) mutable {
          done(outcome.ok() ? std::move(status) : std::move(outcome));
        };
        sink_->Submit(std::move(job));
        return;
    }
  }

  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    if (!Unpark(job.get())) {
      sink_->Cancel(job, std::move(reason));
      return;
    }
    loop_->Post([job, reason = std::move(reason)] { End(job, reason); });
  }

  uint64_t submitted() const {
    MutexLock lock(&mutex_);
    return count_;
  }

 private:
  static void End(const std::shared_ptr<TransferJob>& job, absl::Status status) {
    auto done = std::move(job->done);
    done(std::move(status));
  }
  void At(int64_t deadline_ns, Loop::Task task) {
    if (deadline_ns == kNoDeadline) return;
    loop_->Dispatch([loop = loop_, deadline_ns, task = std::move(task)]() mutable {
      loop->AddTimer(deadline_ns, std::move(task));
    });
  }
  bool Unpark(TransferJob* job) {
    MutexLock lock(&mutex_);
    return parked_.erase(job) > 0;
  }

  TransferSink* const sink_;
  Loop* const loop_;
  mutable Mutex mutex_;
  const Plan plan_;
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<TransferJob*, std::shared_ptr<TransferJob>> parked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::testing
