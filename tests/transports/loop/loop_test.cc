#include "transports/loop/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>
#include <vector>

#include "proto/base/barrier.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"

namespace hixld {
namespace {

std::unique_ptr<Loop> StartLoop(int64_t max_spin_ns = 0) {
  auto loop = Loop::Start({.name = "test-loop", .max_spin_ns = max_spin_ns});
  REQUIRE(loop.ok());
  return std::move(*loop);
}

// Runs `task` on the loop and waits for it.
void RunOn(Loop& loop, Loop::Task task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  done.get_future().get();
}

TEST_CASE("tasks of one thread run in order, on the loop's thread") {
  auto loop = StartLoop();
  std::vector<int> order;
  bool in_loop = true;
  for (int i = 0; i < 1000; ++i) {
    loop->Post([&, i] {
      order.push_back(i);
      in_loop = in_loop && loop->InLoopThread();
    });
  }
  RunOn(*loop, [] {});
  CHECK(in_loop);
  CHECK_FALSE(loop->InLoopThread());
  REQUIRE(order.size() == 1000);
  for (int i = 0; i < 1000; ++i) REQUIRE(order[i] == i);
}

// A count that one thread waits for. std::atomic::wait loses wake-ups under QEMU (barrier.h).
class Count {
 public:
  void Add() {
    MutexLock lock(&mutex_);
    ++count_;
    changed_.Signal();
  }
  void WaitFor(int count) {
    MutexLock lock(&mutex_);
    while (count_ < count) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_CASE("no post is lost however the loop falls asleep in between") {
  auto loop = StartLoop();
  constexpr int kThreads = 4;
  constexpr int kRounds = 5'000;
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      // Each thread waits for its own task before it posts the next, so the loop sleeps often: a
      // lost wake-up would hang here.
      Count mine;
      for (int i = 1; i <= kRounds; ++i) {
        loop->Post([&] {
          ran.fetch_add(1, std::memory_order_relaxed);
          mine.Add();
        });
        mine.WaitFor(i);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(ran == kThreads * kRounds);
}

TEST_CASE("Dispatch runs at once on the loop's thread, Post does not") {
  auto loop = StartLoop();
  std::vector<int> order;
  RunOn(*loop, [&] {
    loop->Post([&] { order.push_back(3); });
    loop->Dispatch([&] { order.push_back(1); });
    order.push_back(2);
  });
  RunOn(*loop, [] {});
  CHECK(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("queued tasks run before the loop is destroyed") {
  int ran = 0;
  auto loop = StartLoop();
  std::promise<void> release;
  auto released = release.get_future();
  loop->Post([&] { released.get(); });
  for (int i = 0; i < 100; ++i) loop->Post([&] { ++ran; });
  release.set_value();
  loop.reset();
  CHECK(ran == 100);
}

TEST_CASE("timers fire at or after their deadline and can be cancelled") {
  auto loop = StartLoop();
  std::promise<int64_t> fired;
  std::atomic<bool> cancelled_ran{false};
  const int64_t deadline = MonotonicNanos() + 2 * kNanosPerMilli;
  loop->Post([&] {
    const auto id = loop->AddTimer(deadline - kNanosPerMilli, [&] { cancelled_ran = true; });
    loop->AddTimer(deadline, [&] { fired.set_value(MonotonicNanos()); });
    loop->CancelTimer(id);
  });
  CHECK(fired.get_future().get() >= deadline);
  CHECK_FALSE(cancelled_ran);
}

TEST_CASE("descriptors wake the loop; a callback may remove its own and others") {
  auto loop = StartLoop();
  UniqueFd first(eventfd(0, EFD_NONBLOCK));
  UniqueFd second(eventfd(0, EFD_NONBLOCK));
  std::atomic<int> calls{0};
  std::promise<void> called;
  RunOn(*loop, [&] {
    auto remove_both = [&](uint32_t events) {
      CHECK((events & EPOLLIN) != 0);
      calls.fetch_add(1);
      loop->RemoveFd(first.get());
      loop->RemoveFd(second.get());
      called.set_value();
    };
    REQUIRE(loop->AddFd(first.get(), EPOLLIN, remove_both).ok());
    REQUIRE(loop->AddFd(second.get(), EPOLLIN, remove_both).ok());
    CHECK_FALSE(loop->AddFd(second.get(), EPOLLIN, remove_both).ok());
    CHECK_FALSE(loop->AddFd(-1, EPOLLIN, remove_both).ok());
    // Both are ready before the loop looks.
    const uint64_t one = 1;
    REQUIRE(write(first.get(), &one, sizeof(one)) == sizeof(one));
    REQUIRE(write(second.get(), &one, sizeof(one)) == sizeof(one));
  });
  called.get_future().get();
  RunOn(*loop, [&] {
    CHECK_FALSE(loop->ModifyFd(first.get(), EPOLLIN).ok());
    loop->RemoveFd(first.get());
  });
  CHECK(calls == 1);
}

TEST_CASE("steps run again and again, with other work in between, until they end") {
  auto loop = StartLoop();
  int steps = 0;
  int tasks_between = 0;
  std::promise<void> done;
  loop->Post([&] {
    loop->AddStep([&] {
      loop->Post([&] { ++tasks_between; });
      if (++steps < 100) return true;
      done.set_value();
      return false;
    });
  });
  done.get_future().get();
  RunOn(*loop, [] {});
  CHECK(steps == 100);
  CHECK(tasks_between == 100);
}

// A one-slot mailbox with the announce-look-again-sleep agreement of the rings.
class Mailbox : public Loop::Poller {
 public:
  explicit Mailbox(Loop* loop) : loop_(loop) {}
  bool Poll() override {
    if (!full_.load(std::memory_order_acquire)) return false;
    full_.store(false, std::memory_order_release);
    taken_.Add();
    return true;
  }
  bool TrySleep() override {
    asleep_.store(true, std::memory_order_seq_cst);
    StoreLoadBarrier();
    return !full_.load(std::memory_order_seq_cst);
  }
  void Wake() override { asleep_.store(false, std::memory_order_relaxed); }

  void Put() {
    full_.store(true, std::memory_order_seq_cst);
    StoreLoadBarrier();
    if (asleep_.load(std::memory_order_seq_cst)) {
      wakes_.fetch_add(1, std::memory_order_relaxed);
      loop_->Post([] {});
    }
    taken_.WaitFor(++put_);
  }
  int wakes() const { return wakes_; }

 private:
  Loop* const loop_;
  std::atomic<bool> full_{false};
  std::atomic<bool> asleep_{false};
  std::atomic<int> wakes_{0};
  Count taken_;
  int put_ = 0;  // by the one thread that puts
};

TEST_CASE("pollers announce their sleep, so that no item is left lying") {
  const int64_t spin = GENERATE(int64_t{0}, int64_t{50'000});
  auto loop = StartLoop(spin);
  Mailbox mailbox(loop.get());
  RunOn(*loop, [&] { loop->AddPoller(&mailbox); });
  for (int i = 0; i < 5'000; ++i) mailbox.Put();
  RunOn(*loop, [&] { loop->RemovePoller(&mailbox); });
  // An idle loop does not look at a poller that was removed.
  RunOn(*loop, [] {});
  SUCCEED("every item was taken");
}

int64_t ThreadCpuNanos(Loop& loop) {
  int64_t cpu = 0;
  RunOn(loop, [&] {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    cpu = now.tv_sec * kNanosPerSecond + now.tv_nsec;
  });
  return cpu;
}

TEST_CASE("a loop with nothing to do sleeps") {
  auto loop = StartLoop(50'000);
  Mailbox mailbox(loop.get());
  RunOn(*loop, [&] { loop->AddPoller(&mailbox); });
  for (int i = 0; i < 1'000; ++i) mailbox.Put();
  const int64_t before = ThreadCpuNanos(*loop);
  const uint64_t wakeups = loop->stats().wakeups;
  std::promise<void> later;
  loop->Post(
      [&] { loop->AddTimer(MonotonicNanos() + 100 * kNanosPerMilli, [&] { later.set_value(); }); });
  later.get_future().get();
  // A few spins of 50 us and the wake-ups themselves; a loop that polled would have used 100 ms.
  CHECK(ThreadCpuNanos(*loop) - before < 20 * kNanosPerMilli);
  CHECK(loop->stats().wakeups - wakeups < 20);
  RunOn(*loop, [&] { loop->RemovePoller(&mailbox); });
}

TEST_CASE("a worker set hands out its loops in turn and refuses to be empty") {
  auto workers = WorkerSet::Start(3, 0);
  REQUIRE(workers.ok());
  CHECK((*workers)->size() == 3);
  CHECK((*workers)->Next() == 0);
  CHECK((*workers)->Next() == 1);
  CHECK((*workers)->Next() == 2);
  CHECK((*workers)->Next() == 0);
  CHECK(&(*workers)->at(4) == &(*workers)->at(1));
  CHECK_FALSE(WorkerSet::Start(0, 0).ok());
}

TEST_CASE("workers that post to each other can be stopped at any moment") {
  for (int round = 0; round < 20; ++round) {
    auto workers = WorkerSet::Start(2, 0);
    REQUIRE(workers.ok());
    WorkerSet* set = workers->get();
    auto counter = std::make_shared<std::atomic<int>>(0);
    struct Ball {
      WorkerSet* set;
      std::shared_ptr<std::atomic<int>> counter;
      void operator()() {
        const int n = counter->fetch_add(1);
        set->at(n).Post(Ball{set, counter});
      }
    };
    set->at(0).Post(Ball{set, counter});
    while (counter->load() < 10) std::this_thread::yield();
    workers->reset();
    CHECK(counter.use_count() == 1);
  }
}

}  // namespace
}  // namespace hixld
