#include "daemon/memory/executor.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "proto/base/status.h"

namespace hixld {
namespace {

using Options = Executor::Options;

TEST_CASE("tasks of one key run in order and never two at a time") {
  std::atomic<int> running{0};
  std::vector<int> order;
  {
    Executor executor(Options{.threads = 4});
    for (int i = 0; i < 200; ++i) {
      REQUIRE(executor
                  .Submit(1, "count",
                          [&, i] {
                            if (running.fetch_add(1) != 0) abort();
                            order.push_back(i);
                            running.fetch_sub(1);
                            return false;
                          })
                  .ok());
    }
  }
  REQUIRE(order.size() == 200);
  for (int i = 0; i < 200; ++i) CHECK(order[i] == i);
}

TEST_CASE("keys take turns between the steps of a long task") {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::vector<uint64_t> turns;
  {
    Executor executor(Options{.threads = 1});
    REQUIRE(executor.Submit(9, "wait", [open] { return open.wait(), false; }).ok());
    for (uint64_t key : {1, 2}) {
      REQUIRE(executor
                  .Submit(key, "steps",
                          [&turns, key, left = 3]() mutable {
                            turns.push_back(key);
                            return --left > 0;
                          })
                  .ok());
    }
    gate.set_value();
  }
  CHECK(turns == std::vector<uint64_t>{1, 2, 1, 2, 1, 2});
}

TEST_CASE("a full queue refuses, a release does not") {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> started;
  std::atomic<int> ran{0};
  {
    Executor executor(
        Options{.threads = 1, .max_queued = 2, .max_queued_option = "limits.max_queued"});
    REQUIRE(executor
                .Submit(1, "wait",
                        [open, &started] {
                          started.set_value();
                          open.wait();
                          return false;
                        })
                .ok());
    started.get_future().wait();
    for (int i = 0; i < 2; ++i) REQUIRE(executor.Submit(1, "x", [&] { return ++ran, false; }).ok());
    const absl::Status refused = executor.Submit(1, "x", [&] { return ++ran, false; });
    CHECK(ApiCodeOf(refused) == ApiCode::kResourceExhausted);
    CHECK(ErrorInfoOf(refused).option == "limits.max_queued");
    // Another key has a queue of its own.
    CHECK(executor.Submit(2, "x", [&] { return ++ran, false; }).ok());
    executor.Release(1, "give back", [&] { ++ran; });
    gate.set_value();
  }
  CHECK(ran == 4);
}

TEST_CASE("a step that hangs is reported, replaced and forgotten when it comes back") {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<std::pair<uint64_t, std::string>> stuck;
  std::promise<uint64_t> recovered;
  Executor executor(Options{.threads = 1, .stuck_after_ns = 20'000'000});
  executor.SetStuckCallbacks({
      .on_stuck =
          [&](uint64_t key, const std::string& what) {
            stuck.set_value({key, what});
          },
      .on_recovered = [&](uint64_t key) { recovered.set_value(key); },
  });
  REQUIRE(executor.Submit(7, "copy of pid 7", [open] { return open.wait(), false; }).ok());
  CHECK(stuck.get_future().get() == std::pair<uint64_t, std::string>(7, "copy of pid 7"));
  REQUIRE(executor.Stuck().size() == 1);
  CHECK(executor.Stuck()[0].key == 7);
  CHECK(executor.Stuck()[0].running_ns > 0);
  // The only thread hangs, and yet another key is served.
  std::promise<void> served;
  REQUIRE(executor.Submit(8, "other", [&] { return served.set_value(), false; }).ok());
  served.get_future().wait();
  gate.set_value();
  CHECK(recovered.get_future().get() == 7);
  CHECK(executor.Stuck().empty());
}

TEST_CASE("replacements are bounded") {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> three_stuck;
  std::promise<void> all_entered;
  std::atomic<int> stuck{0};
  std::atomic<int> entered{0};
  Executor executor(Options{.threads = 1, .stuck_after_ns = 5'000'000, .max_replacements = 2});
  executor.SetStuckCallbacks({.on_stuck =
                                  [&](uint64_t, const std::string&) {
                                    if (++stuck == 3) three_stuck.set_value();
                                  },
                              .on_recovered = nullptr});
  for (uint64_t key = 1; key <= 5; ++key) {
    REQUIRE(executor
                .Submit(key, "hang",
                        [&, open] {
                          if (++entered == 5) all_entered.set_value();
                          open.wait();
                          return false;
                        })
                .ok());
  }
  three_stuck.get_future().wait();
  CHECK(entered == 3);
  // Once they come back, the rest runs.
  gate.set_value();
  all_entered.get_future().wait();
}

TEST_CASE("a stopped executor leaves the stuck thread behind") {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  auto ended = std::make_shared<std::promise<void>>();
  auto done = ended->get_future();
  {
    Executor executor(Options{.threads = 1, .stuck_after_ns = 5'000'000});
    REQUIRE(executor
                .Submit(1, "hang",
                        [open, ended] {
                          open.wait();
                          ended->set_value();
                          return false;
                        })
                .ok());
  }
  gate.set_value();
  done.wait();
}

TEST_CASE("a task may destroy its own executor") {
  std::promise<void> gate, destroyed;
  auto executor = std::make_shared<Executor>(Options{.threads = 2});
  REQUIRE(executor
              ->Submit(1, "destroy",
                       [owner = executor, open = gate.get_future().share(), &destroyed]() mutable {
                         open.wait();
                         owner.reset();
                         destroyed.set_value();
                         return false;
                       })
              .ok());
  executor.reset();
  gate.set_value();
  destroyed.get_future().wait();
}

TEST_CASE("objects are destroyed by the executor, also after it has stopped") {
  struct Tracer {
    std::promise<std::thread::id>* where;
    ~Tracer() { where->set_value(std::this_thread::get_id()); }
  };
  std::promise<std::thread::id> first, second;
  std::shared_ptr<Tracer> late;
  {
    Executor executor(Options{.threads = 1});
    auto early = executor.DestroyHere(1, std::unique_ptr<Tracer>(new Tracer{&first}));
    late = executor.DestroyHere(1, std::unique_ptr<Tracer>(new Tracer{&second}));
    early.reset();
    CHECK(first.get_future().get() != std::this_thread::get_id());
  }
  late.reset();
  CHECK(second.get_future().get() == std::this_thread::get_id());
}

}  // namespace
}  // namespace hixld
