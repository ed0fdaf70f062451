#include "daemon/engine/batch.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "proto/base/status.h"
#include "tests/daemon/engine/fakes.h"

namespace hixld {
namespace {

using Catch::Contains;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::shared_ptr<const Region> MakeRegion(uint64_t id, uint64_t address, uint64_t length,
                                         uint64_t access_offset = 0) {
  auto region = std::make_shared<Region>();
  region->id = id;
  region->address = address;
  region->length = length;
  region->access = std::make_shared<TestMemory>(access_offset + length);
  region->access_offset = access_offset;
  return region;
}

TEST_CASE("arrays of different lengths, too many descriptors and null addresses are refused") {
  const std::vector<uint64_t> one = {1};
  const std::vector<uint64_t> two = {1, 2};
  CHECK(ApiCodeOf(CheckBatch({one, two, two}, 10)) == ApiCode::kParamInvalid);
  const absl::Status many = CheckBatch({two, two, two}, 1);
  CHECK(ApiCodeOf(many) == ApiCode::kResourceExhausted);
  CHECK_THAT(Message(many), Contains("limits.max_descriptors_per_transfer"));
  const std::vector<uint64_t> null = {1, 0};
  CHECK_THAT(Message(CheckBatch({null, two, two}, 10)), Contains("descriptor 1: the local"));
  CHECK_THAT(Message(CheckBatch({two, null, two}, 10)), Contains("descriptor 1: the remote"));
  CHECK(CheckBatch({two, two, null}, 10).ok());
  CHECK(CheckBatch({}, 10).ok());
}

TEST_CASE("neighbours on both sides are joined, others are not") {
  const RegionSnapshot local({MakeRegion(1, 0x1000, 0x1000)}, 1);
  const RegionSnapshot remote({MakeRegion(2, 0x9000, 0x1000)}, 1);
  const std::vector<uint64_t> l = {0x1000, 0x1010, 0x1020, 0x1040};
  const std::vector<uint64_t> r = {0x9000, 0x9010, 0x9030, 0x9050};
  const std::vector<uint64_t> n = {0x10, 0x10, 0x10, 0x10};
  BatchPlan plan;
  REQUIRE(PlanBatch({l, r, n}, local, remote, true, &plan).ok());
  CHECK(plan.bytes == 0x40);
  REQUIRE(plan.pieces.size() == 3);
  CHECK(plan.pieces[0].length == 0x20);
  CHECK(plan.pieces[1].remote.offset == 0x30);
  CHECK(plan.remote_regions == std::vector<uint64_t>{2});
}

TEST_CASE("ranges that span regions are split at every border of either side") {
  const RegionSnapshot local({MakeRegion(1, 0x1000, 0x30), MakeRegion(2, 0x1030, 0x50, 0x100)}, 1);
  const RegionSnapshot remote({MakeRegion(7, 0x9000, 0x40), MakeRegion(3, 0x9040, 0x40)}, 1);
  const std::vector<uint64_t> l = {0x1000};
  const std::vector<uint64_t> r = {0x9000};
  const std::vector<uint64_t> n = {0x80};
  BatchPlan plan;
  REQUIRE(PlanBatch({l, r, n}, local, remote, true, &plan).ok());
  REQUIRE(plan.pieces.size() == 3);
  CHECK(plan.pieces[0].length == 0x30);
  CHECK(plan.pieces[1].length == 0x10);
  CHECK(plan.pieces[1].local.offset == 0x100);
  CHECK(plan.pieces[2].length == 0x40);
  CHECK(plan.pieces[2].local.offset == 0x110);
  CHECK(plan.pieces[2].remote.offset == 0);
  CHECK(plan.remote_regions == std::vector<uint64_t>{3, 7});
}

TEST_CASE("what is not registered is refused by descriptor, side and range") {
  const RegionSnapshot local({MakeRegion(1, 0x1000, 0x1000)}, 1);
  const RegionSnapshot remote({MakeRegion(2, 0x9000, 0x1000)}, 1);
  const auto plan = [&](uint64_t l, uint64_t r, uint64_t n) {
    const std::vector<uint64_t> ls = {0x1000, l};
    const std::vector<uint64_t> rs = {0x9000, r};
    const std::vector<uint64_t> ns = {1, n};
    BatchPlan out;
    return Message(PlanBatch({ls, rs, ns}, local, remote, false, &out));
  };
  CHECK(plan(0x1fff, 0x9fff, 1).empty());
  CHECK_THAT(plan(0x1fff, 0x9000, 2), Contains("descriptor 1, local side") && Contains("0x1fff+2"));
  CHECK_THAT(plan(0x1000, 0x8fff, 2), Contains("descriptor 1, remote side"));
  CHECK_THAT(plan(0x1000, 0x9000, 0), Contains("descriptor 1") && Contains("length 0"));
  CHECK_THAT(plan(0x1000, ~uint64_t{0} - 3, 8), Contains("descriptor 1, remote side"));
  CHECK_THAT(plan(0x1000, 0x9000, ~uint64_t{0}), Contains("descriptor 1, local side"));
}

TEST_CASE("joined and split pieces move the bytes that the descriptors name") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::shared_ptr<const Region>> locals, remotes;
    for (uint64_t i = 0; i < 4; ++i) {
      locals.push_back(MakeRegion(i + 1, 0x1000 + i * 64, 64, random() % 3 * 16));
      remotes.push_back(MakeRegion(i + 1, 0x9000 + i * 64, 64));
    }
    const RegionSnapshot local(locals, 1), remote(remotes, 1);
    std::vector<uint64_t> l, r, n;
    std::vector<uint8_t> source(256), expected(256);
    for (auto& byte : source) byte = static_cast<uint8_t>(random());
    for (uint64_t i = 0; i < 256; ++i) {
      remotes[i / 64]->access->mapped()[i % 64] = static_cast<std::byte>(source[i]);
    }
    for (uint64_t at = 0; at < 256;) {
      const uint64_t length = std::min<uint64_t>(1 + random() % 90, 256 - at);
      const uint64_t from = random() % 2 == 0 ? at : random() % (257 - length);
      l.push_back(0x1000 + at);
      r.push_back(0x9000 + from);
      n.push_back(length);
      memcpy(expected.data() + at, source.data() + from, length);
      at += length;
    }
    BatchPlan plan;
    REQUIRE(PlanBatch({l, r, n}, local, remote, true, &plan).ok());
    for (const CopyPiece& piece : plan.pieces) {
      memcpy(piece.local.access->mapped() + piece.local.offset,
             piece.remote.access->mapped() + piece.remote.offset, piece.length);
    }
    for (uint64_t i = 0; i < 256; ++i) {
      const Region& region = *locals[i / 64];
      REQUIRE(region.access->mapped()[region.access_offset + i % 64] ==
              static_cast<std::byte>(expected[i]));
    }
  }
}

}  // namespace
}  // namespace hixld
