#include "transports/loop/timer_queue.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

#include "proto/base/clock.h"

namespace hixld {
namespace {

TEST_CASE("timers run in the order of their deadlines, once") {
  TimerQueue timers;
  std::vector<int> ran;
  timers.Add(30, [&] { ran.push_back(30); });
  timers.Add(10, [&] { ran.push_back(10); });
  timers.Add(20, [&] { ran.push_back(20); });
  CHECK(timers.NextDeadline() == 10);
  CHECK(timers.RunDue(9) == 0);
  CHECK(timers.RunDue(20) == 2);
  CHECK(ran == std::vector<int>{10, 20});
  CHECK(timers.NextDeadline() == 30);
  CHECK(timers.RunDue(100) == 1);
  CHECK(timers.RunDue(100) == 0);
  CHECK(timers.NextDeadline() == kNoDeadline);
}

TEST_CASE("a cancelled timer never runs, and its id is never mistaken for a later one") {
  TimerQueue timers;
  bool first = false;
  bool second = false;
  const uint64_t id = timers.Add(10, [&] { first = true; });
  timers.Cancel(id);
  const uint64_t next = timers.Add(10, [&] { second = true; });
  CHECK(id != next);
  timers.Cancel(id);
  CHECK(timers.RunDue(10) == 1);
  CHECK_FALSE(first);
  CHECK(second);
}

TEST_CASE("a task may cancel a timer that is due at the same time, and add new ones") {
  TimerQueue timers;
  int ran = 0;
  uint64_t ids[2];
  ids[0] = timers.Add(5, [&] {
    ++ran;
    timers.Cancel(ids[1]);
    timers.Add(5, [&] { ran += 10; });
  });
  ids[1] = timers.Add(6, [&] { ran += 100; });
  CHECK(timers.RunDue(6) == 1);
  CHECK(ran == 1);
  CHECK(timers.RunDue(6) == 1);
  CHECK(ran == 11);
}

TEST_CASE("random adds, cancels and runs agree with a plain map") {
  std::mt19937_64 random(7);
  TimerQueue timers;
  std::map<uint64_t, int64_t> expected;  // id -> deadline
  std::vector<uint64_t> ran;
  int64_t now = 0;
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t what = random() % 4;
    if (what < 2) {
      const int64_t deadline = now + static_cast<int64_t>(random() % 1000);
      auto id = std::make_shared<uint64_t>(0);
      *id = timers.Add(deadline, [&ran, id] { ran.push_back(*id); });
      expected[*id] = deadline;
    } else if (what == 2 && !expected.empty()) {
      auto victim = expected.begin();
      std::advance(victim, random() % std::min<size_t>(expected.size(), 8));
      timers.Cancel(victim->first);
      expected.erase(victim);
    } else {
      now += static_cast<int64_t>(random() % 100);
      ran.clear();
      timers.RunDue(now);
      for (const uint64_t id : ran) {
        REQUIRE(expected.count(id) == 1);
        REQUIRE(expected[id] <= now);
        expected.erase(id);
      }
      for (const auto& [id, deadline] : expected) REQUIRE(deadline > now);
    }
    REQUIRE(timers.size() == expected.size());
  }
}

}  // namespace
}  // namespace hixld
