#include "transports/loop/timer_queue.h"

#include <algorithm>
#include <utility>

#include "proto/base/clock.h"

namespace hixld {
namespace {

// Stale heap entries that are tolerated beside the live ones.
constexpr size_t kStaleSlack = 64;

uint32_t SlotOf(uint64_t id) { return static_cast<uint32_t>(id); }
uint32_t GenerationOf(uint64_t id) { return static_cast<uint32_t>(id >> 32); }

}  // namespace

bool TimerQueue::Later(const Entry& a, const Entry& b) { return a.deadline_ns > b.deadline_ns; }

uint64_t TimerQueue::Add(int64_t deadline_ns, Task task) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.used = true;
  slot.task = std::move(task);
  ++live_;
  const uint64_t id = (static_cast<uint64_t>(slot.generation) << 32) | index;
  heap_.push_back(Entry{deadline_ns, id});
  std::push_heap(heap_.begin(), heap_.end(), Later);
  return id;
}

bool TimerQueue::Live(uint64_t id) const {
  const uint32_t index = SlotOf(id);
  return index < slots_.size() && slots_[index].used &&
         slots_[index].generation == GenerationOf(id);
}

TimerQueue::Task TimerQueue::Release(uint64_t id) {
  Slot& slot = slots_[SlotOf(id)];
  Task task = std::move(slot.task);
  slot.task = nullptr;
  slot.used = false;
  if (++slot.generation == 0) slot.generation = 1;
  free_.push_back(SlotOf(id));
  --live_;
  return task;
}

void TimerQueue::Cancel(uint64_t id) {
  if (!Live(id)) return;
  // The task is destroyed only after the queue is consistent again: its captures may call back.
  Task task = Release(id);
  if (heap_.size() > 2 * live_ + kStaleSlack) DropStale();
}

void TimerQueue::DropStale() {
  heap_.erase(std::remove_if(heap_.begin(), heap_.end(),
                             [this](const Entry& entry) { return !Live(entry.id); }),
              heap_.end());
  std::make_heap(heap_.begin(), heap_.end(), Later);
}

void TimerQueue::PopEntry() {
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  heap_.pop_back();
}

size_t TimerQueue::RunDue(int64_t now_ns) {
  std::vector<uint64_t> due;
  while (!heap_.empty() && heap_.front().deadline_ns <= now_ns) {
    const uint64_t id = heap_.front().id;
    PopEntry();
    if (Live(id)) due.push_back(id);
  }
  size_t count = 0;
  for (const uint64_t id : due) {
    if (!Live(id)) continue;  // an earlier task has cancelled it
    Task task = Release(id);
    task();
    ++count;
  }
  return count;
}

int64_t TimerQueue::NextDeadline() {
  while (!heap_.empty() && !Live(heap_.front().id)) PopEntry();
  return heap_.empty() ? kNoDeadline : heap_.front().deadline_ns;
}

void TimerQueue::Clear() {
  while (!heap_.empty()) {
    const uint64_t id = heap_.back().id;
    heap_.pop_back();
    if (Live(id)) Release(id);
  }
}

}  // namespace hixld
