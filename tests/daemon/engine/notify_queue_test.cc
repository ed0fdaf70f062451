#include "daemon/engine/notify_queue.h"

#include <catch2/catch.hpp>
#include <thread>

#include "proto/base/status.h"

namespace hixld {
namespace {

using Catch::Contains;

Notify Named(std::string name) { return {.name = std::move(name)}; }

std::vector<std::string> Names(const NotifyQueue::Batch& batch) {
  std::vector<std::string> names;
  for (const auto& entry : batch.entries) names.push_back(entry.notify.name);
  return names;
}

TEST_CASE("notifies are given in order, with their sender, and once") {
  NotifyQueue queue("here", {});
  const auto a = std::make_shared<NotifySource>("a");
  const auto b = std::make_shared<NotifySource>("b");
  CHECK(queue.Push(a, {.name = "1", .message = "m"}).ok());
  CHECK(queue.Push(b, Named("2")).ok());
  CHECK(queue.Push(a, Named("3")).ok());
  CHECK(queue.totals().queued == 3);
  const auto batch = queue.Take(0);
  CHECK(Names(batch) == std::vector<std::string>{"1", "2", "3"});
  CHECK(batch.entries[0].notify.message == "m");
  CHECK(batch.entries[1].sender == "b");
  CHECK_FALSE(batch.more);
  CHECK(queue.Take(batch.last_sequence).entries.empty());
  CHECK(queue.totals().received == 3);
  CHECK(queue.totals().queued == 0);
}

TEST_CASE("what was given is given again until it is confirmed") {
  NotifyQueue queue("here", {});
  const auto a = std::make_shared<NotifySource>("a");
  REQUIRE(queue.Push(a, Named("1")).ok());
  const auto lost = queue.Take(0);
  REQUIRE(queue.Push(a, Named("2")).ok());
  const auto again = queue.Take(0);
  CHECK(Names(again) == std::vector<std::string>{"1", "2"});
  REQUIRE(queue.Push(a, Named("3")).ok());
  CHECK(Names(queue.Take(lost.last_sequence)) == std::vector<std::string>{"2", "3"});
}

TEST_CASE("a channel's share is refused when full and free again once it was given out") {
  NotifyQueue queue("here", {.per_channel = 4096});
  const auto full = std::make_shared<NotifySource>("full");
  const auto other = std::make_shared<NotifySource>("other");
  for (int i = 0; i < 4096; ++i) REQUIRE(queue.Push(full, Named("x")).ok());
  const absl::Status refused = queue.Push(full, Named("y"));
  CHECK(ApiCodeOf(refused) == ApiCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Contains("limits.max_notifies_per_channel"));
  CHECK(queue.Push(other, Named("z")).ok());
  size_t taken = 0;
  uint64_t sequence = 0;
  bool more = true;
  while (more) {
    const auto batch = queue.Take(sequence);
    taken += batch.entries.size();
    sequence = batch.last_sequence;
    more = batch.more;
  }
  CHECK(taken == 4097);
  CHECK(queue.Push(full, Named("y")).ok());
}

TEST_CASE("all senders together are bounded by bytes") {
  NotifyQueue queue("here", {.per_channel = 100, .bytes = 64 << 10});
  const std::string long_text(kMaxNotifyBytes, 'x');
  absl::Status status;
  int pushed = 0;
  while (status.ok()) {
    const auto source = std::make_shared<NotifySource>("sender");
    status = queue.Push(source, {.name = long_text, .message = long_text});
    if (status.ok()) ++pushed;
  }
  CHECK(ApiCodeOf(status) == ApiCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()), Contains("limits.max_notify_bytes_per_engine"));
  CHECK(pushed == (64 << 10) / (2 * 1024 + 128));
}

TEST_CASE("a large queue is given in several answers") {
  NotifyQueue queue("here", {});
  const std::string long_text(kMaxNotifyBytes, 'x');
  const auto source = std::make_shared<NotifySource>("sender");
  for (int i = 0; i < 4096; ++i) {
    REQUIRE(queue.Push(source, {.name = long_text, .message = long_text}).ok());
  }
  const auto first = queue.Take(0);
  CHECK(first.more);
  CHECK(first.entries.size() > 900);
  CHECK(first.entries.size() < 1100);
  // Never confirmed: nothing new is given out, so that it stays bounded.
  CHECK(queue.Take(0).entries.size() == first.entries.size());
  CHECK(queue.Take(first.last_sequence).entries.size() == first.entries.size());
}

TEST_CASE("names and messages of 1024 bytes pass, longer ones are named") {
  const std::string limit(kMaxNotifyBytes, 'x');
  CHECK(CheckNotify({.name = limit, .message = limit}).ok());
  const absl::Status name = CheckNotify({.name = limit + "x"});
  CHECK(ApiCodeOf(name) == ApiCode::kParamInvalid);
  CHECK_THAT(std::string(name.message()), Contains("name has 1025 bytes"));
  CHECK(ApiCodeOf(CheckNotify({.message = limit + "x"})) == ApiCode::kParamInvalid);
}

TEST_CASE("a closed queue drops what it has and refuses") {
  NotifyQueue queue("here", {});
  const auto source = std::make_shared<NotifySource>("sender");
  REQUIRE(queue.Push(source, Named("1")).ok());
  queue.Close();
  CHECK(queue.Take(0).entries.empty());
  CHECK(ApiCodeOf(queue.Push(source, Named("2"))) == ApiCode::kFailed);
}

TEST_CASE("senders and a taker at once: nothing is lost, twice, or out of order") {
  constexpr int kSenders = 4;
  constexpr int kEach = 2000;
  NotifyQueue queue("here", {});
  std::vector<std::thread> senders;
  for (int sender = 0; sender < kSenders; ++sender) {
    senders.emplace_back([&queue, sender] {
      const auto source = std::make_shared<NotifySource>(std::to_string(sender));
      for (int i = 0; i < kEach; ++i) {
        if (!queue.Push(source, Named(std::to_string(i))).ok()) --i;
      }
    });
  }
  std::vector<int> next(kSenders, 0);
  bool ordered = true;
  uint64_t sequence = 0;
  for (int taken = 0; taken < kSenders * kEach;) {
    const auto batch = queue.Take(sequence);
    sequence = batch.last_sequence;
    taken += static_cast<int>(batch.entries.size());
    for (const auto& entry : batch.entries) {
      ordered = ordered && std::stoi(entry.notify.name) == next[std::stoi(entry.sender)]++;
    }
  }
  for (auto& sender : senders) sender.join();
  CHECK(ordered);
  CHECK(queue.Take(sequence).entries.empty());
}

}  // namespace
}  // namespace hixld
