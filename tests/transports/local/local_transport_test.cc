#include "transports/local/local_transport.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <latch>
#include <memory>
#include <random>
#include <vector>

#include "proto/base/status.h"
#include "tests/transports/test_memory.h"

namespace hixld {
namespace {

using testing::DistantMemory;
using testing::ExpectedTarget;
using testing::FillRandom;
using testing::MappedMemory;
using testing::RandomPieces;
using testing::TestTransfer;

struct Fixture {
  explicit Fixture(uint32_t count = 2, LocalTransportOptions options = {}) {
    auto started = WorkerSet::Start(count, 0);
    REQUIRE(started.ok());
    workers = std::move(*started);
    transport = LocalTransport::Create(workers.get(), options);
  }
  absl::Status Run(TestTransfer& transfer) {
    transport->Submit(transfer.job());
    return transfer.Wait();
  }
  // Until the workers have run what was posted before.
  void Settle() {
    std::latch settled(workers->size());
    for (uint32_t i = 0; i < workers->size(); ++i) {
      workers->at(i).Post([&settled] { settled.count_down(); });
    }
    settled.wait();
  }
  std::unique_ptr<WorkerSet> workers;
  std::unique_ptr<LocalTransport> transport;
};

// Small numbers, so that short lists exercise every path.
LocalTransportOptions Small() {
  return {.split_bytes = 64 << 10, .chunk_bytes = 8 << 10, .staging_bytes = 64 << 10};
}

template <typename Memory>
std::shared_ptr<Memory> Filled(size_t size, uint64_t seed) {
  auto memory = std::make_shared<Memory>(size);
  FillRandom(memory->bytes(), size, seed);
  return memory;
}

// Random lists of blocks between two memories of any kind end as one memcpy after the other.
template <typename Local, typename Remote>
void CheckRandomLists(int rounds, uint64_t size) {
  std::mt19937_64 random(size);
  Fixture fixture(2, Small());
  auto local = Filled<Local>(size, 1);
  auto remote = Filled<Remote>(size, 2);
  for (int round = 0; round < rounds; ++round) {
    const auto direction = round % 2 == 0 ? CopyDirection::kRead : CopyDirection::kWrite;
    const uint64_t max_block = std::vector<uint64_t>{7, 1000, 40'000, size}[round % 4];
    auto pieces = RandomPieces(local.get(), remote.get(), size, max_block, &random);
    const bool read = direction == CopyDirection::kRead;
    std::byte* source = read ? remote->bytes() : local->bytes();
    std::byte* target = read ? local->bytes() : remote->bytes();
    FillRandom(source, size, random());
    const auto expected = ExpectedTarget(pieces, direction, source, target, size);
    TestTransfer transfer(direction, std::move(pieces));
    transfer->worker = static_cast<uint32_t>(round);
    REQUIRE(fixture.Run(transfer).ok());
    REQUIRE(transfer.calls() == 1);
    REQUIRE(transfer->bytes_done == transfer->bytes);
    REQUIRE(memcmp(target, expected.data(), size) == 0);
  }
}

TEST_CASE("random lists between mapped memories") {
  CheckRandomLists<MappedMemory, MappedMemory>(24, 150'000);
}
TEST_CASE("random lists into memory that is not mapped") {
  CheckRandomLists<DistantMemory, MappedMemory>(8, 50'000);
  CheckRandomLists<MappedMemory, DistantMemory>(8, 50'000);
}
TEST_CASE("random lists between memories that are both not mapped") {
  CheckRandomLists<DistantMemory, DistantMemory>(8, 100'000);
}

TEST_CASE("one transfer may mix mapped and other memory") {
  Fixture fixture(2, Small());
  auto mapped = Filled<MappedMemory>(50'000, 1);
  auto distant = Filled<DistantMemory>(50'000, 2);
  auto target = Filled<MappedMemory>(100'000, 3);
  CopyPieces pieces;
  for (uint64_t at = 0; at < 50'000; at += 1'000) {
    pieces.push_back(
        {.local = {target.get(), 2 * at}, .remote = {mapped.get(), at}, .length = 1'000});
    pieces.push_back(
        {.local = {target.get(), 2 * at + 1'000}, .remote = {distant.get(), at}, .length = 1'000});
  }
  TestTransfer transfer(CopyDirection::kRead, std::move(pieces));
  REQUIRE(fixture.Run(transfer).ok());
  for (uint64_t at = 0; at < 50'000; at += 1'000) {
    REQUIRE(memcmp(target->bytes() + 2 * at, mapped->bytes() + at, 1'000) == 0);
    REQUIRE(memcmp(target->bytes() + 2 * at + 1'000, distant->bytes() + at, 1'000) == 0);
  }
}

TEST_CASE("a large transfer streams past the cache and still ends byte for byte") {
  Fixture fixture;
  constexpr size_t kSize = (8 << 20) + 13;
  auto local = Filled<MappedMemory>(kSize, 1);
  auto remote = Filled<MappedMemory>(kSize + 64, 2);
  TestTransfer transfer(
      CopyDirection::kWrite,
      {{.local = {local.get(), 0}, .remote = {remote.get(), 5}, .length = kSize}});
  REQUIRE(fixture.Run(transfer).ok());
  CHECK(memcmp(local->bytes(), remote->bytes() + 5, kSize) == 0);
}

TEST_CASE("source and target may overlap, in either direction") {
  Fixture fixture(2, Small());
  const int64_t shift = GENERATE(int64_t{-20'000}, int64_t{-1}, int64_t{1}, int64_t{20'000});
  constexpr size_t kSize = 200'000;
  constexpr uint64_t kFrom = 30'000;
  constexpr uint64_t kLength = 140'000;
  auto memory = Filled<MappedMemory>(kSize, 9);
  std::vector<std::byte> expected(memory->bytes(), memory->bytes() + kSize);
  memmove(expected.data() + kFrom + shift, expected.data() + kFrom, kLength);
  TestTransfer transfer(CopyDirection::kWrite, {{.local = {memory.get(), kFrom},
                                                 .remote = {memory.get(), kFrom + shift},
                                                 .length = kLength}});
  REQUIRE(fixture.Run(transfer).ok());
  CHECK(memcmp(memory->bytes(), expected.data(), kSize) == 0);
}

TEST_CASE("empty transfers and empty pieces complete") {
  Fixture fixture;
  auto a = Filled<MappedMemory>(100, 1);
  auto b = Filled<MappedMemory>(100, 2);
  auto distant = Filled<DistantMemory>(100, 3);
  TestTransfer nothing(CopyDirection::kRead, {});
  CHECK(fixture.Run(nothing).ok());
  TestTransfer mapped(CopyDirection::kRead,
                      {{.local = {a.get(), 0}, .remote = {b.get(), 0}, .length = 0},
                       {.local = {a.get(), 0}, .remote = {b.get(), 10}, .length = 10},
                       {.local = {a.get(), 0}, .remote = {b.get(), 0}, .length = 0}});
  CHECK(fixture.Run(mapped).ok());
  CHECK(memcmp(a->bytes(), b->bytes() + 10, 10) == 0);
  TestTransfer relayed(CopyDirection::kRead,
                       {{.local = {a.get(), 0}, .remote = {distant.get(), 0}, .length = 0},
                        {.local = {a.get(), 20}, .remote = {distant.get(), 20}, .length = 7},
                        {.local = {a.get(), 0}, .remote = {distant.get(), 0}, .length = 0}});
  CHECK(fixture.Run(relayed).ok());
  CHECK(memcmp(a->bytes() + 20, distant->bytes() + 20, 7) == 0);
}

TEST_CASE("a deadline that has passed ends the transfer with TIMEOUT and copies nothing") {
  Fixture fixture;
  auto a = Filled<MappedMemory>(4 << 20, 1);
  auto b = Filled<MappedMemory>(4 << 20, 2);
  const std::vector<std::byte> before(a->bytes(), a->bytes() + a->length());
  TestTransfer transfer(CopyDirection::kRead,
                        {{.local = {a.get(), 0}, .remote = {b.get(), 0}, .length = 4 << 20}});
  transfer->deadline_ns = MonotonicNanos() - 1;
  const absl::Status status = fixture.Run(transfer);
  CHECK(ApiCodeOf(status) == ApiCode::kTimeout);
  CHECK(std::string(status.message()).find("0 of 4194304") != std::string::npos);
  CHECK(memcmp(a->bytes(), before.data(), before.size()) == 0);
}

TEST_CASE("TIMEOUT comes only after the operation in progress has ended") {
  Fixture fixture(2, Small());
  auto local = Filled<MappedMemory>(100'000, 1);
  auto distant = Filled<DistantMemory>(100'000, 2);
  distant->Hold();
  TestTransfer transfer(
      CopyDirection::kRead,
      {{.local = {local.get(), 0}, .remote = {distant.get(), 0}, .length = 100'000}});
  transfer->deadline_ns = MonotonicNanos() + kNanosPerMilli;
  fixture.transport->Submit(transfer.job());
  distant->WaitForOperations(1);
  // Other transfers on the same worker pass meanwhile; the second one that starts after the
  // deadline ends in a later round of the loop than the timer.
  for (int late = 0; late < 2;) {
    late += MonotonicNanos() > transfer->deadline_ns ? 1 : 0;
    auto other = Filled<MappedMemory>(1000, 3);
    TestTransfer quick(
        CopyDirection::kRead,
        {{.local = {other.get(), 0}, .remote = {local.get(), 50'000}, .length = 1000}});
    REQUIRE(fixture.Run(quick).ok());
  }
  CHECK_FALSE(transfer.ended());
  distant->Release();
  CHECK(ApiCodeOf(transfer.Wait()) == ApiCode::kTimeout);
}

TEST_CASE("a cancelled transfer ends once, and no byte lands after that") {
  Fixture fixture(2, Small());
  constexpr size_t kSize = 2 << 20;
  auto a = Filled<MappedMemory>(kSize, 1);
  auto b = Filled<MappedMemory>(kSize, 2);
  int cancelled = 0;
  for (int round = 0; round < 16; ++round) {
    TestTransfer transfer(CopyDirection::kRead,
                          {{.local = {a.get(), 0}, .remote = {b.get(), 0}, .length = kSize}});
    transfer->worker = static_cast<uint32_t>(round);
    // In every other round the workers come to the copy only after the cancellation.
    std::latch go(round % 2);
    for (uint32_t i = 0; i < 2; ++i) fixture.workers->at(i).Post([&go] { go.wait(); });
    fixture.transport->Submit(transfer.job());
    fixture.transport->Cancel(transfer.job(), Failed("not needed any more"));
    fixture.transport->Cancel(transfer.job(), Failed("said twice"));
    if (round % 2 == 1) go.count_down();
    const absl::Status status = transfer.Wait();
    fixture.Settle();
    REQUIRE(transfer.calls() == 1);
    if (status.ok()) continue;
    ++cancelled;
    REQUIRE(status.message() == "not needed any more");
    memset(a->bytes(), 0, kSize);
    TestTransfer flush(CopyDirection::kWrite,
                       {{.local = {b.get(), 0}, .remote = {b.get(), 1}, .length = kSize - 1}});
    REQUIRE(fixture.Run(flush).ok());
    REQUIRE(
        std::all_of(a->bytes(), a->bytes() + kSize, [](std::byte x) { return x == std::byte{0}; }));
  }
  CHECK(cancelled >= 8);
}

TEST_CASE("a cancelled transfer that waits for staging does not wait for it") {
  Fixture fixture(1, Small());
  auto stuck = Filled<DistantMemory>(1 << 20, 1);
  auto sink = Filled<DistantMemory>(1 << 20, 2);
  auto other = Filled<DistantMemory>(1000, 3);
  stuck->Hold();
  std::vector<std::unique_ptr<TestTransfer>> hogs;
  for (int i = 0; i < 4; ++i) {
    hogs.push_back(std::make_unique<TestTransfer>(
        CopyDirection::kRead,
        CopyPieces{{.local = {sink.get(), 0}, .remote = {stuck.get(), 0}, .length = 1 << 20}}));
    fixture.transport->Submit(hogs.back()->job());
  }
  stuck->WaitForOperations(8);  // all buffers of the only worker
  TestTransfer waiting(CopyDirection::kRead,
                       {{.local = {sink.get(), 0}, .remote = {other.get(), 0}, .length = 1000}});
  fixture.transport->Submit(waiting.job());
  fixture.transport->Cancel(waiting.job(), Failed("gone"));
  CHECK(waiting.Wait().message() == "gone");
  stuck->Release();
  for (auto& hog : hogs) CHECK(hog->Wait().ok());
}

TEST_CASE("a failing access fails the transfer with its own error") {
  Fixture fixture(2, Small());
  auto local = Filled<MappedMemory>(1 << 20, 1);
  auto distant = Filled<DistantMemory>(1 << 20, 2);
  distant->FailFrom(0, Failed("the copy engine says no", {.object = "sim device 3"}));
  TestTransfer transfer(
      CopyDirection::kWrite,
      {{.local = {local.get(), 0}, .remote = {distant.get(), 0}, .length = 1 << 20}});
  const absl::Status status = fixture.Run(transfer);
  CHECK(status.message() == "the copy engine says no");
  CHECK(ErrorInfoOf(status).object == "sim device 3");
  CHECK(transfer.calls() == 1);
}

TEST_CASE("cancelling after the end does nothing") {
  Fixture fixture;
  auto a = Filled<MappedMemory>(100, 1);
  auto b = Filled<MappedMemory>(100, 2);
  TestTransfer transfer(CopyDirection::kRead,
                        {{.local = {a.get(), 0}, .remote = {b.get(), 0}, .length = 100}});
  REQUIRE(fixture.Run(transfer).ok());
  fixture.transport->Cancel(transfer.job(), Failed("too late"));
  CHECK(transfer.calls() == 1);
}

}  // namespace
}  // namespace hixld
