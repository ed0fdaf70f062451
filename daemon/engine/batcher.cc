#include "daemon/engine/batcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {

Batcher::Batcher(BatchingOptions options, std::shared_ptr<TransferRoute> inner, Loop* loop,
                 std::atomic<uint64_t>* next_id, TransferLog* log)
    : options_(options), inner_(std::move(inner)), loop_(loop), next_id_(next_id), log_(log) {}

void Batcher::Submit(JobRef job) {
  if (options_.window_ns <= 0 || !Small(*job)) return inner_->Submit(std::move(job));
  const CopyDirection direction = job->direction;
  GroupRef full;
  GroupRef overtaken;
  uint64_t started = 0;
  {
    MutexLock lock(&mutex_);
    GroupRef& waiting = waiting_[static_cast<size_t>(direction)];
    if (waiting != nullptr && waiting->bytes + job->bytes > options_.max_bytes) {
      overtaken = TakeLocked(direction);
    }
    if (waiting == nullptr) {
      waiting = std::make_shared<Group>();
      started = waiting->number = next_number_++;
    }
    places_[job.get()] = {.group = waiting, .cancelled = {}};
    waiting->bytes += job->bytes;
    waiting->members.push_back(std::move(job));
    if (waiting->members.size() >= options_.max_requests) full = TakeLocked(direction);
  }
  if (overtaken != nullptr) Send(overtaken);
  if (full != nullptr) return Send(full);
  if (started != 0) ArmTimer(direction, started);
}

Batcher::GroupRef Batcher::TakeLocked(CopyDirection direction) {
  return std::exchange(waiting_[static_cast<size_t>(direction)], nullptr);
}

void Batcher::ArmTimer(CopyDirection direction, uint64_t number) {
  loop_->Post(
      [self = shared_from_this(), direction, number, due = MonotonicNanos() + options_.window_ns] {
        self->loop_->AddTimer(due, [self, direction, number] { self->OnTimer(direction, number); });
      });
}

void Batcher::OnTimer(CopyDirection direction, uint64_t number) {
  GroupRef group;
  {
    MutexLock lock(&mutex_);
    const GroupRef& waiting = waiting_[static_cast<size_t>(direction)];
    // It may have been sent for its size, and a younger one be waiting.
    if (waiting != nullptr && waiting->number == number) group = TakeLocked(direction);
  }
  if (group != nullptr) Send(group);
}

Batcher::JobRef Batcher::Merge(const GroupRef& group) {
  auto merged = std::make_shared<TransferJob>();
  merged->id = next_id_->fetch_add(1, std::memory_order_relaxed);
  merged->direction = group->members.front()->direction;
  merged->worker = group->members.front()->worker;
  for (const JobRef& member : group->members) {
    for (const CopyPiece& piece : member->pieces) {
      if (!merged->pieces.empty()) {
        CopyPiece& last = merged->pieces.back();
        if (last.local.access == piece.local.access &&
            last.local.offset + last.length == piece.local.offset &&
            last.remote_address + last.length == piece.remote_address) {
          last.length += piece.length;
          continue;
        }
      }
      merged->pieces.push_back(piece);
    }
    merged->bytes += member->bytes;
    merged->deadline_ns = std::min(merged->deadline_ns, member->deadline_ns);
    // The members hold their pins, and the merged one the members.
    merged->pins.push_back(member);
  }
  merged->done = [self = shared_from_this(), group](absl::Status status) {
    self->Ended(group, status);
  };
  return merged;
}

void Batcher::Send(const GroupRef& group) {
  JobRef alone;
  JobRef merged;
  absl::Status cancelled;
  {
    MutexLock lock(&mutex_);
    if (group->members.empty()) return;  // all were cancelled
    if (group->members.size() == 1) {
      alone = group->members.front();
      places_[alone.get()].group = nullptr;
    } else {
      merged = group->merged = Merge(group);
    }
  }
  if (alone != nullptr) return SubmitAlone(alone);
  log_->Merged(group->members.size());
  inner_->Submit(merged);
  // Who was cancelled between the two steps above could not reach the link yet.
  {
    MutexLock lock(&mutex_);
    for (const JobRef& member : group->members) {
      const auto place = places_.find(member.get());
      if (place != places_.end() && !place->second.cancelled.ok()) {
        cancelled = place->second.cancelled;
      }
    }
  }
  if (!cancelled.ok()) inner_->Cancel(merged, cancelled);
}

void Batcher::SubmitAlone(const JobRef& job) {
  inner_->Submit(job);
  absl::Status cancelled;
  {
    MutexLock lock(&mutex_);
    const auto place = places_.find(job.get());
    cancelled = std::move(place->second.cancelled);
    places_.erase(place);
  }
  if (!cancelled.ok()) inner_->Cancel(job, cancelled);
}

void Batcher::Cancel(const JobRef& job, absl::Status reason) {
  JobRef merged;
  bool waiting = false;
  {
    MutexLock lock(&mutex_);
    const auto place = places_.find(job.get());
    if (place != places_.end()) {
      Group* const group = place->second.group.get();
      if (group != nullptr) merged = group->merged;
      waiting = group != nullptr && merged == nullptr;
      if (waiting) {
        group->bytes -= job->bytes;
        group->members.erase(std::find(group->members.begin(), group->members.end(), job));
        places_.erase(place);
      } else {
        place->second.cancelled = reason;
      }
    }
  }
  if (waiting) return EndLater(job, std::move(reason));
  inner_->Cancel(merged != nullptr ? merged : job, std::move(reason));
}

// Never on the caller's thread, which may hold a lock that `done` needs.
void Batcher::EndLater(JobRef job, absl::Status status) {
  loop_->Post([job = std::move(job), status = std::move(status)]() mutable {
    std::exchange(job->done, nullptr)(std::move(status));
  });
}

void Batcher::Ended(const GroupRef& group, const absl::Status& status) {
  struct End {
    JobRef job;
    absl::Status status;
  };
  std::vector<End> ended;
  std::vector<JobRef> again;
  const bool moved = group->merged->moved.load(std::memory_order_relaxed);
  const int64_t now = MonotonicNanos();
  {
    MutexLock lock(&mutex_);
    for (JobRef& member : group->members) {
      const auto place = places_.find(member.get());
      const absl::Status cancelled = place->second.cancelled;
      if (moved) member->moved.store(true, std::memory_order_relaxed);
      if (!status.ok() && cancelled.ok() && member->deadline_ns > now) {
        place->second.group = nullptr;
        again.push_back(std::move(member));
        continue;
      }
      places_.erase(place);
      ended.push_back({std::move(member), status.ok() || cancelled.ok() ? status : cancelled});
    }
    group->members.clear();
    group->merged = nullptr;
  }
  for (End& end : ended) {
    if (end.status.ok()) end.job->bytes_done.store(end.job->bytes, std::memory_order_relaxed);
    std::exchange(end.job->done, nullptr)(std::move(end.status));
  }
  for (const JobRef& job : again) SubmitAlone(job);
}

}  // namespace hixld
