#include "daemon/engine/notify_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// What one answer carries at most, far below the size of a message.
constexpr uint64_t kMaxBatchBytes = 2 << 20;
// What the daemon spends on a notify beside its text.
constexpr uint64_t kOverheadBytes = 128;

absl::Status CheckPart(absl::string_view part, size_t bytes) {
  if (bytes <= kMaxNotifyBytes) return absl::OkStatus();
  return ParamInvalid(absl::StrCat("the notify's ", part, " has ", bytes, " bytes"),
                      {.object = absl::StrCat("notify ", part),
                       .limit = absl::StrCat(kMaxNotifyBytes, " bytes"),
                       .allowed = absl::StrCat("0..", kMaxNotifyBytes, " bytes")});
}

absl::Status Full(const std::string& engine, absl::string_view what, uint64_t limit,
                  absl::string_view unit, absl::string_view option) {
  return ResourceExhausted(
      absl::StrCat("engine ", engine, " does not fetch its notifies: ", what, " (", option, ")"),
      {.object = absl::StrCat("engine ", engine),
       .limit = absl::StrCat(limit, " ", unit),
       .option = std::string(option)});
}

}  // namespace

absl::Status CheckNotify(const Notify& notify) {
  HIXLD_RETURN_IF_ERROR(CheckPart("name", notify.name.size()));
  return CheckPart("message", notify.message.size());
}

uint64_t NotifyQueue::Cost(const Item& item) {
  return kOverheadBytes + item.notify.name.size() + item.notify.message.size();
}

absl::Status NotifyQueue::Push(const std::shared_ptr<NotifySource>& source, Notify notify) {
  HIXLD_RETURN_IF_ERROR(CheckNotify(notify));
  Item item = {.source = source, .notify = std::move(notify)};
  const uint64_t cost = Cost(item);
  MutexLock lock(&mutex_);
  if (closed_) {
    return Failed(absl::StrCat("engine ", engine_, " is closed"),
                  {.object = absl::StrCat("engine ", engine_)});
  }
  if (source->queued_ >= limits_.per_channel) {
    return Full(engine_, absl::StrCat(source->queued_, " of ", source->sender(), " wait"),
                limits_.per_channel, "notifies of one channel", "limits.max_notifies_per_channel");
  }
  if (cost > limits_.bytes - bytes_) {
    return Full(engine_, absl::StrCat(waiting_.size(), " wait and take ", bytes_, " bytes"),
                limits_.bytes, "bytes of notifies", "limits.max_notify_bytes_per_engine");
  }
  item.sequence = next_sequence_++;
  ++source->queued_;
  bytes_ += cost;
  waiting_.push_back(std::move(item));
  return absl::OkStatus();
}

NotifyQueue::Batch NotifyQueue::Take(uint64_t after_sequence) {
  Batch batch;
  MutexLock lock(&mutex_);
  while (!taken_.empty() && taken_.front().sequence <= after_sequence) taken_.pop_front();
  uint64_t bytes = 0;
  for (const Item& item : taken_) bytes += Cost(item);
  while (!waiting_.empty() && bytes < kMaxBatchBytes) {
    const uint64_t cost = Cost(waiting_.front());
    bytes += cost;
    bytes_ -= cost;
    --waiting_.front().source->queued_;
    taken_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  batch.entries.reserve(taken_.size());
  for (const Item& item : taken_) {
    batch.entries.push_back({.sender = item.source->sender(), .notify = item.notify});
  }
  batch.last_sequence = taken_.empty() ? after_sequence : taken_.back().sequence;
  batch.more = !waiting_.empty();
  return batch;
}

void NotifyQueue::Close() {
  std::deque<Item> waiting;
  std::deque<Item> taken;
  MutexLock lock(&mutex_);
  closed_ = true;
  waiting.swap(waiting_);
  taken.swap(taken_);
  bytes_ = 0;
}

NotifyQueue::Totals NotifyQueue::totals() const {
  MutexLock lock(&mutex_);
  return {.received = next_sequence_ - 1, .queued = waiting_.size()};
}

}  // namespace hixld
