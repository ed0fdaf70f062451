#include "daemon/memory/uncovered.h"

#include <catch2/catch.hpp>
#include <random>

#include "proto/base/status.h"

namespace hixld {
namespace {

std::shared_ptr<const Region> MakeRegion(uint64_t address, uint64_t length,
                                         MemoryType type = MemoryType::kHost) {
  auto region = std::make_shared<Region>();
  region->id = address;
  region->address = address;
  region->length = length;
  region->type = type;
  return region;
}

RegionSnapshot Snapshot(std::vector<std::shared_ptr<const Region>> regions) {
  return RegionSnapshot(std::move(regions), 1);
}

std::vector<std::pair<uint64_t, uint64_t>> Pairs(const std::vector<AddressRange>& ranges) {
  std::vector<std::pair<uint64_t, uint64_t>> pairs;
  for (const auto& range : ranges) pairs.emplace_back(range.address, range.length);
  return pairs;
}

using Expected = std::vector<std::pair<uint64_t, uint64_t>>;

TEST_CASE("what no region holds is found, joined and sorted") {
  const auto regions = Snapshot({MakeRegion(100, 50), MakeRegion(150, 50),
                                 MakeRegion(180, 60, MemoryType::kDevice), MakeRegion(400, 10)});
  CHECK(Uncovered(regions, {}).empty());
  CHECK(Uncovered(regions, {{100, 140}}).empty());
  CHECK(Pairs(Uncovered(regions, {{90, 20}})) == Expected{{90, 10}});
  CHECK(Pairs(Uncovered(regions, {{230, 20}})) == Expected{{240, 10}});
  CHECK(Pairs(Uncovered(regions, {{50, 400}})) == Expected{{50, 50}, {240, 160}, {410, 40}});
  CHECK(Pairs(Uncovered(regions, {{520, 10}, {500, 20}, {505, 3}})) == Expected{{500, 30}});
}

TEST_CASE("a snapshot with its gaps filled resolves what it did not") {
  const auto regions = Snapshot({MakeRegion(100, 50), MakeRegion(200, 50, MemoryType::kDevice)});
  const auto gaps = Uncovered(regions, {{90, 170}});
  const auto filled = WithUncovered(regions, gaps, [](const AddressRange&) { return nullptr; });
  std::vector<RegionPart> parts;
  CHECK_FALSE(regions.Resolve(90, 170, &parts).ok());
  REQUIRE(filled->Resolve(90, 170, &parts).ok());
  CHECK(parts.size() == 5);
  CHECK(parts[0].region->id == 0);
  CHECK(parts[1].region->id == 100);
  CHECK(RegionAt(*filled, 210)->type == MemoryType::kDevice);
  CHECK(RegionAt(*filled, 260) == nullptr);
}

TEST_CASE("random regions and ranges: every address is in a region or in one gap") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::shared_ptr<const Region>> list;
    uint64_t at = 1;
    while (at < 900) {
      at += random() % 60;
      const uint64_t length = 1 + random() % 40;
      list.push_back(
          MakeRegion(at, length, random() % 2 == 0 ? MemoryType::kHost : MemoryType::kDevice));
      at += length;
    }
    const auto regions = Snapshot(list);
    std::vector<AddressRange> ranges;
    for (int i = 0; i < 8; ++i) ranges.push_back({1 + random() % 1000, 1 + random() % 90});
    const auto gaps = Uncovered(regions, ranges);
    for (uint64_t address = 0; address < 1200; ++address) {
      const auto holds = [address](const AddressRange& range) {
        return address >= range.address && address < range.end();
      };
      const bool asked = std::any_of(ranges.begin(), ranges.end(), holds);
      const auto in_gaps = std::count_if(gaps.begin(), gaps.end(), holds);
      const bool registered = RegionAt(regions, address) != nullptr;
      if (in_gaps != (asked && !registered ? 1 : 0)) FAIL("address " << address);
    }
  }
}

TEST_CASE("grants add up while they are open") {
  RelayGrants grants;
  int made = 0;
  const RelayGrants::MakeAccess access = [&made](const AddressRange&) {
    ++made;
    return nullptr;
  };
  CHECK(grants.Load() == nullptr);
  const auto first = grants.Open({{100, 50}}, access);
  const auto second = grants.Open({{120, 100}, {500, 1}}, access);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(*first != *second);
  REQUIRE(grants.Load() != nullptr);
  CHECK(grants.Load()->size() == 2);
  CHECK(grants.Load()->Find(100, 120) != nullptr);
  grants.Close(*second, access);
  CHECK(grants.Load()->Find(100, 50) != nullptr);
  CHECK(grants.Load()->Find(100, 51) == nullptr);
  grants.Close(*second, access);
  grants.Close(*first, access);
  CHECK(grants.Load() == nullptr);
  CHECK(made > 0);
}

TEST_CASE("impossible and too many grants are refused") {
  RelayGrants grants;
  const RelayGrants::MakeAccess access = [](const AddressRange&) { return nullptr; };
  for (const AddressRange& bad :
       {AddressRange{0, 1}, AddressRange{1, 0}, AddressRange{UINT64_MAX, 2}}) {
    CHECK(ApiCodeOf(grants.Open({bad}, access).status()) == ApiCode::kParamInvalid);
  }
  CHECK(ApiCodeOf(grants.Open({}, access).status()) == ApiCode::kResourceExhausted);
  const std::vector<AddressRange> many(RelayGrants::kMaxRanges + 1, {1, 1});
  CHECK(ApiCodeOf(grants.Open(many, access).status()) == ApiCode::kResourceExhausted);
  for (size_t i = 0; i < RelayGrants::kMaxOpen; ++i) REQUIRE(grants.Open({{1, 1}}, access).ok());
  CHECK(ApiCodeOf(grants.Open({{1, 1}}, access).status()) == ApiCode::kResourceExhausted);
}

}  // namespace
}  // namespace hixld
