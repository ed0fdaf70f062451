// Transfers over a healthy link: every shape ends with the right bytes, errors name what is wrong.
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <vector>

#include "proto/wire/frame.h"
#include "tests/transports/tcp/tcp_pair.h"

namespace hixld {
namespace {

using Catch::Matchers::Contains;
using testing::DistantMemory;
using testing::ExpectedTarget;
using testing::FillRandom;
using testing::MappedMemory;
using testing::PairOptions;
using testing::RandomPieces;
using testing::SmallTcp;
using testing::TcpPair;
using testing::TestTransfer;

constexpr uint64_t kChannel = 3;
constexpr uint64_t kBase = 0x100000;

template <typename Memory>
std::shared_ptr<Memory> Filled(size_t size, uint64_t seed) {
  auto memory = std::make_shared<Memory>(size);
  FillRandom(memory->bytes(), size, seed);
  return memory;
}

std::unique_ptr<TestTransfer> OnChannel(CopyDirection direction, CopyPieces pieces) {
  for (CopyPiece& piece : pieces) {
    piece.remote_address += kBase;
    piece.remote = {};
  }
  auto transfer = std::make_unique<TestTransfer>(direction, std::move(pieces));
  transfer->job()->channel = kChannel;
  return transfer;
}

// Random lists of blocks, many transfers at a time, between memories of any kind.
template <typename Local, typename Remote>
void CheckRandomLists(int rounds, uint64_t size, PairOptions options) {
  TcpPair pair(std::move(options));
  std::mt19937_64 random(size + rounds);
  constexpr int kParallel = 4;
  std::vector<std::shared_ptr<Local>> locals;
  std::vector<std::shared_ptr<Remote>> remotes;
  for (int i = 0; i < kParallel; ++i) {
    locals.push_back(Filled<Local>(size, 2 * i));
    remotes.push_back(Filled<Remote>(size, 2 * i + 1));
    pair.resolver.Add(kChannel, kBase + i * 2 * size, remotes[i]);
  }
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<TestTransfer>> transfers;
    std::vector<std::vector<std::byte>> expected;
    for (int i = 0; i < kParallel; ++i) {
      const auto direction = (round + i) % 2 == 0 ? CopyDirection::kRead : CopyDirection::kWrite;
      const bool read = direction == CopyDirection::kRead;
      const uint64_t max_block = std::vector<uint64_t>{50, 1000, 40'000, size}[random() % 4];
      auto pieces = RandomPieces(locals[i].get(), remotes[i].get(), size, max_block, &random);
      std::byte* source = read ? remotes[i]->bytes() : locals[i]->bytes();
      std::byte* target = read ? locals[i]->bytes() : remotes[i]->bytes();
      FillRandom(source, size, random());
      expected.push_back(ExpectedTarget(pieces, direction, source, target, size));
      for (CopyPiece& piece : pieces) piece.remote_address += i * 2 * size;
      transfers.push_back(OnChannel(direction, std::move(pieces)));
      transfers.back()->job()->worker = static_cast<uint32_t>(i);
    }
    for (auto& transfer : transfers) pair.initiator->Submit(transfer->job());
    for (int i = 0; i < kParallel; ++i) {
      const absl::Status status = transfers[i]->Wait();
      INFO(status);
      REQUIRE(status.ok());
      const bool read = transfers[i]->job()->direction == CopyDirection::kRead;
      REQUIRE(memcmp(read ? locals[i]->bytes() : remotes[i]->bytes(), expected[i].data(), size) ==
              0);
      REQUIRE(transfers[i]->job()->bytes_done == transfers[i]->job()->bytes);
    }
  }
  CHECK(pair.initiator_transport->counters().malformed_frames == 0);
  CHECK(pair.target_transport->counters().malformed_frames == 0);
}

TEST_CASE("random lists between mapped memories") {
  CheckRandomLists<MappedMemory, MappedMemory>(10, 300'000, {.tcp = SmallTcp()});
}
TEST_CASE("random lists with the default options") {
  CheckRandomLists<MappedMemory, MappedMemory>(4, 3'000'000, {});
}
TEST_CASE("random lists over four lanes with small socket buffers") {
  PairOptions options{.tcp = SmallTcp()};
  options.tcp.lanes = 4;
  options.tcp.socket_buffer_bytes = 16 << 10;
  CheckRandomLists<MappedMemory, MappedMemory>(4, 300'000, std::move(options));
}
TEST_CASE("random lists with memory that is not mapped, on either side") {
  CheckRandomLists<DistantMemory, MappedMemory>(4, 200'000, {.tcp = SmallTcp()});
  CheckRandomLists<MappedMemory, DistantMemory>(4, 200'000, {.tcp = SmallTcp()});
}
TEST_CASE("random lists with memory that is not mapped on both sides and little staging") {
  PairOptions options{.tcp = SmallTcp()};
  options.tcp.staging_bytes = 64 << 10;
  options.tcp.stripe_bytes = 300 << 10;
  CheckRandomLists<DistantMemory, DistantMemory>(4, 600'000, std::move(options));
}
TEST_CASE("IPv6 works as well") {
  CheckRandomLists<MappedMemory, MappedMemory>(2, 100'000, {.tcp = SmallTcp(), .ipv6 = true});
}
TEST_CASE("lanes may be bound to an interface") {
  PairOptions options{.tcp = SmallTcp()};
  options.tcp.interfaces = {"lo"};
  CheckRandomLists<MappedMemory, MappedMemory>(2, 100'000, std::move(options));
}

TEST_CASE("an interface that does not exist is named in the lane's state") {
  PairOptions options{.tcp = SmallTcp()};
  options.tcp.interfaces = {"nosuchif0"};
  TcpPair pair(std::move(options));
  std::string error;
  while (error.empty()) error = pair.initiator->Lanes()[0].error;
  CHECK(error.find("nosuchif0") != std::string::npos);
  CHECK(pair.initiator->Lanes()[0].state != "up");
  // A transfer that waits in vain says so too.
  auto local = Filled<MappedMemory>(10, 1);
  auto late = OnChannel(CopyDirection::kRead,
                        {{.local = {local.get(), 0}, .remote_address = 0, .length = 10}});
  late->job()->deadline_ns = MonotonicNanos() + kNanosPerMilli;
  const absl::Status status = pair.Run(*late);
  CHECK(ApiCodeOf(status) == ApiCode::kTimeout);
  CHECK_THAT(std::string(status.message()), Contains("no lane is up: ") && Contains("nosuchif0"));
}

TEST_CASE("more pieces than one frame holds, each of one byte") {
  TcpPair pair({.tcp = SmallTcp()});
  constexpr uint64_t kCount = 3 * wire::kMaxPiecesPerFrame + 5;
  auto local = Filled<MappedMemory>(2 * kCount, 1);
  auto remote = Filled<MappedMemory>(2 * kCount, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  CopyPieces pieces;
  for (uint64_t i = 0; i < kCount; ++i) {
    pieces.push_back({.local = {local.get(), 2 * i}, .remote_address = 2 * i + 1, .length = 1});
  }
  for (const auto direction : {CopyDirection::kWrite, CopyDirection::kRead}) {
    FillRandom(local->bytes(), 2 * kCount, 5);
    auto transfer = OnChannel(direction, pieces);
    REQUIRE(pair.Run(*transfer).ok());
    for (uint64_t i = 0; i < kCount; ++i) {
      REQUIRE(local->bytes()[2 * i] == remote->bytes()[2 * i + 1]);
    }
  }
}

TEST_CASE("a range may span adjacent regions") {
  TcpPair pair({.tcp = SmallTcp()});
  auto first = Filled<MappedMemory>(100'000, 1);
  auto second = Filled<DistantMemory>(100'000, 2);
  auto local = Filled<MappedMemory>(150'000, 3);
  pair.resolver.Add(kChannel, kBase, first);
  pair.resolver.Add(kChannel, kBase + 100'000, second);
  auto write =
      OnChannel(CopyDirection::kWrite,
                {{.local = {local.get(), 0}, .remote_address = 50'000, .length = 150'000}});
  REQUIRE(pair.Run(*write).ok());
  CHECK(memcmp(first->bytes() + 50'000, local->bytes(), 50'000) == 0);
  CHECK(memcmp(second->bytes(), local->bytes() + 50'000, 100'000) == 0);
  FillRandom(local->bytes(), 150'000, 4);
  auto read = OnChannel(CopyDirection::kRead,
                        {{.local = {local.get(), 0}, .remote_address = 50'000, .length = 150'000}});
  REQUIRE(pair.Run(*read).ok());
  CHECK(memcmp(first->bytes() + 50'000, local->bytes(), 50'000) == 0);
  CHECK(memcmp(second->bytes(), local->bytes() + 50'000, 100'000) == 0);
}

// Two WRITEs over one lane whose answers are held back until both are submitted. Returns how many
// bytes of the second had arrived when the first ended.
uint64_t SecondWhenFirstEnds(uint64_t first_bytes, uint64_t second_bytes) {
  PairOptions options{.tcp = SmallTcp(), .proxy = true};
  options.tcp.lanes = 1;
  TcpPair pair(std::move(options));
  pair.WaitUntilUp(1);
  auto local = Filled<MappedMemory>(first_bytes, 1);
  auto remote = Filled<MappedMemory>(first_bytes, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  auto first = OnChannel(CopyDirection::kWrite,
                         {{.local = {local.get(), 0}, .remote_address = 0, .length = first_bytes}});
  auto second =
      OnChannel(CopyDirection::kWrite,
                {{.local = {local.get(), 0}, .remote_address = 0, .length = second_bytes}});
  std::atomic<uint64_t> arrived{0};
  first->job()->done = [&, ended = std::move(first->job()->done),
                        other = second->job()](absl::Status status) mutable {
    arrived.store(other->bytes_done.load());
    ended(std::move(status));
  };
  pair.proxy->Pause();
  pair.initiator->Submit(first->job());
  pair.initiator->Submit(second->job());
  pair.proxy->Resume();
  REQUIRE(first->Wait().ok());
  REQUIRE(second->Wait().ok());
  return arrived.load();
}

TEST_CASE("transfers of medium size end one after the other, not all at the same moment") {
  CHECK(SecondWhenFirstEnds(1 << 20, 1 << 20) == 0);
}
TEST_CASE("a small transfer does not wait for all of a large one") {
  CHECK(SecondWhenFirstEnds(16 << 20, 300'000) == 300'000);
}

TEST_CASE("empty transfers complete") {
  TcpPair pair({.tcp = SmallTcp()});
  auto local = Filled<MappedMemory>(10, 1);
  auto nothing = OnChannel(CopyDirection::kWrite, {});
  CHECK(pair.Run(*nothing).ok());
  auto zero = OnChannel(CopyDirection::kRead,
                        {{.local = {local.get(), 0}, .remote_address = 0, .length = 0}});
  CHECK(pair.Run(*zero).ok());
}

TEST_CASE("one bad piece fails the whole transfer with the target's own words") {
  TcpPair pair({.tcp = SmallTcp()});
  constexpr uint64_t kSize = 1'000'000;
  auto local = Filled<MappedMemory>(kSize, 1);
  auto remote = Filled<MappedMemory>(kSize, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  const auto direction = GENERATE(CopyDirection::kRead, CopyDirection::kWrite);
  auto beyond = OnChannel(
      direction, {{.local = {local.get(), 0}, .remote_address = 0, .length = 500'000},
                  {.local = {local.get(), 500'000}, .remote_address = 900'001, .length = 100'000}});
  const absl::Status status = pair.Run(*beyond);
  CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
  CHECK(std::string(status.message()).find("is not registered") != std::string::npos);
  CHECK(std::string(status.message()).find("127.0.0.1") != std::string::npos);
  CHECK(!ErrorInfoOf(status).object.empty());
  CHECK(beyond->job()->moved);
  // The refused frame alone moves nothing.
  auto nothing = OnChannel(
      direction, {{.local = {local.get(), 0}, .remote_address = kSize - 10, .length = 100}});
  CHECK(ApiCodeOf(pair.Run(*nothing)) == ApiCode::kParamInvalid);
  CHECK_FALSE(nothing->job()->moved);
  // The lanes go on.
  auto good =
      OnChannel(direction, {{.local = {local.get(), 0}, .remote_address = 0, .length = kSize}});
  CHECK(pair.Run(*good).ok());
  CHECK(memcmp(local->bytes(), remote->bytes(), kSize) == 0);
  CHECK(pair.target_transport->counters().malformed_frames == 0);
}

TEST_CASE("an unknown channel is NOT_CONNECTED, an address near 2^64 does not wrap") {
  TcpPair pair({.tcp = SmallTcp()});
  auto local = Filled<MappedMemory>(1000, 1);
  auto remote = Filled<MappedMemory>(1000, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  auto unknown = OnChannel(CopyDirection::kWrite,
                           {{.local = {local.get(), 0}, .remote_address = 0, .length = 10}});
  unknown->job()->channel = 99;
  CHECK(ApiCodeOf(pair.Run(*unknown)) == ApiCode::kNotConnected);
  auto wrap = OnChannel(
      CopyDirection::kWrite,
      {{.local = {local.get(), 0}, .remote_address = UINT64_MAX - kBase - 4, .length = 10}});
  CHECK(ApiCodeOf(pair.Run(*wrap)) == ApiCode::kParamInvalid);
}

TEST_CASE("an access that fails on either side fails the transfer with its error") {
  TcpPair pair({.tcp = SmallTcp()});
  constexpr uint64_t kSize = 500'000;
  auto distant = Filled<DistantMemory>(kSize, 1);
  auto mapped = Filled<MappedMemory>(kSize, 2);
  distant->FailFrom(2, Failed("the copy engine says no", {.object = "sim device 3"}));
  const bool at_target = GENERATE(false, true);
  const auto direction = GENERATE(CopyDirection::kRead, CopyDirection::kWrite);
  MemoryAccess* local = mapped.get();
  if (at_target) {
    pair.resolver.Add(kChannel, kBase, distant);
  } else {
    pair.resolver.Add(kChannel, kBase, mapped);
    local = distant.get();
  }
  auto transfer =
      OnChannel(direction, {{.local = {local, 0}, .remote_address = 0, .length = kSize}});
  const absl::Status status = pair.Run(*transfer);
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  CHECK(std::string(status.message()).find("the copy engine says no") != std::string::npos);
  CHECK(ErrorInfoOf(status).object == "sim device 3");
}

TEST_CASE("a queue that is full refuses further transfers by name") {
  PairOptions options{.tcp = SmallTcp()};
  options.tcp.max_queued_transfers = 3;
  options.tcp.interfaces = {"nosuchif0"};  // no lane comes up, so everything waits
  TcpPair pair(std::move(options));
  auto local = Filled<MappedMemory>(1000, 1);
  std::vector<std::unique_ptr<TestTransfer>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(OnChannel(CopyDirection::kRead,
                                {{.local = {local.get(), 0}, .remote_address = 0, .length = 10}}));
    pair.initiator->Submit(waiting.back()->job());
  }
  auto refused = OnChannel(CopyDirection::kRead,
                           {{.local = {local.get(), 0}, .remote_address = 0, .length = 10}});
  const absl::Status status = pair.Run(*refused);
  CHECK(ApiCodeOf(status) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(status).limit == "3 transfers");
  pair.initiator->Close(Failed("closed"), 0);
  for (auto& transfer : waiting) CHECK(transfer->Wait().message() == "closed");
}

TEST_CASE("lanes share the bytes and report them") {
  PairOptions options{.tcp = SmallTcp()};
  options.tcp.lanes = 4;
  TcpPair pair(std::move(options));
  pair.WaitUntilUp(4);
  constexpr uint64_t kSize = 16 << 20;
  auto local = Filled<MappedMemory>(kSize, 1);
  auto remote = Filled<MappedMemory>(kSize, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  auto write = OnChannel(CopyDirection::kWrite,
                         {{.local = {local.get(), 0}, .remote_address = 0, .length = kSize}});
  REQUIRE(pair.Run(*write).ok());
  uint64_t sent = 0;
  for (const LaneStats& lane : pair.initiator->Lanes()) {
    CHECK(lane.state == "up");
    CHECK(lane.bytes_sent > 0);
    CHECK(lane.remote_address == pair.acceptor->endpoint().ToString());
    CHECK(lane.local_address.substr(0, 10) == "127.0.0.1:");
    sent += lane.bytes_sent;
  }
  CHECK(sent > kSize);
  CHECK(sent < kSize + kSize / 100);
  CHECK(pair.target->Lanes().size() == 4);
}

}  // namespace
}  // namespace hixld
