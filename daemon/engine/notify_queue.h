// What has been sent to one engine and not been fetched yet (contract 1.10).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace hixld {

// Longest name and longest message of a notify, in bytes.
constexpr size_t kMaxNotifyBytes = 1024;

struct Notify {
  std::string name;
  std::string message;
};

// PARAM_INVALID that names the part that is too long.
absl::Status CheckNotify(const Notify& notify);

// One channel's share of a queue: lives as long as the channel, used with one queue only.
class NotifySource {
 public:
  explicit NotifySource(std::string sender) : sender_(std::move(sender)) {}
  // The engine at the channel's other end.
  const std::string& sender() const { return sender_; }

 private:
  friend class NotifyQueue;
  const std::string sender_;
  uint64_t queued_ = 0;  // guarded by the queue's lock
};

// Thread-safe. Keeps the order of each source. A batch that was taken is kept until the taker says
// that he has it, so that an answer that gets lost loses no notify.
class NotifyQueue {
 public:
  struct Limits {
    uint64_t per_channel = 4096;
    // Of all that wait in the queue, with what the daemon spends on each.
    uint64_t bytes = 64 << 20;
  };
  struct Entry {
    std::string sender;
    Notify notify;
  };
  struct Batch {
    std::vector<Entry> entries;
    // To be given to the next Take.
    uint64_t last_sequence = 0;
    // There are more: take again at once.
    bool more = false;
  };
  struct Totals {
    uint64_t received = 0;  // since the engine was opened
    uint64_t queued = 0;
  };

  NotifyQueue(std::string engine, const Limits& limits)
      : engine_(std::move(engine)), limits_(limits) {}

  // OK: it waits in the queue and will be told to whoever asks next. RESOURCE_EXHAUSTED: the
  // channel's share or the queue is full. FAILED: the engine is closed. In both cases nothing was
  // queued.
  absl::Status Push(const std::shared_ptr<NotifySource>& source, Notify notify);

  // Forgets what was taken up to `after_sequence`, then gives the rest of the last batch again, and
  // all that has come since: as much as fits into one answer. A full queue takes new notifies from
  // the moment that old ones have been taken.
  Batch Take(uint64_t after_sequence);

  // Drops everything and refuses what comes.
  void Close();

  Totals totals() const;

 private:
  struct Item {
    std::shared_ptr<NotifySource> source;
    Notify notify;
    uint64_t sequence = 0;
  };
  static uint64_t Cost(const Item& item);

  const std::string engine_;
  const Limits limits_;
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Waiting ones, and before them those that were given out and may have to be given again.
  std::deque<Item> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<Item> taken_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of waiting_
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace hixld
