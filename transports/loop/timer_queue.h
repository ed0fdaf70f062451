// Timers of one loop: a heap ordered by deadline, with cancellation in constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace hixld {

// Not thread-safe: it lives on its loop's thread.
class TimerQueue {
 public:
  using Task = absl::AnyInvocable<void()>;

  // The id is never 0.
  uint64_t Add(int64_t deadline_ns, Task task);
  // No effect when the timer has run or was cancelled.
  void Cancel(uint64_t id);
  // Runs what is due at `now_ns`, earliest first; timers that a task adds wait for the next call.
  // Returns how many ran.
  size_t RunDue(int64_t now_ns);
  // kNoDeadline when there is none.
  int64_t NextDeadline();
  // Drops all timers without running them.
  void Clear();
  size_t size() const { return live_; }

 private:
  struct Slot {
    uint32_t generation = 1;
    bool used = false;
    Task task;
  };
  struct Entry {
    int64_t deadline_ns;
    uint64_t id;
  };
  static bool Later(const Entry& a, const Entry& b);
  bool Live(uint64_t id) const;
  Task Release(uint64_t id);
  void PopEntry();
  void DropStale();

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  // Cancelled timers stay in the heap until they surface or are too many.
  std::vector<Entry> heap_;
  size_t live_ = 0;
};

}  // namespace hixld
