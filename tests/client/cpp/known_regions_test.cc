// What a client knows of registered memory: which transfers need no verdict.
#include "client/cpp/known_regions.h"

#include <catch2/catch.hpp>
#include <vector>

namespace hixld::client {
namespace {

TEST_CASE("intervals that touch become one") {
  Intervals intervals;
  CHECK_FALSE(intervals.Holds(0, 1));
  intervals.Add({100, 200});
  intervals.Add({300, 400});
  CHECK(intervals.Holds(100, 200));
  CHECK_FALSE(intervals.Holds(99, 101));
  CHECK_FALSE(intervals.Holds(150, 201));
  CHECK_FALSE(intervals.Holds(150, 350));
  CHECK_FALSE(intervals.Holds(150, 150));
  intervals.Add({200, 300});
  CHECK(intervals.size() == 1);
  CHECK(intervals.Holds(100, 400));
  intervals.Add({50, 60});
  intervals.Add({500, 600});
  intervals.Add({55, 550});
  CHECK(intervals.size() == 1);
  CHECK(intervals.Holds(50, 600));
  // Nonsense is left out.
  intervals.Add({900, 800});
  CHECK(intervals.size() == 1);
}

TEST_CASE("random intervals hold exactly their union") {
  uint64_t state = 88172645463325252ULL;
  const auto random = [&state](uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
  };
  for (int round = 0; round < 50; ++round) {
    Intervals intervals;
    std::vector<bool> bytes(300);
    for (int i = 0; i < 20; ++i) {
      const uint64_t begin = random(280);
      const uint64_t end = begin + 1 + random(19);
      intervals.Add({begin, end});
      std::fill(bytes.begin() + static_cast<ptrdiff_t>(begin),
                bytes.begin() + static_cast<ptrdiff_t>(end), true);
    }
    for (int i = 0; i < 200; ++i) {
      const uint64_t begin = random(299);
      const uint64_t end = begin + 1 + random(299 - begin);
      bool all = true;
      for (uint64_t at = begin; at < end; ++at) all = all && bytes[at];
      if (intervals.Holds(begin, end) != all) FAIL(begin << ".." << end);
    }
  }
}

struct Pieces {
  std::vector<uint64_t> local, remote, lengths;
  BatchView view() const {
    return {.local_addresses = local.data(),
            .remote_addresses = remote.data(),
            .lengths = lengths.data(),
            .count = lengths.size()};
  }
};

TEST_CASE("a batch is known when all of it is, until something is deregistered") {
  KnownRegions known;
  const Pieces inside = {{0x1000, 0x1800}, {0x5000, 0x9000}, {0x800, 0x100}};
  CHECK_FALSE(known.Hold(1, inside.view(), 0));
  known.Learn(1, {.local = {{0x1000, 0x2000}}, .remote = {{0x5000, 0x6000}}}, 0);
  CHECK_FALSE(known.Hold(1, inside.view(), 0));
  known.Learn(1, {.local = {}, .remote = {{0x9000, 0x9100}}}, 0);
  CHECK(known.Hold(1, inside.view(), 0));
  CHECK_FALSE(known.Hold(2, inside.view(), 0));
  const Pieces beyond = {{0x1000}, {0x5fff}, {2}};
  CHECK_FALSE(known.Hold(1, beyond.view(), 0));
  // Whatever was learned before is doubtful.
  CHECK_FALSE(known.Hold(1, inside.view(), 1));
  CHECK_FALSE(known.Hold(1, inside.view(), 1));
}

TEST_CASE("blocks are known by the lowest and the highest of each table") {
  KnownRegions known;
  known.Learn(1, {.local = {{1000, 2000}, {3000, 4000}}, .remote = {{5000, 6000}, {7000, 8000}}},
              0);
  const std::vector<uint32_t> local = {9, 0, 4};
  const std::vector<uint32_t> remote = {2, 9, 0};
  std::vector<ring::BlockTables> tables = {{1000, 100, 5000, 100, 100},
                                           {3000, 100, 7000, 100, 100}};
  const BlockView blocks = {.tables = tables, .local_blocks = local, .remote_blocks = remote};
  const BatchView view = {.count = 6, .blocks = &blocks};
  CHECK(known.Hold(1, view, 0));
  tables[1].block_bytes = 101;
  CHECK_FALSE(known.Hold(1, view, 0));
  tables[1].block_bytes = 100;
  // Sums that wrap.
  tables[0].remote_stride = UINT64_MAX - 10;
  CHECK_FALSE(known.Hold(1, view, 0));
}

}  // namespace
}  // namespace hixld::client
