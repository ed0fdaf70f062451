// One thread with an event loop: descriptors, timers, posted tasks and pollers. Data workers are
// loops; so is the control loop. Nothing that runs on a loop may block.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"

namespace hixld {

class Loop {
 public:
  using Task = absl::AnyInvocable<void()>;
  using FdCallback = absl::AnyInvocable<void(uint32_t events)>;
  using TimerId = uint64_t;

  // Work that is found by looking: a shared-memory ring. Runs on the loop's thread.
  class Poller {
   public:
    virtual ~Poller() = default;
    // Does what there is to do, within a bound; returns whether it found anything.
    virtual bool Poll() = 0;
    // Announces the intent to sleep and looks once more. False: there is work, don't sleep.
    virtual bool TrySleep() = 0;
    // Takes the announcement back.
    virtual void Wake() = 0;
  };

  struct Options {
    std::string name = "hixld-loop";  // thread name, at most 15 bytes
    // How long the loop spins at most before it sleeps, when polls have found work lately.
    int64_t max_spin_ns = 0;
  };

  static absl::StatusOr<std::unique_ptr<Loop>> Start(Options options);
  // Stops and joins; tasks still queued are run first, timers and steps are dropped. Never on the
  // loop's own thread.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs `task` on the loop's thread, later; thread-safe and never blocks.
  void Post(Task task);
  // Runs it at once when called on the loop's thread, else as Post.
  void Dispatch(Task task);
  bool InLoopThread() const;

  // The rest must be called on the loop's thread.

  // Watches `fd` (EPOLLIN, EPOLLOUT, ...). The callback may remove any descriptor, its own too.
  absl::Status AddFd(int fd, uint32_t events, FdCallback callback);
  absl::Status ModifyFd(int fd, uint32_t events);
  void RemoveFd(int fd);

  // Runs `task` once at or after `deadline_ns` (CLOCK_MONOTONIC).
  TimerId AddTimer(int64_t deadline_ns, Task task);
  // No effect when it has run already.
  void CancelTimer(TimerId id);

  void AddPoller(Poller* poller);
  void RemovePoller(Poller* poller);

  // Runs `step` again and again, between the other events, until it returns false: for long work
  // that is done in small pieces.
  void AddStep(absl::AnyInvocable<bool()> step);

  struct Stats {
    uint64_t wakeups = 0;
    uint64_t tasks = 0;
    uint64_t spins = 0;
  };
  Stats stats() const;

 private:
  friend class WorkerSet;
  class Impl;
  explicit Loop(std::unique_ptr<Impl> impl);
  void Stop();
  bool DropTasks();
  std::unique_ptr<Impl> impl_;
};

// The data workers: a fixed set of loops. A channel belongs to one of them at a time.
class WorkerSet {
 public:
  // `count` >= 1 loops named "hixld-w0", "hixld-w1", ...
  static absl::StatusOr<std::unique_ptr<WorkerSet>> Start(uint32_t count, int64_t max_spin_ns);
  WorkerSet() = default;
  // Stops all loops before it frees the first, since they post to each other.
  ~WorkerSet();
  WorkerSet(const WorkerSet&) = delete;
  WorkerSet& operator=(const WorkerSet&) = delete;
  uint32_t size() const { return static_cast<uint32_t>(loops_.size()); }
  Loop& at(uint32_t index) { return *loops_[index % loops_.size()]; }
  // The next one in turn, for a new channel or lane.
  uint32_t Next() { return next_.fetch_add(1, std::memory_order_relaxed) % size(); }

 private:
  std::vector<std::unique_ptr<Loop>> loops_;
  std::atomic<uint32_t> next_{0};
};

}  // namespace hixld
