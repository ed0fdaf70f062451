// Ends that come early: after `done` no byte of the transfer lands, however slow the network is.
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
constexpr uint64_t kSize = 4 << 20;

struct Fixture {
  explicit Fixture(TcpOptions tcp = SmallTcp())
      : pair({.tcp = std::move(tcp), .proxy = true}),
        local(std::make_shared<MappedMemory>(kSize)),
        remote(std::make_shared<MappedMemory>(kSize)) {
    FillRandom(local->bytes(), kSize, 1);
    FillRandom(remote->bytes(), kSize, 2);
    pair.resolver.Add(kChannel, kBase, remote);
    pair.WaitUntilUp(2);
  }

  std::unique_ptr<TestTransfer> Transfer(CopyDirection direction, uint64_t offset = 0,
                                         uint64_t length = kSize, uint64_t channel = kChannel) {
    CopyPieces pieces = {
        {.local = {local.get(), offset}, .remote_address = kBase + offset, .length = length}};
    auto transfer = std::make_unique<TestTransfer>(direction, std::move(pieces));
    transfer->job()->channel = channel;
    transfer->job()->pins = {local};
    return transfer;
  }
  // Afterwards everything that was under way before has arrived.
  void Drain() {
    for (int i = 0; i < 2; ++i) {
      for (const auto direction : {CopyDirection::kRead, CopyDirection::kWrite}) {
        auto scratch = std::make_shared<MappedMemory>(kSize);
        pair.resolver.Add(kChannel + 1, kBase, scratch);
        auto transfer = Transfer(direction, 0, kSize, kChannel + 1);
        auto other = std::make_shared<MappedMemory>(kSize);
        transfer->job()->pieces[0].local.access = other.get();
        transfer->job()->pins = {other};
        REQUIRE(pair.Run(*transfer).ok());
      }
    }
  }

  TcpPair pair;
  std::shared_ptr<MappedMemory> local;
  std::shared_ptr<MappedMemory> remote;
};

bool AllBytesAre(MappedMemory& memory, int value) {
  const std::vector<std::byte> expected(kSize, static_cast<std::byte>(value));
  return memcmp(memory.bytes(), expected.data(), kSize) == 0;
}

TEST_CASE("a WRITE cancelled in the middle of a body on a stopped network") {
  Fixture f;
  auto write = f.Transfer(CopyDirection::kWrite);
  f.pair.proxy->PauseAfter(200'000);
  f.pair.initiator->Submit(write->job());
  f.pair.proxy->WaitUntilPaused();
  f.pair.initiator->Cancel(write->job(), Failed("not wanted any more"));
  CHECK(write->Wait().message() == "not wanted any more");
  CHECK(write->calls() == 1);
  // Both buffers are the user's again at once.
  memset(f.remote->bytes(), 0x55, kSize);
  memset(f.local->bytes(), 0x77, kSize);
  f.pair.proxy->Resume();
  f.Drain();
  CHECK(AllBytesAre(*f.remote, 0x55));
  CHECK(f.pair.initiator_transport->counters().cancelled_transfers == 1);
  // Cancel and Forget; the target remembers nothing.
  f.pair.to_target.WaitForMessages(2);
}

TEST_CASE("a READ cancelled in the middle of a body ends without asking the target") {
  Fixture f;
  auto read = f.Transfer(CopyDirection::kRead);
  f.pair.to_initiator.Hold();
  f.pair.proxy->PauseAfter(200'000);
  f.pair.initiator->Submit(read->job());
  f.pair.proxy->WaitUntilPaused();
  f.pair.initiator->Cancel(read->job(), Failed("not wanted any more"));
  CHECK(read->Wait().message() == "not wanted any more");
  memset(f.local->bytes(), 0x55, kSize);
  f.pair.proxy->Resume();
  f.Drain();
  CHECK(AllBytesAre(*f.local, 0x55));
  CHECK(f.pair.to_target.sent() == 0);
}

TEST_CASE("a deadline ends a transfer with TIMEOUT once it is fenced") {
  Fixture f;
  const auto direction = GENERATE(CopyDirection::kRead, CopyDirection::kWrite);
  auto transfer = f.Transfer(direction);
  f.pair.proxy->Pause();
  transfer->job()->deadline_ns = MonotonicNanos() + 20 * kNanosPerMilli;
  f.pair.initiator->Submit(transfer->job());
  const absl::Status status = transfer->Wait();
  CHECK(ApiCodeOf(status) == ApiCode::kTimeout);
  CHECK(MonotonicNanos() >= transfer->job()->deadline_ns);
  MappedMemory& target = direction == CopyDirection::kRead ? *f.local : *f.remote;
  memset(target.bytes(), 0x55, kSize);
  f.pair.proxy->Resume();
  f.Drain();
  CHECK(AllBytesAre(target, 0x55));
}

TEST_CASE("a WRITE that is on its way does not end before the target's word") {
  Fixture f;
  auto write = f.Transfer(CopyDirection::kWrite);
  f.pair.proxy->Pause();
  f.pair.to_initiator.Hold();
  f.pair.initiator->Submit(write->job());
  while (f.pair.initiator->Lanes()[0].bytes_sent < 100'000) std::this_thread::yield();
  f.pair.initiator->Cancel(write->job(), Timeout("too late"));
  f.pair.to_target.WaitForMessages(1);
  f.pair.to_initiator.WaitForMessages(1);
  CHECK_FALSE(write->ended());
  f.pair.to_initiator.Release();
  CHECK(ApiCodeOf(write->Wait()) == ApiCode::kTimeout);
}

TEST_CASE("an early end waits for writes to memory that is not mapped") {
  const bool at_target = GENERATE(true, false);
  Fixture f;
  auto distant = std::make_shared<DistantMemory>(kSize);
  distant->Hold();
  std::unique_ptr<TestTransfer> transfer;
  if (at_target) {
    f.pair.resolver.Add(9, kBase, distant);
    transfer = f.Transfer(CopyDirection::kWrite, 0, 64 << 10, 9);
  } else {
    transfer = f.Transfer(CopyDirection::kRead, 0, 64 << 10);
    transfer->job()->pieces[0].local.access = distant.get();
    transfer->job()->pins = {distant};
  }
  f.pair.initiator->Submit(transfer->job());
  distant->WaitForOperations(1);
  f.pair.initiator->Cancel(transfer->job(), Failed("cancelled"));
  // Others are served meanwhile, on both lanes.
  f.Drain();
  CHECK_FALSE(transfer->ended());
  distant->Release();
  CHECK(transfer->Wait().message() == "cancelled");
}

TEST_CASE("a cancelled WRITE that was never sent ends at once") {
  Fixture f;
  f.pair.proxy->Refuse(true);
  f.pair.proxy->Cut();
  while (f.pair.CountUp() > 0) std::this_thread::yield();
  f.pair.to_initiator.Hold();
  auto write = f.Transfer(CopyDirection::kWrite);
  f.pair.initiator->Submit(write->job());
  f.pair.initiator->Cancel(write->job(), Failed("cancelled"));
  CHECK(write->Wait().message() == "cancelled");
}

TEST_CASE("a channel is fenced at once on a stopped network, in both directions") {
  Fixture f;
  auto write = f.Transfer(CopyDirection::kWrite, 0, kSize / 2);
  auto read = f.Transfer(CopyDirection::kRead, kSize / 2, kSize / 2);
  f.pair.proxy->PauseAfter(300'000);
  f.pair.initiator->Submit(write->job());
  f.pair.initiator->Submit(read->job());
  f.pair.proxy->WaitUntilPaused();
  f.pair.resolver.Remove(kChannel);
  std::promise<void> fenced;
  f.pair.target->FenceChannel(kChannel, [&] { fenced.set_value(); });
  fenced.get_future().get();
  memset(f.remote->bytes(), 0x55, kSize);
  f.pair.proxy->Resume();
  CHECK(ApiCodeOf(write->Wait()) == ApiCode::kNotConnected);
  CHECK(ApiCodeOf(read->Wait()) == ApiCode::kNotConnected);
  f.Drain();
  CHECK(AllBytesAre(*f.remote, 0x55));
}

TEST_CASE("closing the target's end fences everything that came over it") {
  Fixture f;
  auto write = f.Transfer(CopyDirection::kWrite);
  f.pair.proxy->PauseAfter(200'000);
  f.pair.initiator->Submit(write->job());
  f.pair.proxy->WaitUntilPaused();
  f.pair.CloseTarget();
  memset(f.remote->bytes(), 0x55, kSize);
  f.pair.proxy->Resume();
  const int64_t fenced_at = MonotonicNanos() + 10 * kNanosPerMilli;
  f.pair.initiator->Close(Failed("the peer is gone"), fenced_at);
  CHECK(write->Wait().message() == "the peer is gone");
  CHECK(AllBytesAre(*f.remote, 0x55));
}

TEST_CASE("Close ends what cannot land at once, and the rest when the target is known to be gone") {
  Fixture f;
  f.pair.proxy->Pause();
  auto write = f.Transfer(CopyDirection::kWrite);
  auto read = f.Transfer(CopyDirection::kRead);
  f.pair.initiator->Submit(write->job());
  f.pair.initiator->Submit(read->job());
  f.pair.to_target.Disconnect();
  // Some of the WRITE is on its way: the lanes report it.
  const auto sent = [&] { return f.pair.initiator->Lanes()[0].bytes_sent; };
  while (sent() < 100'000) std::this_thread::yield();
  const int64_t fenced_at = MonotonicNanos() + 500 * kNanosPerMilli;
  f.pair.initiator->Close(NotConnected("the link is lost"), fenced_at);
  CHECK(read->Wait().message() == "the link is lost");
  CHECK(MonotonicNanos() < fenced_at);
  CHECK(write->Wait().message() == "the link is lost");
  CHECK(MonotonicNanos() >= fenced_at);
  auto late = f.Transfer(CopyDirection::kRead);
  CHECK(f.pair.Run(*late).message() == "the link is lost");
  CHECK(late->calls() == 1);
}

TEST_CASE("transfers survive the link's own end when they still wait for their fence") {
  Fixture f;
  f.pair.proxy->Pause();
  auto write = f.Transfer(CopyDirection::kWrite);
  f.pair.initiator->Submit(write->job());
  while (f.pair.initiator->Lanes()[0].bytes_sent < 100'000) std::this_thread::yield();
  f.pair.initiator->Close(NotConnected("lost"), MonotonicNanos() + 20 * kNanosPerMilli);
  f.pair.to_initiator.Disconnect();
  f.pair.initiator.reset();
  CHECK(write->Wait().message() == "lost");
}

TEST_CASE("hundreds of timeouts leave nothing behind") {
  Fixture f;
  f.pair.proxy->Pause();
  std::vector<std::unique_ptr<TestTransfer>> transfers;
  for (int i = 0; i < 300; ++i) {
    transfers.push_back(
        f.Transfer(i % 2 == 0 ? CopyDirection::kRead : CopyDirection::kWrite, 0, 5'000));
    transfers.back()->job()->deadline_ns = MonotonicNanos() + (1 + i % 7) * kNanosPerMilli;
    f.pair.initiator->Submit(transfers.back()->job());
  }
  for (auto& transfer : transfers) {
    CHECK(ApiCodeOf(transfer->Wait()) == ApiCode::kTimeout);
    CHECK(transfer->calls() == 1);
  }
  f.pair.proxy->Resume();
  f.Drain();
  for (const auto& transfer : transfers) CHECK(transfer->job().use_count() == 1);
}

}  // namespace
}  // namespace hixld
