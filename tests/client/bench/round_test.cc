#include "client/bench/round.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <map>

#include "client/bench/text.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

absl::Status NothingToSee() { return absl::OkStatus(); }

// Counts what is asked of it; asynchronous transfers end when they are looked at twice.
class FakeMover : public Mover {
 public:
  explicit FakeMover(uint64_t transfers) : transfers_(transfers) {}
  uint64_t count() const override { return transfers_; }
  uint64_t blocks(uint64_t) const override { return 2; }
  uint64_t bytes(uint64_t index) const override { return 100 + index; }
  absl::Status Move(uint64_t index) override {
    in_order_ &= index == moved_ % transfers_;
    if (++moved_ == fail_at_) return Failed("broken");
    return absl::OkStatus();
  }
  absl::Status Submit(uint64_t index, uint64_t slot) override {
    in_order_ &= looked_.count(slot) == 0 && index == submitted_ % transfers_;
    looked_[slot] = 0;
    most_ = std::max(most_, looked_.size());
    ++submitted_;
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Done(uint64_t slot) override {
    in_order_ &= looked_.count(slot) == 1;
    if (++looked_[slot] < 2) return false;
    looked_.erase(slot);
    return true;
  }

  const uint64_t transfers_;
  // Whether transfers came in turn and slots were free when they were used.
  bool in_order_ = true;
  uint64_t moved_ = 0;
  uint64_t submitted_ = 0;
  uint64_t fail_at_ = 0;
  size_t most_ = 0;
  std::map<uint64_t, int> looked_;
};

std::vector<std::unique_ptr<Mover>> Fakes(size_t threads, uint64_t transfers) {
  std::vector<std::unique_ptr<Mover>> movers;
  for (size_t i = 0; i < threads; ++i) movers.push_back(std::make_unique<FakeMover>(transfers));
  return movers;
}

FakeMover& Fake(const std::vector<std::unique_ptr<Mover>>& movers, size_t index) {
  return static_cast<FakeMover&>(*movers[index]);
}

TEST_CASE("iterations are counted exactly, warm-up apart") {
  const auto movers = Fakes(3, 4);
  const auto round = RunRound(movers, {.iterations = 10}, NothingToSee);
  REQUIRE(round.ok());
  CHECK((*round)->transfers == 30);
  CHECK((*round)->blocks == 60);
  CHECK((*round)->latency.count() == 30);
  CHECK((*round)->seconds > 0);
  // Transfers 0, 1, 2, 3, 0, 1, 2, 3, 0, 1.
  CHECK((*round)->bytes == 3 * (10 * 100 + 2 * (0 + 1 + 2 + 3) + 0 + 1));
  for (size_t i = 0; i < 3; ++i) CHECK(Fake(movers, i).moved_ == 4 + 10);
}

TEST_CASE("a round makes a whole pass, however short its time") {
  const auto movers = Fakes(1, 1000);
  const auto round = RunRound(movers, {.duration = 1}, NothingToSee);
  REQUIRE(round.ok());
  CHECK((*round)->transfers == 1000);
  CHECK(Fake(movers, 0).in_order_);
}

TEST_CASE("a round lasts as long as it was told") {
  const auto movers = Fakes(2, 1);
  const auto round = RunRound(movers, {.duration = 20 * kNanosPerMilli}, NothingToSee);
  REQUIRE(round.ok());
  CHECK((*round)->seconds >= 0.02);
}

TEST_CASE("pauses lie between transfers and are not counted as theirs") {
  const auto movers = Fakes(1, 1);
  const auto round =
      RunRound(movers, {.iterations = 5, .pause = 20 * kNanosPerMilli}, NothingToSee);
  REQUIRE(round.ok());
  CHECK((*round)->seconds >= 0.1);
  CHECK((*round)->latency.Quantile(0.5) < 20.0 * kNanosPerMilli);
}

TEST_CASE("asynchronous transfers fill the depth and all end") {
  const auto movers = Fakes(2, 3);
  const auto round = RunRound(movers, {.iterations = 50, .depth = 8}, NothingToSee);
  REQUIRE(round.ok());
  CHECK((*round)->transfers == 100);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(Fake(movers, i).most_ == 8);
    CHECK(Fake(movers, i).submitted_ == 50);
    CHECK(Fake(movers, i).looked_.empty());
    CHECK(Fake(movers, i).in_order_);
  }
}

TEST_CASE("the first failure ends the round for all threads") {
  for (const uint64_t fail_at : {1, 7}) {
    const auto movers = Fakes(3, 2);
    Fake(movers, 1).fail_at_ = fail_at;
    const auto round = RunRound(movers, {.duration = 3600 * kNanosPerSecond}, NothingToSee);
    REQUIRE(!round.ok());
    CHECK(ErrorText(round.status()) == "broken");
  }
}

TEST_CASE("the watcher can end a round") {
  const auto movers = Fakes(2, 2);
  const auto round =
      RunRound(movers, {.duration = 3600 * kNanosPerSecond}, [] { return Failed("peer gone"); });
  REQUIRE(!round.ok());
  CHECK(ErrorText(round.status()) == "peer gone");
}

TEST_CASE("a mover without an asynchronous form says so") {
  class SyncOnly : public FakeMover {
   public:
    SyncOnly() : FakeMover(1) {}
    absl::Status Submit(uint64_t index, uint64_t slot) override {
      return Mover::Submit(index, slot);
    }
  };
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::make_unique<SyncOnly>());
  CHECK(!RunRound(movers, {.iterations = 1, .depth = 1}, NothingToSee).ok());
}

}  // namespace
}  // namespace hixld::bench
