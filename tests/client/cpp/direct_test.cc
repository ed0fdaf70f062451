// What direct copies stand on in the client: tables that are read without a lock, ranges, mappings.
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "client/cpp/memory_table.h"
#include "client/cpp/peer_files.h"
#include "client/cpp/range_table.h"
#include "client/cpp/snapshot_cell.h"
#include "proto/base/memfd.h"

namespace hixld::client {
namespace {

TEST_CASE("a range is found in the entry that holds all of it") {
  const LocalRanges ranges({{0x1000, 0x2000}, {0x2000, 0x3000}, {0x8000, UINT64_MAX}});
  const LocalRange* const first = ranges.Find(0x1000, 1, nullptr);
  REQUIRE(first != nullptr);
  CHECK(ranges.Find(0x1000, 0x1000, nullptr) == first);
  CHECK(ranges.Find(0x1fff, 1, nullptr) == first);
  CHECK(ranges.Find(0xfff, 1, nullptr) == nullptr);
  CHECK(ranges.Find(0xfff, 2, nullptr) == nullptr);
  // Across two entries, past an end, in a gap.
  CHECK(ranges.Find(0x1fff, 2, nullptr) == nullptr);
  CHECK(ranges.Find(0x2fff, 2, first) == nullptr);
  CHECK(ranges.Find(0x3000, 1, first) == nullptr);
  // The last answer is a hint, not more.
  CHECK(ranges.Find(0x2000, 1, first)->begin == 0x2000);
  CHECK(ranges.Find(0x1800, 8, ranges.Find(0x2000, 1, nullptr)) == first);
  // No sum may overflow.
  CHECK(ranges.Find(0x8000, UINT64_MAX, nullptr) == nullptr);
  CHECK(ranges.Find(UINT64_MAX, 1, nullptr) == nullptr);
  CHECK(LocalRanges({}).Find(1, 1, nullptr) == nullptr);
}

TEST_CASE("readers see a whole value, and what was replaced is freed when nobody reads") {
  struct Value {
    explicit Value(int number, std::atomic<int>* alive) : a(number), b(number), alive(alive) {
      alive->fetch_add(1);
    }
    ~Value() {
      a = b = -1;
      alive->fetch_sub(1);
    }
    int a;
    int b;
    std::atomic<int>* const alive;
  };
  std::atomic<int> alive{0};
  {
    SnapshotCell<Value> cell(std::make_unique<const Value>(0, &alive));
    std::atomic<bool> stop{false};
    std::atomic<int> torn{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 3; ++t) {
      readers.emplace_back([&] {
        int last = 0;
        while (!stop.load()) {
          const SnapshotCell<Value>::Reader value(&cell);
          if (value->a != value->b || value->a < last) torn += 1;
          last = value->a;
        }
      });
    }
    for (int i = 1; i <= 2000; ++i) cell.Replace(std::make_unique<const Value>(i, &alive));
    stop = true;
    for (auto& reader : readers) reader.join();
    CHECK(torn == 0);
    CHECK(alive == 1);
    {
      const SnapshotCell<Value>::Reader value(&cell);
      std::thread([&] { cell.Replace(std::make_unique<const Value>(5000, &alive)); }).join();
      CHECK(value->a == 2000);
      CHECK(alive == 2);
    }
    CHECK(alive == 1);
    CHECK(SnapshotCell<Value>::Reader(&cell)->a == 5000);
  }
  CHECK(alive == 0);
}

TEST_CASE("a file is mapped once, for as long as somebody has it") {
  PeerFiles files;
  const UniqueFd first = std::move(*CreateSealedMemfd("test", 8192));
  const UniqueFd other = std::move(*CreateSealedMemfd("test", 4096));
  const auto map = [&files](const UniqueFd& fd, uint64_t size) {
    return files.Map(UniqueFd(dup(fd.get())), size);
  };
  auto file = map(first, 8192);
  REQUIRE(file.ok());
  CHECK(*map(first, 8192) == *file);
  CHECK(*map(first, 4096) == *file);
  CHECK(*map(other, 4096) != *file);
  (*file)->data()[8191] = std::byte{7};
  char last = 0;
  CHECK(pread((*file)->fd(), &last, 1, 8191) == 1);
  CHECK(last == 7);
  file = map(other, 4096);
  CHECK((*map(first, 8192))->data()[8191] == std::byte{7});
  // Shorter than was said: touching it would be fatal.
  CHECK_FALSE(map(first, 8193).ok());
  CHECK_FALSE(map(first, 0).ok());
  CHECK_FALSE(files.Map(UniqueFd(), 4096).ok());
}

TEST_CASE("usable are host ranges that the daemon has and keeps") {
  MemoryTable table;
  const auto add = [&table](uint64_t address, uint64_t length, MemoryKind kind, uint64_t region) {
    Registration entry;
    entry.range = {.address = address, .length = length, .kind = kind};
    entry.region_id = region;
    return table.Add(std::move(entry));
  };
  add(0x3000, 0x1000, MemoryKind::kHost, 1);
  add(0x1000, 0x1000, MemoryKind::kHost, 2);
  add(0x5000, 0x1000, MemoryKind::kHost, 0);  // refused by the daemon
  table.Get(add(0x7000, 0x1000, MemoryKind::kHost, 3))->leaving = true;
  add(0x9000, 0x1000, MemoryKind::kHost, 4);
  add(0x9fff, 0x1000, MemoryKind::kDevice, 5);
  add(0xb000, 0x1000, MemoryKind::kHost, 6);
  add(0xc000, 0x1000, MemoryKind::kDevice, 7);
  std::vector<uint64_t> addresses;
  for (const UsableRange& usable : table.UsableHostRanges()) {
    addresses.push_back(usable.range.address);
    CHECK_FALSE(usable.pool);
  }
  CHECK(addresses == std::vector<uint64_t>{0x1000, 0x3000, 0xb000});
}

}  // namespace
}  // namespace hixld::client
