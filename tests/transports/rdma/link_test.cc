// Whole links over imitated verbs.
#include <catch2/catch.hpp>
#include <future>
#include <random>

#include "tests/transports/rdma/fake_verbs.h"
#include "tests/transports/rdma/rdma_harness.h"

namespace hixld::rdma::testing {
namespace {

using hixld::testing::FillRandom;

constexpr size_t kSize = 1 << 20;

struct Nodes {
  FakeNetwork network;
  std::unique_ptr<Pair> pair;

  explicit Nodes(RdmaOptions options = {}, size_t ports = 1,
                 std::shared_ptr<TransferSink> fallback = nullptr, const std::string& down = "") {
    std::vector<std::string> here;
    std::vector<std::string> there;
    for (size_t i = 0; i < ports; ++i) {
      const auto subnet = static_cast<uint8_t>(77 + i);
      here.push_back(absl::StrCat("a", i));
      there.push_back(absl::StrCat("b", i));
      network.AddDevice(here.back(), V4(10, subnet, 0, 1));
      network.AddDevice(there.back(), V4(10, subnet, 0, 2));
    }
    if (!down.empty()) network.SetPort(down, false);
    options.reconnect_min_ns = kNanosPerMilli;
    // A busy machine must not make lanes late.
    if (options.give_up_ns == RdmaOptions().give_up_ns) options.give_up_ns *= 100;
    pair = std::make_unique<Pair>(std::make_unique<FakeVerbs>(&network, here),
                                  std::make_unique<FakeVerbs>(&network, there), kSize, options,
                                  std::move(fallback));
  }
  Pair* operator->() { return pair.get(); }
  Pair& operator*() { return *pair; }
};

// A transfer on the test's channel.
class Transfer {
 public:
  Transfer(Pair& pair, CopyDirection direction, CopyPieces pieces,
           int64_t deadline_ns = kNoDeadline)
      : pair_(pair), job_(std::make_shared<TransferJob>()) {
    static std::atomic<uint64_t> next_id{1};
    job_->id = next_id++;
    job_->direction = direction;
    job_->channel = kChannel;
    for (const CopyPiece& piece : pieces) job_->bytes += piece.length;
    job_->pieces = std::move(pieces);
    job_->deadline_ns = deadline_ns;
    job_->pins = {pair.local};
    job_->done = [promise = promise_](absl::Status status) { promise->set_value(status); };
  }
  Transfer& Start() {
    pair_.link->Submit(job_);
    return *this;
  }
  void Cancel() { pair_.link->Cancel(job_, Failed("cancelled")); }
  absl::Status Wait() { return future_.get(); }
  bool moved() const { return job_->moved; }
  bool Pending() { return future_.wait_for(std::chrono::seconds(0)) != std::future_status::ready; }

 private:
  Pair& pair_;
  std::shared_ptr<TransferJob> job_;
  std::shared_ptr<std::promise<absl::Status>> promise_ =
      std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> future_ = promise_->get_future();
};

void CheckOk(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

// Blocks until that many work requests are held back.
void WaitForHeld(FakeNetwork& network, size_t count) {
  while (network.held() < count) std::this_thread::yield();
}

TEST_CASE("Random lists of reads and writes move the right bytes") {
  RdmaOptions options;
  options.message_bytes = 4096;
  options.registration_bytes = 64 << 10;
  options.lanes = 3;
  Nodes nodes(options, 2);
  std::mt19937_64 random(1);
  FillRandom(nodes->local->bytes(), kSize, 1);
  FillRandom(nodes->remote->bytes(), kSize, 2);
  std::vector<std::byte> local(nodes->local->bytes(), nodes->local->bytes() + kSize);
  std::vector<std::byte> remote(nodes->remote->bytes(), nodes->remote->bytes() + kSize);
  for (int round = 0; round < 60; ++round) {
    const bool write = random() % 2 == 0;
    CopyPieces pieces;
    uint64_t at = 0;
    while (at < kSize && pieces.size() < 200) {
      const uint64_t length = std::min<uint64_t>(1 + random() % 20000, kSize - at);
      // Permuted in the other memory, so that the order shows.
      const uint64_t there = kSize - at - length;
      if (random() % 3 != 0) {
        pieces.push_back(nodes->Piece(at, there, length));
        if (write) {
          memcpy(remote.data() + there, local.data() + at, length);
        } else {
          memcpy(local.data() + at, remote.data() + there, length);
        }
      }
      at += length;
    }
    Transfer transfer(*nodes, write ? CopyDirection::kWrite : CopyDirection::kRead, pieces);
    CheckOk(transfer.Start().Wait());
    REQUIRE(memcmp(local.data(), nodes->local->bytes(), kSize) == 0);
    REQUIRE(memcmp(remote.data(), nodes->remote->bytes(), kSize) == 0);
  }
  // Every part of the local memory is registered once per device at most.
  CHECK(nodes->here().stats().registrations_made <= 2 * kSize / options.registration_bytes);
}

TEST_CASE("Registrations go when the memory goes, and when the channel goes") {
  Nodes nodes;
  Transfer transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 100)});
  REQUIRE(transfer.Start().Wait().ok());
  CHECK(nodes.network.regions() == 2);
  nodes->resolver.CloseChannel(kChannel);
  nodes->Fence(kChannel);
  CHECK(nodes.network.regions() == 1);
  CHECK(nodes->here().stats().registrations == 1);
  {
    auto other = std::make_shared<MappedMemory>(100);
    CopyPiece piece = nodes->Piece(0, 0, 100);
    piece.local = {other.get(), 0};
    nodes->resolver.OpenChannel(kChannel);
    Transfer second(*nodes, CopyDirection::kWrite, {piece});
    REQUIRE(second.Start().Wait().ok());
    CHECK(nodes->here().stats().registrations == 2);
  }
  CHECK(nodes->here().stats().registrations == 1);
}

TEST_CASE("Deregistered ranges are refused, others of the channel go on undisturbed") {
  Nodes nodes;
  auto more = std::make_shared<MappedMemory>(4096);
  nodes->resolver.AddRegion(0x1000, more, 0, 4096);
  CopyPiece piece = nodes->Piece(0, 0, 100);
  piece.remote_address = 0x1000;
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {piece, nodes->Piece(0, 0, 100)}).Start().Wait());
  nodes->resolver.RemoveRegion(0x1000);
  nodes->Fence(kChannel);
  memset(more->bytes(), 0x5a, 4096);
  const absl::Status refused = Transfer(*nodes, CopyDirection::kWrite, {piece}).Start().Wait();
  CHECK(ApiCodeOf(refused) == ApiCode::kParamInvalid);
  CHECK(more->bytes()[0] == std::byte{0x5a});
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 100)}).Start().Wait());
  CHECK(nodes->link->Lanes()[0].reconnects == 0);
}

TEST_CASE("Stale keys break a lane at most; the transfer asks anew") {
  Nodes nodes({.lanes = 1});
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 100)}).Start().Wait());
  // The revocation's message is lost; the region is registered anew elsewhere.
  auto replaced = std::make_shared<MappedMemory>(kSize);
  nodes->to_initiator.Cut();
  nodes->resolver.AddRegion(kRemoteBase, replaced, 0, kSize);
  nodes->Fence(kChannel);
  nodes->to_initiator.Connect(
      [&](const std::string& payload) { nodes->link->OnControlMessage(payload); });
  FillRandom(nodes->local->bytes(), 100, 3);
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 100)}).Start().Wait());
  CHECK(memcmp(replaced->bytes(), nodes->local->bytes(), 100) == 0);
  CHECK(nodes->link->Lanes()[0].reconnects == 1);
}

TEST_CASE("Unregistered ranges and unknown channels are refused with the target's own error") {
  Nodes nodes;
  Transfer beyond(*nodes, CopyDirection::kWrite, {nodes->Piece(0, kSize - 50, 100)});
  CHECK(ApiCodeOf(beyond.Start().Wait()) == ApiCode::kParamInvalid);
  nodes->resolver.CloseChannel(kChannel);
  Transfer closed(*nodes, CopyDirection::kRead, {nodes->Piece(0, 0, 100)});
  CHECK(ApiCodeOf(closed.Start().Wait()) == ApiCode::kNotConnected);
}

TEST_CASE("A refused transfer tells whether bytes of it may have moved") {
  Nodes nodes;
  Transfer first(*nodes, CopyDirection::kWrite, {nodes->Piece(0, kSize, 1)});
  CHECK(ApiCodeOf(first.Start().Wait()) == ApiCode::kParamInvalid);
  CHECK_FALSE(first.moved());
  // With more pieces than one request for keys names, the first ones go before the last is refused.
  CopyPieces pieces;
  for (uint64_t i = 0; i < 5000; ++i) pieces.push_back(nodes->Piece(2 * i, 2 * i, 1));
  pieces.push_back(nodes->Piece(0, kSize, 1));
  Transfer second(*nodes, CopyDirection::kWrite, pieces);
  CHECK(ApiCodeOf(second.Start().Wait()) == ApiCode::kParamInvalid);
  CHECK(second.moved());
}

TEST_CASE("A failed queue pair: its work moves to another, every byte arrives") {
  RdmaOptions options;
  options.message_bytes = 1024;
  options.lanes = 2;
  Nodes nodes(options);
  FillRandom(nodes->local->bytes(), kSize, 4);
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  for (int i = 0; i < 20; ++i) {
    memset(nodes->remote->bytes(), 0, kSize);
    nodes.network.FailNext(i % 2 == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_GENERAL_ERR);
    const auto direction = i % 4 < 2 ? CopyDirection::kWrite : CopyDirection::kRead;
    if (direction == CopyDirection::kRead) {
      memcpy(nodes->remote->bytes(), nodes->local->bytes(), kSize);
      memset(nodes->local->bytes(), 0, kSize);
    }
    CheckOk(Transfer(*nodes, direction, {nodes->Piece(0, 0, kSize)}).Start().Wait());
    REQUIRE(memcmp(nodes->local->bytes(), nodes->remote->bytes(), kSize) == 0);
  }
}

TEST_CASE("A request that always breaks its lane fails, and does not take the link along") {
  Nodes nodes({.lanes = 1});
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  nodes.network.Hold(true);
  Transfer bad(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 100)});
  bad.Start();
  for (int i = 0; i < 3; ++i) {
    WaitForHeld(nodes.network, 1);
    nodes.network.FailNext(IBV_WC_REM_OP_ERR);
    nodes.network.Hold(false);
    nodes.network.Hold(true);
  }
  const absl::Status status = bad.Wait();
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  nodes.network.Hold(false);
  CHECK(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 100)}).Start().Wait().ok());
}

TEST_CASE("Timeouts and cancels are fenced: nothing lands afterwards, others are sent again") {
  const bool cancel = GENERATE(false, true);
  RdmaOptions options;
  options.lanes = 2;
  options.cancel_grace_ns = kNanosPerMilli;
  Nodes nodes(options);
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  nodes.network.Hold(true);
  memset(nodes->local->bytes(), 0x11, kSize);
  memset(nodes->remote->bytes(), 0, kSize);
  Transfer late(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 4096)},
                cancel ? kNoDeadline : MonotonicNanos() + 20 * kNanosPerMilli);
  Transfer other(*nodes, CopyDirection::kWrite, {nodes->Piece(8192, 8192, 4096)});
  late.Start();
  other.Start();
  // On a busy machine the deadline may pass before.
  while (nodes.network.held() < 2 && late.Pending()) std::this_thread::yield();
  if (cancel) late.Cancel();
  const absl::Status status = late.Wait();
  CHECK(ApiCodeOf(status) == (cancel ? ApiCode::kFailed : ApiCode::kTimeout));
  // The buffer is used again at once; packets that were on their way come now.
  memset(nodes->remote->bytes(), 0x77, 4096);
  nodes.network.LandLate();
  for (size_t i = 0; i < 4096; ++i) REQUIRE(nodes->remote->bytes()[i] == std::byte{0x77});
  nodes.network.Hold(false);
  REQUIRE(other.Wait().ok());
  CHECK(nodes->remote->bytes()[8192] == std::byte{0x11});
}

TEST_CASE("While the target's end of a lane may still take packets, a write does not end") {
  Nodes nodes({.lanes = 1, .cancel_grace_ns = 0});
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  nodes.network.Hold(true);
  Transfer write(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 4096)});
  Transfer read(*nodes, CopyDirection::kRead, {nodes->Piece(8192, 8192, 4096)});
  write.Start();
  read.Start();
  WaitForHeld(nodes.network, 2);
  // The target is not told to close its end.
  nodes->to_target.Cut();
  read.Cancel();
  write.Cancel();
  // A READ lands here, and here it is certain.
  CHECK_FALSE(read.Wait().ok());
  CHECK(write.Pending());
  const int64_t fenced_at = MonotonicNanos() + 50 * kNanosPerMilli;
  nodes->link->Close(NotConnected("peer lost"), fenced_at);
  CHECK_FALSE(write.Wait().ok());
  CHECK((MonotonicNanos() >= fenced_at || nodes.network.held() == 0));
}

TEST_CASE("A closed link ends everything that waits, and refuses what comes") {
  Nodes nodes;
  nodes.network.Hold(true);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (int i = 0; i < 64; ++i) {
    transfers.push_back(std::make_unique<Transfer>(
        *nodes, i % 2 == 0 ? CopyDirection::kWrite : CopyDirection::kRead,
        CopyPieces{nodes->Piece(i * 4096, i * 4096, 4096)}));
    transfers.back()->Start();
  }
  nodes->link->Close(NotConnected("peer lost"), MonotonicNanos());
  for (auto& transfer : transfers) CHECK(ApiCodeOf(transfer->Wait()) == ApiCode::kNotConnected);
  Transfer after(*nodes, CopyDirection::kRead, {nodes->Piece(0, 0, 1)});
  CHECK(ApiCodeOf(after.Start().Wait()) == ApiCode::kNotConnected);
}

TEST_CASE("A port that goes down: its lanes move to the other port, and back") {
  Nodes nodes({.lanes = 2}, 2);
  nodes->events.WaitFor("is up", 2);
  CHECK(nodes->link->Lanes()[0].local_address == "a0 port 1 ::ffff:10.77.0.1");
  CHECK(nodes->link->Lanes()[1].local_address == "a1 port 1 ::ffff:10.78.0.1");
  nodes.network.SetPort("a0", false);
  nodes->events.WaitFor("is up", 3);
  CHECK(nodes->events.Has("a0 port 1 went down"));
  CHECK(nodes->link->Lanes()[0].local_address == "a1 port 1 ::ffff:10.78.0.1");
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, kSize)}).Start().Wait());
  nodes.network.SetPort("a0", true);
  nodes->events.WaitFor("is up", 4);
  CHECK(nodes->link->Lanes()[0].local_address == "a0 port 1 ::ffff:10.77.0.1");
}

// Ends every transfer by itself and counts.
class CountingSink : public TransferSink {
 public:
  absl::string_view transport() const override { return "tcp"; }
  void Submit(std::shared_ptr<TransferJob> job) override {
    ++submitted;
    if (on_submit) return on_submit(job);
    job->done(absl::OkStatus());
  }
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    job->done(std::move(reason));
  }
  std::atomic<int> submitted{0};
  std::function<void(const std::shared_ptr<TransferJob>&)> on_submit;
};

TEST_CASE("A transfer that is cancelled while it moves to the fall-back is cancelled there") {
  auto sink = std::make_shared<CountingSink>();
  Nodes nodes({.lanes = 1, .wait_for_ports = true}, 1, sink, "a0");
  nodes->events.WaitFor("transfers go over TCP");
  sink->on_submit = [&](const std::shared_ptr<TransferJob>& job) {
    nodes->link->Cancel(job, Failed("not wanted any more"));
  };
  const absl::Status status =
      Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait();
  CHECK(status.message() == "not wanted any more");
  CHECK(sink->submitted == 1);
}

TEST_CASE("With no port left transfers go over the fall-back, and return") {
  auto sink = std::make_shared<CountingSink>();
  Nodes nodes({.lanes = 1, .give_up_ns = 20 * kNanosPerMilli}, 1, sink);
  // On a busy machine the first lane may come late, too.
  nodes->events.WaitFor("is up");
  const size_t late = nodes->events.CountOf("use RDMA again");
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  CHECK(sink->submitted == 0);
  nodes.network.SetPort("a0", false);
  nodes->events.WaitFor("transfers go over TCP", late + 1);
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  CHECK(sink->submitted == 1);
  CHECK_THAT(nodes->link->Trouble(), Catch::Matchers::Contains("a0 port 1"));
  nodes.network.SetPort("a0", true);
  nodes->events.WaitFor("use RDMA again", late + 1);
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  CHECK(sink->submitted == 1);
  CHECK(nodes->link->Trouble().empty());
}

TEST_CASE("Where a port is down from the start nothing waits, and it is used once it comes up") {
  for (const char* down : {"a0", "b0"}) {
    auto sink = std::make_shared<CountingSink>();
    Nodes nodes({.lanes = 2, .wait_for_ports = true}, 1, sink, down);
    nodes->events.WaitFor("transfers go over TCP");
    CHECK_THAT(nodes->link->Trouble(),
               Catch::Matchers::Contains(absl::StrCat(down, " port 1 is DOWN")));
    CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
    CHECK(sink->submitted == 1);
    nodes.network.SetPort(down, true);
    nodes->events.WaitFor("use RDMA again");
    CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
    CHECK(sink->submitted == 1);
  }
}

TEST_CASE("A way that passes nothing is no lane, though both queue pairs are ready") {
  auto sink = std::make_shared<CountingSink>();
  Nodes nodes({.lanes = 1, .give_up_ns = 20 * kNanosPerMilli}, 1, sink);
  nodes->events.WaitFor("is up");
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  const size_t up = nodes->events.CountOf("is up");
  const size_t late = nodes->events.CountOf("transfers go over TCP");
  nodes.network.PassBelow(0);
  // It breaks the lane, and none that is opened again counts.
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  CHECK(sink->submitted == 1);
  nodes->events.WaitFor("transfers go over TCP", late + 1);
  CHECK(nodes->events.CountOf("is up") == up);
  CHECK(nodes->link->transport() == "tcp");
  CHECK_THAT(nodes->link->Trouble(), Catch::Matchers::Contains("does not answer"));
  CHECK_THAT(nodes->link->Lanes()[0].error, Catch::Matchers::Contains("rdma.retry_count"));
  nodes.network.PassBelow(UINT64_MAX);
  nodes->events.WaitFor("is up", up + 1);
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  CHECK(sink->submitted == 1);
  CHECK(nodes->link->transport() == "rdma");
}

TEST_CASE("Where only small packets pass, a large transfer goes elsewhere, and small ones stay") {
  auto sink = std::make_shared<CountingSink>();
  Nodes nodes({.lanes = 1}, 1, sink);
  nodes->events.WaitFor("is up");
  nodes.network.PassBelow(1000);
  CheckOk(Transfer(*nodes, CopyDirection::kRead, {nodes->Piece(0, 0, kSize)}).Start().Wait());
  CHECK(sink->submitted == 1);
  CheckOk(Transfer(*nodes, CopyDirection::kRead, {nodes->Piece(0, 0, 999)}).Start().Wait());
  CHECK(sink->submitted == 1);
}

TEST_CASE("Without a fall-back they fail with the reason") {
  Nodes nodes({.lanes = 1, .give_up_ns = 20 * kNanosPerMilli});
  nodes->events.WaitFor("is up");
  nodes.network.SetPort("b0", false);
  nodes->events.WaitFor("no RDMA lane to 127.0.0.1:1");
  const absl::Status status =
      Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait();
  CHECK_THAT(std::string(status.message()), Catch::Matchers::Contains("b0 port 1"));
}

TEST_CASE("Memory that is not mapped goes over the fall-back, or is refused by name") {
  auto sink = std::make_shared<CountingSink>();
  const bool with_fallback = GENERATE(true, false);
  Nodes nodes({}, 1, with_fallback ? sink : nullptr);
  hixld::testing::DistantMemory distant(4096);
  CopyPiece piece = nodes->Piece(0, 0, 4096);
  piece.local = {&distant, 0};
  const absl::Status status = Transfer(*nodes, CopyDirection::kWrite, {piece}).Start().Wait();
  CHECK(status.ok() == with_fallback);
  if (!with_fallback) {
    CHECK(ApiCodeOf(status) == ApiCode::kUnsupported);
    CHECK_THAT(std::string(status.message()), Catch::Matchers::Contains("distant test memory"));
  }
  // The same at the target.
  auto far = std::make_shared<hixld::testing::DistantMemory>(4096);
  nodes->resolver.AddRegion(0x1000, far, 0, 4096);
  piece = nodes->Piece(0, 0, 4096);
  piece.remote_address = 0x1000;
  CHECK(Transfer(*nodes, CopyDirection::kWrite, {piece}).Start().Wait().ok() == with_fallback);
}

TEST_CASE("Too little lockable memory is named, on either side") {
  const std::string device = GENERATE("a0", "b0");
  Nodes nodes;
  nodes.network.SetLockLimit(device, 4096);
  const absl::Status refused =
      Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait();
  CHECK(ApiCodeOf(refused) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(refused).limit == "RLIMIT_MEMLOCK");
  nodes.network.SetLockLimit(device, UINT64_MAX);
  CHECK(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait().ok());
}

TEST_CASE("The send queue's depth is respected") {
  RdmaOptions options;
  options.lanes = 1;
  options.queue_depth = 32;
  Nodes nodes(options);
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 1)}).Start().Wait());
  nodes.network.Hold(true);
  CopyPieces pieces;
  for (uint64_t i = 0; i < 500; ++i) pieces.push_back(nodes->Piece(i * 2, i * 2, 1));
  Transfer many(*nodes, CopyDirection::kWrite, pieces);
  many.Start();
  WaitForHeld(nodes.network, 31);
  nodes.network.Hold(false);
  REQUIRE(many.Wait().ok());
  // One slot is kept for the drain.
  CHECK(nodes.network.most_posted() == 31);
}

TEST_CASE("Hostile messages to either end change nothing") {
  Nodes nodes;
  nodes->events.WaitFor("is up", 2);
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string noise(random() % 64, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    nodes->target->OnControlMessage(noise);
    nodes->link->OnControlMessage(noise);
  }
  hixl::wire::v1::RdmaMessage message;
  auto* open = message.mutable_open_lane();
  open->set_lane(1000);
  nodes->target->OnControlMessage(message.SerializeAsString());
  open->set_lane(3);
  open->set_device(99);
  nodes->target->OnControlMessage(message.SerializeAsString());
  open->set_device(0);
  open->set_port(1);
  open->mutable_queue_pair()->set_number(1U << 30);
  nodes->target->OnControlMessage(message.SerializeAsString());
  auto* request = message.mutable_key_request();
  request->set_channel(kChannel);
  auto* range = request->add_ranges();
  range->set_address(UINT64_MAX - 5);
  range->set_length(100);
  nodes->target->OnControlMessage(message.SerializeAsString());
  auto* reply = message.mutable_key_reply();
  reply->set_request(999);
  auto* key = reply->add_keys();
  key->set_address(UINT64_MAX);
  key->set_length(UINT64_MAX);
  nodes->link->OnControlMessage(message.SerializeAsString());
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 100)}).Start().Wait());
}

TEST_CASE("Many threads submit, cancel and fence at once") {
  RdmaOptions options;
  options.message_bytes = 512;
  options.cancel_grace_ns = 0;
  Nodes nodes(options, 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int i = 0; i < 100; ++i) {
        const uint64_t at = random() % (kSize - 8192);
        Transfer transfer(*nodes, t % 2 == 0 ? CopyDirection::kWrite : CopyDirection::kRead,
                          {nodes->Piece(at, at, 8192)});
        transfer.Start();
        if (random() % 16 == 0) transfer.Cancel();
        if (random() % 16 == 0) nodes->Fence(kChannel);
        transfer.Wait().IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CheckOk(Transfer(*nodes, CopyDirection::kWrite, {nodes->Piece(0, 0, 100)}).Start().Wait());
}

}  // namespace
}  // namespace hixld::rdma::testing
