#include "daemon/memory/arena_pool.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

constexpr uint64_t kMiB = 1 << 20;

ArenaPool::Options SmallPool() {
  return {.name = "test",
          .min_arena_bytes = 1 * kMiB,
          .arena_bytes = 4 * kMiB,
          .max_bytes = 16 * kMiB,
          .max_bytes_option = "pools.host.max_bytes"};
}

TEST_CASE("ranges are joined again when they are freed") {
  RangeAllocator ranges(1024);
  const auto a = ranges.Allocate(256, 1);
  const auto b = ranges.Allocate(256, 1);
  const auto c = ranges.Allocate(512, 1);
  REQUIRE((a && b && c));
  CHECK(!ranges.Allocate(1, 1).has_value());
  ranges.Free(*a, 256);
  ranges.Free(*c, 512);
  CHECK(!ranges.Allocate(768, 1).has_value());
  ranges.Free(*b, 256);
  CHECK(ranges.empty());
  CHECK(ranges.Allocate(1024, 1) == 0u);
}

TEST_CASE("random ranges never overlap and all come back") {
  std::mt19937 random(3);
  RangeAllocator ranges(1 << 16);
  struct Piece {
    uint64_t offset, length;
  };
  std::vector<Piece> pieces;
  std::vector<int> owner(1 << 16, 0);
  for (int i = 0; i < 5000; ++i) {
    if (random() % 3 != 0 || pieces.empty()) {
      const uint64_t length = 1 + random() % 900;
      const uint64_t alignment = uint64_t{1} << (random() % 9);
      const auto offset = ranges.Allocate(length, alignment);
      if (!offset.has_value()) continue;
      REQUIRE(*offset % alignment == 0);
      for (uint64_t at = *offset; at < *offset + length; ++at) {
        REQUIRE(owner.at(at) == 0);
        owner[at] = 1;
      }
      pieces.push_back({*offset, length});
    } else {
      const size_t pick = random() % pieces.size();
      const Piece piece = pieces[pick];
      pieces[pick] = pieces.back();
      pieces.pop_back();
      std::fill_n(owner.begin() + piece.offset, piece.length, 0);
      ranges.Free(piece.offset, piece.length);
    }
  }
  for (const Piece& piece : pieces) ranges.Free(piece.offset, piece.length);
  CHECK(ranges.used() == 0);
  CHECK(ranges.Allocate(1 << 16, 1) == 0u);
}

TEST_CASE("buffers of one owner share arenas, those of two owners never do") {
  auto pool = ArenaPool::Create(SmallPool());
  auto a = pool->Allocate(1, 100, 0);
  auto b = pool->Allocate(1, 5000, 0);
  auto c = pool->Allocate(2, 100, 0);
  REQUIRE((a.ok() && b.ok() && c.ok()));
  CHECK((*a)->length() == 4096);
  CHECK((*b)->length() == 8192);
  CHECK((*a)->arena() == (*b)->arena());
  CHECK((*a)->arena() != (*c)->arena());
  CHECK((*a)->arena()->id != (*c)->arena()->id);
  CHECK(pool->stats().arenas == 2);
  CHECK(pool->stats().buffers == 3);
  CHECK(pool->stats().used_bytes == 4096 + 8192 + 4096);
}

TEST_CASE("arenas grow, large buffers get their own, empty arenas are released") {
  auto pool = ArenaPool::Create(SmallPool());
  std::vector<std::unique_ptr<ArenaPool::Buffer>> buffers;
  for (int i = 0; i < 3; ++i) {
    auto buffer = pool->Allocate(1, kMiB, 0);
    REQUIRE(buffer.ok());
    buffers.push_back(*std::move(buffer));
  }
  CHECK(buffers[0]->arena()->size == 1 * kMiB);
  CHECK(buffers[1]->arena()->size == 2 * kMiB);
  CHECK(buffers[2]->arena() == buffers[1]->arena());
  auto large = pool->Allocate(1, 6 * kMiB, 0);
  REQUIRE(large.ok());
  CHECK((*large)->arena()->size == 6 * kMiB);
  CHECK(pool->stats().arena_bytes == 9 * kMiB);
  (*large).reset();
  buffers.clear();
  CHECK(pool->stats().arenas == 0);
  CHECK(pool->stats().arena_bytes == 0);
  CHECK(pool->stats().used_bytes == 0);
}

TEST_CASE("a full pool says which limit and which option") {
  auto pool = ArenaPool::Create(SmallPool());
  const auto larger = pool->Allocate(1, 17 * kMiB, 0);
  CHECK(ApiCodeOf(larger.status()) == ApiCode::kResourceExhausted);
  auto most = pool->Allocate(1, 16 * kMiB, 0);
  REQUIRE(most.ok());
  const auto more = pool->Allocate(2, 1, 0);
  CHECK(ApiCodeOf(more.status()) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(more.status()).option == "pools.host.max_bytes");
  CHECK(ErrorInfoOf(more.status()).limit == "16777216 bytes");
  (*most).reset();
  CHECK(pool->Allocate(2, 1, 0).ok());
}

TEST_CASE("the last bytes of a pool can be had") {
  auto pool = ArenaPool::Create(SmallPool());
  auto most = pool->Allocate(1, 16 * kMiB - 8192, 0);
  REQUIRE(most.ok());
  // The preferred arena would not fit any more; one of exactly this size does.
  auto rest = pool->Allocate(1, 8192, 0);
  CHECK(rest.ok());
}

TEST_CASE("bad lengths and alignments are refused") {
  auto pool = ArenaPool::Create(SmallPool());
  CHECK(ApiCodeOf(pool->Allocate(1, 0, 0).status()) == ApiCode::kParamInvalid);
  CHECK(ApiCodeOf(pool->Allocate(1, 1, 3).status()) == ApiCode::kParamInvalid);
  CHECK(ApiCodeOf(pool->Allocate(1, 1, uint64_t{1} << 40).status()) == ApiCode::kParamInvalid);
  CHECK(pool->stats().arenas == 0);
  auto aligned = pool->Allocate(1, 1, 256 << 10);
  auto second = pool->Allocate(1, 1, 256 << 10);
  REQUIRE((aligned.ok() && second.ok()));
  CHECK((*aligned)->offset() % (256 << 10) == 0);
  CHECK((*second)->offset() % (256 << 10) == 0);
}

TEST_CASE("freed memory comes back as zeros") {
  auto pool = ArenaPool::Create(SmallPool());
  auto keeper = pool->Allocate(1, 4096, 0);
  auto buffer = pool->Allocate(1, 8192, 0);
  REQUIRE((keeper.ok() && buffer.ok()));
  const uint64_t offset = (*buffer)->offset();
  memset((*buffer)->data(), 0x5a, 8192);
  (*buffer).reset();
  auto again = pool->Allocate(1, 8192, 0);
  REQUIRE(again.ok());
  REQUIRE((*again)->offset() == offset);
  for (int i = 0; i < 8192; ++i) REQUIRE((*again)->data()[i] == std::byte{0});
}

TEST_CASE("a mapping that outlives the arena sees nothing of it, unless the daemon is stopping") {
  const bool keep = GENERATE(false, true);
  auto pool = ArenaPool::Create(SmallPool());
  if (keep) pool->KeepContents();
  auto buffer = pool->Allocate(1, 4096, 0);
  REQUIRE(buffer.ok());
  auto view = MapShared((*buffer)->arena()->fd.get(), 0, (*buffer)->arena()->size);
  REQUIRE(view.ok());
  memset((*buffer)->data(), 0x5a, 4096);
  CHECK(view->data()[(*buffer)->offset()] == std::byte{0x5a});
  const uint64_t offset = (*buffer)->offset();
  (*buffer).reset();
  CHECK(view->data()[offset] == (keep ? std::byte{0x5a} : std::byte{0}));
}

TEST_CASE("a pool with addresses of its own never gives one twice") {
  ArenaPool::Options options = SmallPool();
  options.base_address = uint64_t{1} << 60;
  auto pool = ArenaPool::Create(options);
  auto a = pool->Allocate(1, 4096, 0);
  auto b = pool->Allocate(2, 4096, 0);
  auto c = pool->Allocate(1, 4096, 1 << 20);
  REQUIRE((a.ok() && b.ok() && c.ok()));
  CHECK((*a)->address() >= options.base_address);
  CHECK((*a)->address() != (*b)->address());
  CHECK((*c)->address() % (1 << 20) == 0);
}

TEST_CASE("huge pages: taken where there are some, else counted or refused") {
  ArenaPool::Options options = SmallPool();
  options.min_arena_bytes = 2 * kMiB;
  options.huge_pages = HugePageUse::kTry;
  auto pool = ArenaPool::Create(options);
  auto buffer = pool->Allocate(1, 4096, 0);
  REQUIRE(buffer.ok());
  CHECK(pool->stats().huge_pages != (pool->stats().huge_page_fallbacks > 0));
  (*buffer)->data()[0] = std::byte{1};

  options.huge_pages = HugePageUse::kRequire;
  auto strict = ArenaPool::Create(options);
  const auto required = strict->Allocate(1, 4096, 0);
  if (pool->stats().huge_pages) {
    CHECK(required.ok());
  } else {
    CHECK(ApiCodeOf(required.status()) == ApiCode::kResourceExhausted);
    CHECK(ErrorInfoOf(required.status()).option == "vm.nr_hugepages");
    CHECK(strict->stats().arena_bytes == 0);
  }
}

TEST_CASE("threads that allocate and free leave nothing behind") {
  auto pool = ArenaPool::Create(SmallPool());
  std::vector<std::thread> threads;
  for (uint64_t owner = 1; owner <= 4; ++owner) {
    threads.emplace_back([&pool, owner] {
      std::mt19937_64 random(owner);
      std::vector<std::unique_ptr<ArenaPool::Buffer>> mine;
      for (int i = 0; i < 300; ++i) {
        if (mine.size() > 8 || (random() % 2 == 0 && !mine.empty())) {
          const size_t pick = random() % mine.size();
          for (uint64_t at = 0; at < mine[pick]->length(); at += 512) {
            if (mine[pick]->data()[at] != std::byte(owner)) abort();
          }
          mine.erase(mine.begin() + static_cast<ptrdiff_t>(pick));
          continue;
        }
        auto buffer = pool->Allocate(owner / 2, 1 + random() % 100'000, 0);
        if (!buffer.ok()) continue;
        for (uint64_t at = 0; at < (*buffer)->length(); at += 512) {
          if ((*buffer)->data()[at] != std::byte{0}) abort();
          (*buffer)->data()[at] = std::byte(owner);
        }
        mine.push_back(*std::move(buffer));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(pool->stats().arenas == 0);
  CHECK(pool->stats().arena_bytes == 0);
}

}  // namespace
}  // namespace hixld
