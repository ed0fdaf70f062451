#include "transports/rdma/job_queue.h"

#include <catch2/catch.hpp>
#include <map>
#include <numeric>

namespace hixld::rdma {
namespace {

std::unique_ptr<Job> MakeJob(uint64_t id, const std::vector<uint64_t>& lengths) {
  auto transfer = std::make_shared<TransferJob>();
  transfer->id = id;
  for (const uint64_t length : lengths) transfer->pieces.push_back({.length = length});
  return std::make_unique<Job>(std::move(transfer));
}

std::optional<Keys> All(Job&, const Range&) { return Keys{.usable = UINT64_MAX}; }

std::vector<Work> Take(JobQueue& queue, size_t works, uint64_t bytes = UINT64_MAX) {
  std::vector<Work> out;
  queue.Take(works, bytes, All, &out);
  return out;
}

TEST_CASE("Every byte is taken once, in messages of at most the limit") {
  JobQueue queue({.message_bytes = 100});
  auto job = MakeJob(1, {250, 0, 100, 1});
  queue.Add(job.get());
  const std::vector<Work> works = Take(queue, 100);
  std::map<uint32_t, uint64_t> next;
  for (const Work& work : works) {
    CHECK(work.range.length <= 100);
    CHECK(work.range.offset == next[work.range.piece]);
    next[work.range.piece] += work.range.length;
  }
  CHECK(works.size() == 5);
  CHECK(next == std::map<uint32_t, uint64_t>{{0, 250}, {2, 100}, {3, 1}});
  CHECK(queue.empty());
}

TEST_CASE("A job of many pieces does not hold up a small one") {
  JobQueue queue({.turn_works = 4});
  auto large = MakeJob(1, std::vector<uint64_t>(1000, 10));
  auto small = MakeJob(2, {10});
  queue.Add(large.get());
  queue.Add(small.get());
  const std::vector<Work> works = Take(queue, 8);
  REQUIRE(works.size() == 8);
  CHECK(works[4].job == small.get());
}

TEST_CASE("Turns are bounded in bytes too, and continue over several calls") {
  JobQueue queue({.message_bytes = 10, .turn_bytes = 20});
  auto a = MakeJob(1, {1000});
  auto b = MakeJob(2, {1000});
  queue.Add(a.get());
  queue.Add(b.get());
  std::map<Job*, size_t> taken;
  for (int i = 0; i < 10; ++i) {
    for (const Work& work : Take(queue, 4)) ++taken[work.job];
  }
  CHECK(taken[a.get()] == 20);
  CHECK(taken[b.get()] == 20);
}

TEST_CASE("The byte limit stops taking") {
  JobQueue queue({.message_bytes = 100});
  auto job = MakeJob(1, {1000});
  queue.Add(job.get());
  CHECK(Take(queue, 100, 250).size() == 3);
  CHECK(Take(queue, 100, 0).empty());
}

TEST_CASE("A job without keys waits aside; others go on") {
  JobQueue queue({});
  auto waiting = MakeJob(1, {10});
  auto ready = MakeJob(2, {10});
  queue.Add(waiting.get());
  queue.Add(ready.get());
  bool known = false;
  const auto find = [&](Job& job, const Range&) -> std::optional<Keys> {
    if (&job == waiting.get() && !known) return std::nullopt;
    return Keys{.usable = UINT64_MAX};
  };
  std::vector<Work> out;
  queue.Take(10, 1000, find, &out);
  REQUIRE(out.size() == 1);
  CHECK(out[0].job == ready.get());
  CHECK(queue.parked());
  known = true;
  queue.Unpark(waiting.get());
  out.clear();
  queue.Take(10, 1000, find, &out);
  CHECK(out.size() == 1);
}

TEST_CASE("Jobs leave from anywhere and come back at the end") {
  JobQueue queue({});
  std::vector<std::unique_ptr<Job>> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.push_back(MakeJob(i, {10}));
    queue.Add(jobs.back().get());
  }
  queue.Remove(jobs[1].get());
  queue.Remove(jobs[1].get());  // no effect
  queue.Remove(jobs[3].get());
  queue.Add(jobs[1].get());
  std::vector<Job*> order;
  for (const Work& work : Take(queue, 10)) order.push_back(work.job);
  CHECK(order == std::vector<Job*>{jobs[0].get(), jobs[2].get(), jobs[1].get()});
  CHECK(queue.empty());
  // All without keys wait, and all come back.
  queue.Add(jobs[3].get());
  jobs.push_back(MakeJob(4, {10}));
  queue.Add(jobs[4].get());
  std::vector<Work> none;
  queue.Take(
      10, 1000, [](Job&, const Range&) { return std::optional<Keys>(); }, &none);
  CHECK(none.empty());
  CHECK(queue.empty());
  queue.UnparkAll();
  CHECK_FALSE(queue.parked());
  CHECK(Take(queue, 10).size() == 2);
}

TEST_CASE("What was lost is sent again, before the rest") {
  JobQueue queue({.message_bytes = 10});
  auto job = MakeJob(1, {30});
  queue.Add(job.get());
  const Work first = Take(queue, 1).at(0);
  job->again.push_back(first.range);
  const std::vector<Work> rest = Take(queue, 10);
  REQUIRE(rest.size() == 3);
  CHECK(rest[0].range.offset == 0);
  CHECK(rest[2].range.offset == 20);
  job->again.push_back(rest[1].range);
  queue.Add(job.get());
  CHECK(Take(queue, 10).at(0).range.offset == 10);
}

TEST_CASE("Keys that cover less cut the message") {
  JobQueue queue({});
  auto job = MakeJob(1, {100});
  queue.Add(job.get());
  std::vector<Work> out;
  queue.Take(
      10, 1000, [](Job&, const Range& range) { return Keys{.usable = 64 - range.offset % 64}; },
      &out);
  REQUIRE(out.size() == 2);
  CHECK(out[0].range.length == 64);
  CHECK(out[1].range.length == 36);
}

TEST_CASE("A removed job is not taken") {
  JobQueue queue({});
  auto job = MakeJob(1, {100});
  queue.Add(job.get());
  queue.Remove(job.get());
  CHECK(Take(queue, 10).empty());
}

}  // namespace
}  // namespace hixld::rdma
