#include "transports/rdma/job_queue.h"

#include <algorithm>

namespace hixld::rdma {

std::optional<Range> Job::Next() const {
  if (!again.empty()) return again.back();
  const auto& pieces = transfer->pieces;
  uint32_t at = piece;
  uint64_t from = offset;
  while (at < pieces.size() && from >= pieces[at].length) {
    ++at;
    from = 0;
  }
  if (at >= pieces.size()) return std::nullopt;
  return Range{at, from, pieces[at].length - from};
}

void Job::Advance(const Range& taken) {
  if (!again.empty()) {
    Range& rest = again.back();
    rest.offset += taken.length;
    rest.length -= taken.length;
    if (rest.length == 0) again.pop_back();
    return;
  }
  piece = taken.piece;
  offset = taken.offset + taken.length;
}

// To the end of the place's list.
void JobQueue::Move(Job* job, Job::Place place) {
  if (job->place_ != Job::Place::kNowhere) LinkedList<Job>::remove(job);
  if (place == Job::Place::kRunnable) runnable_.push_back(job);
  if (place == Job::Place::kParked) parked_.push_back(job);
  job->place_ = place;
}

void JobQueue::Add(Job* job) {
  if (job->place_ == Job::Place::kNowhere) Move(job, Job::Place::kRunnable);
}

void JobQueue::Remove(Job* job) { Move(job, Job::Place::kNowhere); }

void JobQueue::Unpark(Job* job) {
  if (job->place_ == Job::Place::kParked) Move(job, Job::Place::kRunnable);
}

void JobQueue::UnparkAll() {
  while (!parked_.empty()) Unpark(parked_.front());
}

void JobQueue::Take(size_t max_works, uint64_t max_bytes, FindKeys find, std::vector<Work>* out) {
  uint64_t bytes_left = max_bytes;
  while (out->size() < max_works && bytes_left > 0 && !runnable_.empty()) {
    Job* const job = runnable_.front();
    if (Turn(job, max_works, &bytes_left, find, out)) {
      Move(job, Job::Place::kRunnable);
    }
  }
}

bool JobQueue::Turn(Job* job, size_t max_works, uint64_t* bytes_left, FindKeys find,
                    std::vector<Work>* out) {
  uint64_t turn_bytes = 0;
  for (uint32_t n = 0; n < limits_.turn_works && turn_bytes < limits_.turn_bytes; ++n) {
    std::optional<Range> range = job->Next();
    if (!range) {
      Remove(job);
      return false;
    }
    if (out->size() >= max_works || *bytes_left == 0) return true;
    const std::optional<Keys> keys = find(*job, *range);
    if (!keys) {
      // `find` may have taken the job out because it cannot go on at all.
      if (job->place_ == Job::Place::kRunnable) Move(job, Job::Place::kParked);
      return false;
    }
    range->length = std::min({range->length, keys->usable, limits_.message_bytes});
    out->push_back({job, *range, keys->local, keys->remote, keys->local_key, keys->remote_key});
    job->Advance(*range);
    turn_bytes += range->length;
    *bytes_left -= std::min(*bytes_left, range->length);
  }
  if (job->AllSent()) {
    Remove(job);
    return false;
  }
  return true;
}

}  // namespace hixld::rdma
