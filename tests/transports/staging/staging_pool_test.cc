#include "transports/staging/staging_pool.h"

#include <catch2/catch.hpp>
#include <future>
#include <vector>

namespace hixld {
namespace {

void RunOn(Loop& loop, Loop::Task task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  done.get_future().get();
}

TEST_CASE("the pool never hands out more than its limit and serves waiters in order") {
  auto loop = Loop::Start({.name = "staging"});
  REQUIRE(loop.ok());
  std::shared_ptr<StagingPool> pool = StagingPool::Create(loop->get(), 3 * 4096, 4096);
  std::vector<StagingBuffer> held;
  std::vector<int> served;
  RunOn(**loop, [&] {
    for (int i = 0; i < 3; ++i) held.push_back(pool->TryAcquire());
    for (const StagingBuffer& buffer : held) CHECK(buffer.valid());
    CHECK_FALSE(pool->TryAcquire().valid());
    pool->Wait([&](StagingBuffer buffer) { served.push_back(1); });
    const auto ticket = pool->Wait([&](StagingBuffer buffer) { served.push_back(2); });
    pool->Wait([&](StagingBuffer buffer) {
      served.push_back(3);
      held.push_back(std::move(buffer));
    });
    pool->Forget(ticket);
    CHECK(pool->waiting() == 2);
  });
  // A buffer may come back from any thread.
  StagingBuffer returned;
  RunOn(**loop, [&] {
    returned = std::move(held.back());
    held.pop_back();
  });
  returned.reset();
  RunOn(**loop, [] {});
  RunOn(**loop, [&] {
    CHECK(served == std::vector<int>{1, 3});
    CHECK(pool->in_use() == 3);
    held.clear();
    CHECK(pool->in_use() == 0);
  });
}

TEST_CASE("a limit below one buffer still yields one") {
  auto loop = Loop::Start({.name = "staging"});
  REQUIRE(loop.ok());
  std::shared_ptr<StagingPool> pool = StagingPool::Create(loop->get(), 1, 65536);
  RunOn(**loop, [&] {
    StagingBuffer buffer = pool->TryAcquire();
    CHECK(buffer.valid());
    CHECK_FALSE(pool->TryAcquire().valid());
  });
}

}  // namespace
}  // namespace hixld
