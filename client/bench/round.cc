#include "client/bench/round.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "client/bench/threads.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

constexpr std::chrono::milliseconds kWatchInterval(100);
// Looking for the end of an asynchronous transfer: first without a pause, then giving way, then
// with sleeps, so that the daemon has the core where there are few. A sleep lasts a part of the
// time already waited, which is then at most that much too long.
constexpr int64_t kSpin = 20'000;
constexpr int64_t kYield = 500'000;
constexpr int64_t kNapPart = 16;
constexpr int64_t kLongestNap = 1'000'000;

// Lets all threads start measuring at once, and the main thread wait for them.
class Gate {
 public:
  explicit Gate(size_t threads) : missing_(threads), running_(threads) {}

  // False when the round was given up.
  bool ArriveAndWait() {
    MutexLock lock(&mutex_);
    --missing_;
    changed_.SignalAll();
    while (missing_ > 0 && error_.ok()) changed_.Wait(&mutex_);
    return error_.ok();
  }
  // Gives the round up because of `error`; the first one counts.
  void Stop(const absl::Status& error) {
    stop_.store(true, std::memory_order_relaxed);
    MutexLock lock(&mutex_);
    if (error_.ok()) error_ = error;
    changed_.SignalAll();
  }
  absl::Status error() {
    MutexLock lock(&mutex_);
    return error_;
  }
  void Leave() {
    MutexLock lock(&mutex_);
    --running_;
    changed_.SignalAll();
  }
  // True once all threads have left.
  bool WaitForEnd(std::chrono::milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    MutexLock lock(&mutex_);
    while (running_ > 0 && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return running_ == 0;
  }
  bool stopping() const { return stop_.load(std::memory_order_relaxed); }

 private:
  // Beside the flag under the lock, so that the measuring loops need no lock.
  std::atomic<bool> stop_ = false;
  Mutex mutex_;
  CondVar changed_;
  size_t missing_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

struct Tally {
  RoundResult result;
  int64_t started = 0;
  int64_t ended = 0;
};

// The work of one thread in one round.
class Runner {
 public:
  Runner(Mover& mover, const RoundBudget& budget, Gate& gate, Tally& tally)
      : mover_(mover), budget_(budget), gate_(gate), tally_(tally) {}

  absl::Status Run() {
    HIXLD_RETURN_IF_ERROR(WarmUp());
    if (!gate_.ArriveAndWait()) return absl::OkStatus();
    tally_.started = MonotonicNanos();
    deadline_ = tally_.started + budget_.duration;
    const absl::Status status = budget_.depth == 0 ? Sync() : Async();
    tally_.ended = MonotonicNanos();
    return status;
  }

 private:
  absl::Status WarmUp() {
    const int64_t end = MonotonicNanos() + budget_.warmup;
    do {
      for (uint64_t i = 0; i < mover_.count() && !gate_.stopping(); ++i) {
        HIXLD_RETURN_IF_ERROR(mover_.Move(i));
      }
    } while (MonotonicNanos() < end && !gate_.stopping());
    return absl::OkStatus();
  }

  // Whether `begun` transfers are enough at this time.
  bool Enough(uint64_t begun, int64_t now) const {
    if (gate_.stopping()) return true;
    if (begun < mover_.count()) return false;
    return budget_.iterations > 0 ? begun >= budget_.iterations : now >= deadline_;
  }

  void Count(uint64_t index, int64_t nanos) {
    tally_.result.latency.Add(nanos);
    tally_.result.transfers += 1;
    tally_.result.blocks += mover_.blocks(index);
    tally_.result.bytes += mover_.bytes(index);
  }

  absl::Status Sync() {
    int64_t last = tally_.started;
    uint64_t index = 0;
    uint64_t begun = 0;
    while (!Enough(begun, last)) {
      HIXLD_RETURN_IF_ERROR(mover_.Move(index));
      const int64_t now = MonotonicNanos();
      Count(index, now - last);
      last = budget_.pause == 0 ? now : Pause();
      ++begun;
      if (++index == mover_.count()) index = 0;
    }
    return absl::OkStatus();
  }

  int64_t Pause() const {
    const timespec pause = {budget_.pause / kNanosPerSecond, budget_.pause % kNanosPerSecond};
    ::nanosleep(&pause, nullptr);
    return MonotonicNanos();
  }

  absl::Status Async() {
    struct Pending {
      uint64_t index;
      int64_t since;
    };
    std::vector<Pending> pending(budget_.depth);
    uint64_t begun = 0;
    uint64_t ended = 0;
    uint64_t index = 0;
    int64_t now = tally_.started;
    while (true) {
      while (begun - ended < budget_.depth && !Enough(begun, now)) {
        pending[begun % budget_.depth] = {index, MonotonicNanos()};
        HIXLD_RETURN_IF_ERROR(mover_.Submit(index, begun % budget_.depth));
        ++begun;
        if (++index == mover_.count()) index = 0;
      }
      if (begun == ended) return absl::OkStatus();
      HIXLD_RETURN_IF_ERROR(WaitFor(ended % budget_.depth));
      now = MonotonicNanos();
      const Pending& oldest = pending[ended % budget_.depth];
      Count(oldest.index, now - oldest.since);
      ++ended;
    }
  }

  absl::Status WaitFor(uint64_t slot) {
    int64_t since = 0;
    while (true) {
      HIXLD_ASSIGN_OR_RETURN(const bool done, mover_.Done(slot));
      if (done) return absl::OkStatus();
      const int64_t now = MonotonicNanos();
      if (since == 0) since = now;
      if (now - since < kSpin) continue;
      if (gate_.stopping()) return Failed("given up while a transfer was under way");
      if (now - since < kYield) {
        ::sched_yield();
      } else {
        const timespec nap = {0, std::min((now - since) / kNapPart, kLongestNap)};
        ::nanosleep(&nap, nullptr);
      }
    }
  }

  Mover& mover_;
  const RoundBudget& budget_;
  Gate& gate_;
  Tally& tally_;
  int64_t deadline_ = 0;
};

std::unique_ptr<RoundResult> Merge(const std::vector<std::unique_ptr<Tally>>& tallies) {
  auto sum = std::make_unique<RoundResult>();
  int64_t started = INT64_MAX;
  int64_t ended = 0;
  for (const auto& tally : tallies) {
    sum->latency.Merge(tally->result.latency);
    sum->transfers += tally->result.transfers;
    sum->blocks += tally->result.blocks;
    sum->bytes += tally->result.bytes;
    started = std::min(started, tally->started);
    ended = std::max(ended, tally->ended);
  }
  sum->seconds = static_cast<double>(std::max<int64_t>(ended - started, 1)) / kNanosPerSecond;
  return sum;
}

}  // namespace

absl::Status Mover::Submit(uint64_t index, uint64_t slot) {
  return Unsupported("this mover has no asynchronous form");
}

absl::StatusOr<bool> Mover::Done(uint64_t slot) {
  return Unsupported("this mover has no asynchronous form");
}

absl::StatusOr<std::unique_ptr<RoundResult>> RunRound(
    const std::vector<std::unique_ptr<Mover>>& movers, const RoundBudget& budget,
    const std::function<absl::Status()>& watch) {
  std::vector<std::unique_ptr<Tally>> tallies;
  for (size_t i = 0; i < movers.size(); ++i) tallies.push_back(std::make_unique<Tally>());
  Gate gate(movers.size());
  {
    Threads threads;
    for (size_t i = 0; i < movers.size(); ++i) {
      threads.Start([&mover = *movers[i], &budget, &gate, &tally = *tallies[i]] {
        const absl::Status status = Runner(mover, budget, gate, tally).Run();
        if (!status.ok()) gate.Stop(status);
        gate.Leave();
      });
    }
    while (!gate.WaitForEnd(kWatchInterval)) {
      if (const absl::Status status = watch(); !status.ok()) gate.Stop(status);
    }
  }
  HIXLD_RETURN_IF_ERROR(gate.error());
  return Merge(tallies);
}

}  // namespace hixld::bench
