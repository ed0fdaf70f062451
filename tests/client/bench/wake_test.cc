#include "client/bench/wake.h"

#include <catch2/catch.hpp>

namespace hixld::bench {
namespace {

TEST_CASE("every transfer of the wake baseline has been heard by its sleeper") {
  auto movers = WakeMovers(2);
  REQUIRE(movers.ok());
  REQUIRE(movers->size() == 2);
  const RoundBudget budget = {.iterations = 50};
  const auto round = RunRound(*movers, budget, [] { return absl::OkStatus(); });
  REQUIRE(round.ok());
  CHECK((*round)->transfers == 100);
  CHECK((*round)->bytes == 0);
  CHECK((*round)->latency.Quantile(0.5) > 0);
}

TEST_CASE("sleepers that were never woken end as well") {
  auto movers = WakeMovers(4);
  REQUIRE(movers.ok());
  movers->clear();
  CHECK(movers->empty());
}

}  // namespace
}  // namespace hixld::bench
