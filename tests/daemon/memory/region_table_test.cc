#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <thread>

#include "daemon/memory/region.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

using Request = RegionTable::Request;

constexpr size_t kNoLimit = 1 << 20;

Request Host(uint64_t address, uint64_t length) {
  return {.address = address, .length = length, .type = MemoryType::kHost};
}

Request Device(uint64_t address, uint64_t length) {
  return {.address = address, .length = length, .type = MemoryType::kDevice};
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("the same range twice is one region") {
  RegionTable table;
  const auto first = table.Add({Host(0x1000, 64)}, kNoLimit);
  REQUIRE(first.ok());
  const auto again = table.Add({Host(0x1000, 64)}, kNoLimit);
  REQUIRE(again.ok());
  CHECK((*first)[0] == (*again)[0]);
  CHECK(table.Load()->size() == 1);
  // No reference count: one removal removes it.
  CHECK(table.Remove({(*first)[0]->id}) == 0);
  CHECK(table.Load()->size() == 0);
  CHECK(table.Remove({(*first)[0]->id}) == 1);
}

TEST_CASE("the same range twice in one call is one region") {
  RegionTable table;
  const auto both = table.Add({Host(0x2000, 64), Host(0x1000, 8), Host(0x2000, 64)}, kNoLimit);
  REQUIRE(both.ok());
  CHECK((*both)[0] == (*both)[2]);
  CHECK((*both)[0]->address == 0x2000);
  CHECK((*both)[1]->address == 0x1000);
  CHECK(table.Load()->size() == 2);
}

TEST_CASE("partial overlap within a type is refused and changes nothing") {
  RegionTable table;
  REQUIRE(table.Add({Host(0x1000, 0x1000)}, kNoLimit).ok());
  for (const Request& bad : {Host(0x1800, 0x1000), Host(0x800, 0x801), Host(0x1000, 0x800),
                             Host(0x1fff, 1), Host(0x800, 0x4000)}) {
    const auto result = table.Add({Host(0x9000, 16), bad}, kNoLimit);
    REQUIRE(!result.ok());
    CHECK(ApiCodeOf(result.status()) == ApiCode::kParamInvalid);
    CHECK_THAT(MessageOf(result.status()), Catch::Contains("region 0x1000+4096 (host)"));
    CHECK(table.Load()->size() == 1);
  }
  const auto inside = table.Add({Host(0x9000, 32), Host(0x9010, 32)}, kNoLimit);
  CHECK(ApiCodeOf(inside.status()) == ApiCode::kParamInvalid);
  CHECK(table.Load()->size() == 1);
  // Neighbours do not overlap.
  CHECK(table.Add({Host(0x2000, 16), Host(0xff0, 16)}, kNoLimit).ok());
}

TEST_CASE("host and device regions may overlap each other") {
  RegionTable table;
  REQUIRE(table.Add({Host(0x1000, 0x1000), Device(0x1800, 0x1000)}, kNoLimit).ok());
  std::vector<RegionPart> parts;
  REQUIRE(table.Load()->Resolve(0x1000, 0x1800, &parts).ok());
  uint64_t sum = 0;
  for (const RegionPart& part : parts) sum += part.length;
  CHECK(sum == 0x1800);
}

TEST_CASE("empty, null and overflowing ranges are refused") {
  RegionTable table;
  const auto snapshot = table.Load();
  std::vector<RegionPart> parts;
  for (const Request& bad : {Host(0, 16), Host(16, 0), Host(UINT64_MAX, 1), Host(UINT64_MAX - 7, 8),
                             Host(1, UINT64_MAX)}) {
    CHECK(ApiCodeOf(table.Add({bad}, kNoLimit).status()) == ApiCode::kParamInvalid);
    CHECK(ApiCodeOf(snapshot->Resolve(bad.address, bad.length, &parts)) == ApiCode::kParamInvalid);
    CHECK(snapshot->Find(bad.address, bad.length) == nullptr);
  }
  CHECK(parts.empty());
}

TEST_CASE("ranges resolve inside a region, across neighbours and not beyond") {
  RegionTable table;
  auto first = Host(0x1000, 0x100);
  first.access_offset = 0x40;
  REQUIRE(table.Add({first, Host(0x1100, 0x100), Host(0x1300, 0x100)}, kNoLimit).ok());
  const auto snapshot = table.Load();
  std::vector<RegionPart> parts;

  REQUIRE(snapshot->Resolve(0x1010, 0x20, &parts).ok());
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].offset == 0x50);
  CHECK(parts[0].length == 0x20);
  CHECK(snapshot->Find(0x1010, 0x20) == parts[0].region.get());

  parts.clear();
  REQUIRE(snapshot->Resolve(0x10f0, 0x20, &parts).ok());
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].offset == 0x130);
  CHECK(parts[0].length == 0x10);
  CHECK(parts[1].offset == 0);
  CHECK(parts[1].length == 0x10);
  CHECK(snapshot->Find(0x10f0, 0x20) == nullptr);

  // One byte past either end, and into a gap.
  for (const auto& [address, length] :
       {std::pair{0xfffu, 1u}, {0xfffu, 2u}, {0x1200u, 1u}, {0x11ffu, 2u}, {0x1000u, 0x201u}}) {
    const size_t before = parts.size();
    const absl::Status status = snapshot->Resolve(address, length, &parts);
    CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
    CHECK_THAT(MessageOf(status), Catch::Contains("the nearest is region 0x1"));
    CHECK(parts.size() == before);
  }
}

TEST_CASE("the limit on regions names its option") {
  RegionTable table;
  REQUIRE(table.Add({Host(0x1000, 16), Host(0x2000, 16)}, 3).ok());
  const auto over = table.Add({Host(0x3000, 16), Host(0x4000, 16)}, 3);
  CHECK(ApiCodeOf(over.status()) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(over.status()).option == "limits.max_regions_per_session");
  CHECK(table.Load()->size() == 2);
  // Known ranges need no room.
  CHECK(table.Add({Host(0x1000, 16), Host(0x3000, 16)}, 3).ok());
}

TEST_CASE("a snapshot outlives what is removed from the table") {
  RegionTable table;
  const auto added = table.Add({Host(0x1000, 16)}, kNoLimit);
  const auto before = table.Load();
  table.Clear();
  CHECK(before->Find(0x1000, 16) == (*added)[0].get());
  CHECK(table.Load()->Find(0x1000, 16) == nullptr);
  CHECK(table.Load()->version() > before->version());
}

// A plain model beside the table: a map of disjoint ranges.
TEST_CASE("random additions and removals agree with a model") {
  std::mt19937_64 random(7);
  RegionTable table;
  std::map<uint64_t, std::shared_ptr<const Region>> model;
  constexpr uint64_t kPlaces = 6000;
  for (int round = 0; round < 400; ++round) {
    std::vector<Request> requests;
    std::vector<uint64_t> removals;
    const size_t count = random() % 60;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t address = 0x10000 + (random() % kPlaces) * 16;
      if (random() % 2 == 0) {
        requests.push_back(Host(address, 16));
      } else if (auto found = model.find(address); found != model.end()) {
        removals.push_back(found->second->id);
        model.erase(found);
      }
    }
    CHECK(table.Remove(removals) == 0);
    const auto added = table.Add(requests, kNoLimit);
    REQUIRE(added.ok());
    for (const auto& region : *added) model[region->address] = region;
    const auto snapshot = table.Load();
    REQUIRE(snapshot->size() == model.size());
    for (int probe = 0; probe < 50; ++probe) {
      const uint64_t address = 0x10000 + random() % (kPlaces * 16);
      const auto found = model.find(address / 16 * 16);
      const Region* expected = found == model.end() ? nullptr : found->second.get();
      REQUIRE(snapshot->Find(address, 1) == expected);
    }
  }
  const auto regions = table.Load()->regions();
  REQUIRE(regions.size() == model.size());
  size_t index = 0;
  for (const auto& [address, region] : model) CHECK(regions[index++] == region);
}

TEST_CASE("thousands of regions in one call, then one by one") {
  RegionTable table;
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 4096; ++i) requests.push_back(Host(0x100000 + i * 0x2000, 0x1000));
  const auto added = table.Add(std::move(requests), kNoLimit);
  REQUIRE(added.ok());
  CHECK(added->front()->id + 4095 == added->back()->id);
  for (uint64_t i = 0; i < 4096; ++i) {
    REQUIRE(table.Add({Host(0x101000 + i * 0x2000, 0x1000)}, kNoLimit).ok());
  }
  std::vector<RegionPart> parts;
  REQUIRE(table.Load()->Resolve(0x100000, 4096 * 0x2000, &parts).ok());
  CHECK(parts.size() == 8192);
}

TEST_CASE("readers see whole snapshots while writers race") {
  RegionTable table;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> reads{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed) || reads.load() == 0) {
        const auto snapshot = table.Load();
        // Each writer adds and removes pairs, so that a range is there whole or not at all.
        for (uint64_t writer = 1; writer <= 8; ++writer) {
          const uint64_t address = writer << 20;
          const bool low = snapshot->Find(address, 16) != nullptr;
          const bool high = snapshot->Find(address + 16, 16) != nullptr;
          if (low != high) abort();
        }
        reads.fetch_add(1);
      }
    });
  }
  std::vector<std::thread> writers;
  for (uint64_t writer = 1; writer <= 8; ++writer) {
    writers.emplace_back([&table, writer] {
      for (int i = 0; i < 100; ++i) {
        const uint64_t address = writer << 20;
        const auto pair = table.Add({Host(address, 16), Host(address + 16, 16)}, kNoLimit);
        if (!pair.ok() || table.Remove({(*pair)[0]->id, (*pair)[1]->id}) != 0) abort();
      }
    });
  }
  for (auto& writer : writers) writer.join();
  stop.store(true);
  for (auto& thread : threads) thread.join();
  CHECK(table.Load()->size() == 0);
  CHECK(reads.load() > 0);
}

}  // namespace
}  // namespace hixld
