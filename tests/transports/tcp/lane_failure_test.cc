// Lanes that die, stall and come back.
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <vector>

#include "tests/transports/tcp/tcp_pair.h"

namespace hixld {
namespace {

using testing::DistantMemory;
using testing::FillRandom;
using testing::MappedMemory;
using testing::PairOptions;
using testing::SmallTcp;
using testing::TcpPair;
using testing::TestTransfer;

constexpr uint64_t kChannel = 3;
constexpr uint64_t kBase = 0x100000;

std::unique_ptr<TestTransfer> Whole(CopyDirection direction, MemoryAccess* local) {
  CopyPieces pieces = {{.local = {local, 0}, .remote_address = kBase, .length = local->length()}};
  auto transfer = std::make_unique<TestTransfer>(direction, std::move(pieces));
  transfer->job()->channel = kChannel;
  return transfer;
}

template <typename Memory>
std::shared_ptr<Memory> Filled(size_t size, uint64_t seed) {
  auto memory = std::make_shared<Memory>(size);
  FillRandom(memory->bytes(), size, seed);
  return memory;
}

TEST_CASE("lanes that are cut hand their work to the others") {
  const auto direction = GENERATE(CopyDirection::kRead, CopyDirection::kWrite);
  PairOptions options{.tcp = SmallTcp(), .proxy = true};
  options.tcp.lanes = 3;
  TcpPair pair(std::move(options));
  constexpr uint64_t kSize = 8 << 20;
  auto local = Filled<MappedMemory>(kSize, 1);
  auto remote = Filled<MappedMemory>(kSize, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  for (int round = 0; round < 3; ++round) {
    pair.WaitUntilUp(3);
    // Never the remote side: a lane that was cut may still be reading there, to no avail.
    FillRandom(local->bytes(), kSize, 10 + static_cast<uint64_t>(round));
    auto transfer = Whole(direction, local.get());
    pair.initiator->Submit(transfer->job());
    while (transfer->job()->bytes_done.load() < kSize / 4) std::this_thread::yield();
    // One lane first, then all of them at once.
    pair.proxy->Cut(static_cast<int>(pair.proxy->connections()) - 1);
    while (transfer->job()->bytes_done.load() < kSize / 2) std::this_thread::yield();
    pair.proxy->Cut();
    const absl::Status status = transfer->Wait();
    INFO(status);
    REQUIRE(status.ok());
    REQUIRE(memcmp(local->bytes(), remote->bytes(), kSize) == 0);
  }
  pair.WaitUntilUp(3);
  uint64_t reconnects = 0;
  for (const LaneStats& lane : pair.initiator->Lanes()) reconnects += lane.reconnects;
  CHECK(reconnects >= 9);
}

TEST_CASE("WRITE stripes of a dead lane are sent again only after the target has fenced it") {
  PairOptions options{.tcp = SmallTcp(), .proxy = true};
  TcpPair pair(std::move(options));
  pair.WaitUntilUp(2);
  auto local = Filled<MappedMemory>(256 << 10, 1);
  auto remote = Filled<MappedMemory>(256 << 10, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  pair.proxy->Pause();
  pair.to_initiator.Hold();
  auto write = Whole(CopyDirection::kWrite, local.get());
  pair.initiator->Submit(write->job());
  const auto sent = [&] {
    uint64_t bytes = 0;
    for (const LaneStats& lane : pair.initiator->Lanes()) bytes += lane.bytes_sent;
    return bytes;
  };
  while (sent() < 64 << 10) std::this_thread::yield();
  pair.proxy->Cut();
  pair.proxy->Resume();
  pair.to_target.WaitForMessages(1);     // LaneDead
  pair.to_initiator.WaitForMessages(1);  // LaneFenced, held back
  pair.WaitUntilUp(2);
  CHECK_FALSE(write->ended());
  pair.to_initiator.Release();
  REQUIRE(write->Wait().ok());
  CHECK(memcmp(local->bytes(), remote->bytes(), 256 << 10) == 0);
  CHECK(pair.initiator_transport->counters().resent_stripes > 0);
}

TEST_CASE("a dead lane is fenced only when its last write to unmapped memory has ended") {
  PairOptions options{.tcp = SmallTcp(), .proxy = true};
  TcpPair pair(std::move(options));
  pair.WaitUntilUp(2);
  auto local = Filled<MappedMemory>(32 << 10, 1);
  auto distant = Filled<DistantMemory>(32 << 10, 2);
  pair.resolver.Add(kChannel, kBase, distant);
  distant->Hold();
  auto write = Whole(CopyDirection::kWrite, local.get());
  pair.initiator->Submit(write->job());
  distant->WaitForOperations(1);
  pair.proxy->Cut();
  pair.to_target.WaitForMessages(1);
  pair.WaitUntilUp(2);
  // Served by the new lanes meanwhile.
  auto other = Filled<MappedMemory>(32 << 10, 3);
  pair.resolver.Add(kChannel + 1, kBase, other);
  auto read = Whole(CopyDirection::kRead, local.get());
  auto scratch = Filled<MappedMemory>(32 << 10, 4);
  read->job()->channel = kChannel + 1;
  read->job()->pieces[0].local.access = scratch.get();
  REQUIRE(pair.Run(*read).ok());
  CHECK(pair.to_initiator.sent() == 0);
  distant->Release();
  REQUIRE(write->Wait().ok());
  CHECK(memcmp(local->bytes(), distant->bytes(), 32 << 10) == 0);
}

TEST_CASE("a READ into unmapped memory survives a lane that dies while it is being written") {
  PairOptions options{.tcp = SmallTcp(), .proxy = true};
  TcpPair pair(std::move(options));
  pair.WaitUntilUp(2);
  constexpr uint64_t kSize = 1 << 20;
  auto distant = Filled<DistantMemory>(kSize, 1);
  auto remote = Filled<MappedMemory>(kSize, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  distant->Hold();
  auto read = Whole(CopyDirection::kRead, distant.get());
  pair.initiator->Submit(read->job());
  distant->WaitForOperations(2);
  pair.proxy->Cut();
  pair.WaitUntilUp(2);
  distant->Release();
  REQUIRE(read->Wait().ok());
  CHECK(memcmp(distant->bytes(), remote->bytes(), kSize) == 0);
}

TEST_CASE("with no lane left transfers wait, and go on when one is back") {
  PairOptions options{.tcp = SmallTcp(), .proxy = true};
  TcpPair pair(std::move(options));
  pair.WaitUntilUp(2);
  pair.proxy->Refuse(true);
  pair.proxy->Cut();
  while (pair.CountUp() > 0) std::this_thread::yield();
  auto local = Filled<MappedMemory>(1 << 20, 1);
  auto remote = Filled<MappedMemory>(1 << 20, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  auto waiting = Whole(CopyDirection::kWrite, local.get());
  auto late = Whole(CopyDirection::kWrite, local.get());
  late->job()->deadline_ns = MonotonicNanos() + 10 * kNanosPerMilli;
  pair.initiator->Submit(waiting->job());
  pair.initiator->Submit(late->job());
  CHECK(ApiCodeOf(late->Wait()) == ApiCode::kTimeout);
  CHECK_FALSE(waiting->ended());
  CHECK_FALSE(pair.initiator->Lanes()[0].error.empty());
  pair.proxy->Refuse(false);
  REQUIRE(waiting->Wait().ok());
  CHECK(memcmp(local->bytes(), remote->bytes(), 1 << 20) == 0);
}

TEST_CASE("a lane on which nothing moves is given up") {
  PairOptions options{.tcp = SmallTcp(), .proxy = true};
  options.tcp.stall_timeout_ns = 40 * kNanosPerMilli;
  TcpPair pair(std::move(options));
  pair.WaitUntilUp(2);
  auto local = Filled<MappedMemory>(4 << 20, 1);
  auto remote = Filled<MappedMemory>(4 << 20, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  const size_t before = pair.proxy->connections();
  pair.proxy->Pause();
  auto write = Whole(CopyDirection::kWrite, local.get());
  pair.initiator->Submit(write->job());
  // New connections are made although the old ones look alive.
  while (pair.proxy->connections() < before + 2) std::this_thread::yield();
  pair.proxy->Resume();
  REQUIRE(write->Wait().ok());
  CHECK(memcmp(local->bytes(), remote->bytes(), 4 << 20) == 0);
}

TEST_CASE("chaos: cut, stopped and cancelled at random, every end is true") {
  PairOptions options{.tcp = SmallTcp(), .proxy = true};
  options.tcp.lanes = 3;
  TcpPair pair(std::move(options));
  std::mt19937_64 random(11);
  constexpr uint64_t kSlot = 300'000;
  constexpr int kSlots = 40;
  auto local = Filled<MappedMemory>(kSlot * kSlots, 1);
  auto remote = Filled<MappedMemory>(kSlot * kSlots, 2);
  pair.resolver.Add(kChannel, kBase, remote);
  std::vector<std::unique_ptr<TestTransfer>> transfers;
  std::vector<std::vector<std::byte>> at_end(kSlots);
  for (int i = 0; i < kSlots; ++i) {
    const bool read = random() % 2 == 0;
    CopyPieces pieces;
    for (uint64_t at = 0; at < kSlot;) {
      const uint64_t length = std::min(kSlot - at, 1 + random() % 50'000);
      pieces.push_back({.local = {local.get(), i * kSlot + at},
                        .remote_address = kBase + i * kSlot + at,
                        .length = length});
      at += length;
    }
    auto transfer = std::make_unique<TestTransfer>(
        read ? CopyDirection::kRead : CopyDirection::kWrite, std::move(pieces));
    transfer->job()->channel = kChannel;
    if (random() % 4 == 0) {
      transfer->job()->deadline_ns =
          MonotonicNanos() + static_cast<int64_t>(random() % 20) * kNanosPerMilli;
    }
    pair.initiator->Submit(transfer->job());
    transfers.push_back(std::move(transfer));
    switch (random() % 8) {
      case 0:
        pair.proxy->Cut(static_cast<int>(random() % pair.proxy->connections()));
        break;
      case 1:
        pair.proxy->Cut();
        break;
      case 2:
        pair.proxy->Pause();
        break;
      case 3:
        pair.initiator->Cancel(transfers[random() % transfers.size()]->job(), Failed("cancelled"));
        break;
      default:
        pair.proxy->Resume();
    }
  }
  pair.proxy->Resume();
  int good = 0;
  for (int i = 0; i < kSlots; ++i) {
    const absl::Status status = transfers[i]->Wait();
    REQUIRE(transfers[i]->calls() == 1);
    const bool read = transfers[i]->job()->direction == CopyDirection::kRead;
    std::byte* target = (read ? local->bytes() : remote->bytes()) + i * kSlot;
    at_end[i].assign(target, target + kSlot);
    if (!status.ok()) continue;
    ++good;
    REQUIRE(memcmp(local->bytes() + i * kSlot, remote->bytes() + i * kSlot, kSlot) == 0);
  }
  CHECK(good > 0);
  // Whatever was still under way has now had its chance to land.
  auto flush = Whole(CopyDirection::kRead, local.get());
  auto scratch = Filled<MappedMemory>(local->length(), 3);
  flush->job()->pieces[0].local.access = scratch.get();
  REQUIRE(pair.Run(*flush).ok());
  for (int i = 0; i < kSlots; ++i) {
    const bool read = transfers[i]->job()->direction == CopyDirection::kRead;
    std::byte* target = (read ? local->bytes() : remote->bytes()) + i * kSlot;
    REQUIRE(memcmp(target, at_end[i].data(), kSlot) == 0);
  }
  CHECK(pair.target_transport->counters().malformed_frames == 0);
  CHECK(pair.initiator_transport->counters().malformed_frames == 0);
}

}  // namespace
}  // namespace hixld
