// Which links make room for a new one (contract 3.2, channel_pool.*).
#include "client/cpp/channel_pool.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace hixld::client {
namespace {

ChannelPoolOptions Pool(int64_t most, double high, double low) {
  return {.max_channels = most, .high_waterline = high, .low_waterline = low};
}

std::vector<PooledLink> Links(int count) {
  std::vector<PooledLink> links;
  for (int i = 0; i < count; ++i) {
    links.push_back({.peer = std::string(1, static_cast<char>('a' + i)),
                     .last_used = static_cast<uint64_t>(count - i)});
  }
  return links;
}

TEST_CASE("a waterline stands for at least one link") {
  CHECK(LinksAt(512, 0.5) == 256);
  CHECK(LinksAt(10, 0.99) == 9);
  CHECK(LinksAt(1, 0.01) == 1);
}

TEST_CASE("below the high waterline nothing goes") {
  const PoolPlan plan = PlanRoom(Pool(10, 0.8, 0.3), Links(7));
  CHECK(plan.room);
  CHECK(plan.evict.empty());
}

TEST_CASE("at the high waterline links go down to the low one, those idle longest first") {
  const PoolPlan plan = PlanRoom(Pool(10, 0.8, 0.3), Links(8));
  CHECK(plan.room);
  CHECK(plan.evict == std::vector<std::string>{"h", "g", "f", "e", "d"});
}

TEST_CASE("links that never carried a transfer go before all others") {
  std::vector<PooledLink> links = Links(8);
  links[2].last_used = 0;
  const PoolPlan plan = PlanRoom(Pool(10, 0.8, 0.7), links);
  CHECK(plan.evict == std::vector<std::string>{"c"});
}

TEST_CASE("a link with a transfer in flight never goes") {
  std::vector<PooledLink> links = Links(8);
  for (PooledLink& link : links) link.busy = link.peer != "b";
  CHECK(PlanRoom(Pool(10, 0.8, 0.3), links).evict == std::vector<std::string>{"b"});
  for (PooledLink& link : links) link.busy = true;
  const PoolPlan below_the_limit = PlanRoom(Pool(10, 0.8, 0.3), links);
  CHECK(below_the_limit.room);
  CHECK(below_the_limit.evict.empty());
  CHECK_FALSE(PlanRoom(Pool(8, 0.8, 0.3), links).room);
}

}  // namespace
}  // namespace hixld::client
