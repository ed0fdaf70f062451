// Transfers with memory that nobody has registered (contract 1.8, 1.11).
#include <cstring>
#include <thread>

#include "tests/daemon/engine/fakes.h"

namespace hixld {
namespace {

using Catch::Contains;

constexpr char kClient[] = "127.0.0.1";
constexpr char kServer[] = "127.0.0.1:26200";
constexpr char kFar[] = "127.0.0.9:26200";  // an engine of another daemon
const std::map<std::string, std::string> kPool = {{"BufferPool", "2:8"}};

ApiCode Code(const absl::Status& status) { return ApiCodeOf(status); }

struct Pair {
  explicit Pair(std::map<std::string, std::string> client_options = kPool,
                std::map<std::string, std::string> server_options = kPool,
                const EngineLimits& limits = {})
      : room(limits) {
    client = room.Open(kClient, 1, std::move(client_options));
    client_session = room.last_session();
    server = room.Open(kServer, 2, std::move(server_options));
    server_session = room.last_session();
    REQUIRE(Connect(*client, kServer).ok());
  }

  EngineRoom room;
  std::shared_ptr<Engine> client, server;
  std::shared_ptr<FakeSession> client_session, server_session;
};

TEST_CASE("unregistered memory on both sides is relayed") {
  Pair pair;
  memset(pair.server_session->plain(0x5000, 0x100)->bytes(), 'r', 0x100);
  const TestBatch batch = {{0x3000}, {0x5000}, {0x100}};
  const TransferEnd end = Transfer(*pair.client, kServer, CopyDirection::kRead, batch);
  CHECK(end.status.ok());
  CHECK(end.bytes == 0x100);
  CHECK(pair.client_session->plain(0x3000, 0x100)->bytes()[0xff] == std::byte{'r'});
  CHECK(pair.client->Describe().transfers_relayed == 1);
  CHECK(pair.client->Describe().regions->size() == 0);
}

TEST_CASE("registered and unregistered parts of one range are one transfer") {
  Pair pair;
  const TestRegion region = AddRegion(*pair.server, 0x5080, 0x40);
  memset(pair.server_session->plain(0x5000, 0x80)->bytes(), 'a', 0x80);
  memset(region.memory->bytes(), 'b', 0x40);
  memset(pair.server_session->plain(0x50c0, 0x40)->bytes(), 'c', 0x40);
  const TestBatch batch = {{0x3000}, {0x5000}, {0x100}};
  CHECK(Transfer(*pair.client, kServer, CopyDirection::kRead, batch).status.ok());
  const auto memory = pair.client_session->plain(0x3000, 0x100);
  CHECK(memory->bytes()[0x7f] == std::byte{'a'});
  CHECK(memory->bytes()[0x80] == std::byte{'b'});
  CHECK(memory->bytes()[0xbf] == std::byte{'b'});
  CHECK(memory->bytes()[0xc0] == std::byte{'c'});
}

TEST_CASE("what unregistered memory means without a pool") {
  const TestBatch batch = {{0x3000}, {0x5000}, {0x100}};
  SECTION("no BufferPool: PARAM_INVALID") {
    Pair pair({}, kPool);
    CHECK(Code(Transfer(*pair.client, kServer, CopyDirection::kRead, batch).status) ==
          ApiCode::kParamInvalid);
  }
  SECTION("0:0: FAILED") {
    Pair pair({{"BufferPool", "0:0"}}, kPool);
    const TransferEnd end = Transfer(*pair.client, kServer, CopyDirection::kRead, batch);
    CHECK(Code(end.status) == ApiCode::kFailed);
    CHECK_THAT(std::string(end.status.message()), Contains("BufferPool"));
  }
  SECTION("off at the peer: FAILED, and nothing of it is touched") {
    Pair pair(kPool, {});
    const TransferEnd end = Transfer(*pair.client, kServer, CopyDirection::kRead, batch);
    CHECK(Code(end.status) == ApiCode::kFailed);
    CHECK_THAT(std::string(end.status.message()), Contains(kServer));
    CHECK(pair.room.sink().submitted() == 0);
  }
  SECTION("forbidden by the daemon: FAILED") {
    EngineLimits limits;
    limits.relay_unregistered = false;
    Pair pair(kPool, kPool, limits);
    const TransferEnd end = Transfer(*pair.client, kServer, CopyDirection::kRead, batch);
    CHECK(Code(end.status) == ApiCode::kFailed);
    CHECK_THAT(std::string(end.status.message()), Contains("security.relay_unregistered_memory"));
  }
}

TEST_CASE("asynchronous transfers are never relayed") {
  Pair pair;
  const TestBatch batch = {{0x3000}, {0x5000}, {0x100}};
  CHECK(Code(Submit(*pair.client, kServer, CopyDirection::kRead, batch).status()) ==
        ApiCode::kParamInvalid);
}

TEST_CASE("ranges that cannot be stay PARAM_INVALID") {
  Pair pair;
  for (const TestBatch& batch :
       {TestBatch{{0x3000}, {0x5000}, {0}}, TestBatch{{UINT64_MAX - 10}, {0x5000}, {100}},
        TestBatch{{0x3000}, {UINT64_MAX - 10}, {100}},
        TestBatch{{0x3000, 0x4000}, {0x5000, 0x6000}, {16, 0}}}) {
    CHECK(Code(Transfer(*pair.client, kServer, CopyDirection::kRead, batch).status) ==
          ApiCode::kParamInvalid);
  }
  CHECK(pair.room.sink().submitted() == 0);
}

TEST_CASE("a relayed batch is of one kind of memory") {
  Pair pair;
  AddRegion(*pair.client, 0x10000, 0x1000, MemoryType::kDevice);
  AddRegion(*pair.server, 0x20000, 0x1000, MemoryType::kDevice);
  const auto code = [&](const TestBatch& batch) {
    return Code(Transfer(*pair.client, kServer, CopyDirection::kWrite, batch).status);
  };
  // Registered device memory here, unregistered host memory there.
  CHECK(code({{0x10000, 0x10100}, {0x5000, 0x5100}, {0x100, 0x100}}) == ApiCode::kSuccess);
  CHECK(code({{0x10000, 0x3000}, {0x5000, 0x5100}, {0x100, 0x100}}) == ApiCode::kParamInvalid);
  CHECK(code({{0x3000, 0x3100}, {0x5000, 0x20000}, {0x100, 0x100}}) == ApiCode::kParamInvalid);
  // Registered on both sides: not relayed, so kinds may be mixed.
  AddRegion(*pair.client, 0x30000, 0x1000, MemoryType::kHost);
  CHECK(code({{0x10000, 0x30000}, {0x20000, 0x20100}, {0x100, 0x100}}) == ApiCode::kSuccess);
}

TEST_CASE("as many are relayed at a time as there are buffers; waiting counts") {
  Pair pair;
  pair.room.sink().Hold();
  const TestBatch batch = {{0x3000}, {0x5000}, {0x100}};
  Answer<TransferEnd> first, second, third, late;
  pair.client->TransferSync(Args(kServer, CopyDirection::kRead, batch), first.callback());
  pair.client->TransferSync(Args(kServer, CopyDirection::kRead, batch), second.callback());
  pair.room.sink().WaitForJobs(2);
  pair.client->TransferSync(Args(kServer, CopyDirection::kRead, batch), third.callback());
  TransferArgs hasty = Args(kServer, CopyDirection::kRead, batch);
  hasty.timeout_ns = 20 * kNanosPerMilli;
  pair.client->TransferSync(std::move(hasty), late.callback());
  const TransferEnd timeout = late.get();
  CHECK(Code(timeout.status) == ApiCode::kTimeout);
  CHECK_THAT(std::string(timeout.status.message()), Contains("all 2 relay buffers"));
  CHECK(pair.room.sink().held() == 2);
  CHECK_FALSE(third.ready());
  pair.room.sink().EndOne(absl::OkStatus());
  CHECK(first.get().status.ok());
  pair.room.sink().WaitForJobs(2);
  pair.room.sink().EndOne(absl::OkStatus());
  pair.room.sink().EndOne(absl::OkStatus());
  CHECK(second.get().status.ok());
  CHECK(third.get().status.ok());
}

TEST_CASE("a transfer has as many buffers as its bytes need, and goes in rounds of them") {
  Pair pair(std::map<std::string, std::string>{{"BufferPool", "3:1"}});
  pair.room.sink().Hold();
  constexpr uint64_t kMib = 1 << 20;
  const auto start = [&](uint64_t bytes) {
    auto answer = std::make_unique<Answer<TransferEnd>>();
    const TestBatch batch = {{0x3000}, {0x50000000}, {bytes}};
    pair.client->TransferSync(Args(kServer, CopyDirection::kRead, batch), answer->callback());
    return answer;
  };
  const auto two = start(kMib + 1);
  const auto one = start(100);
  pair.room.sink().WaitForJobs(2);
  // All three are needed, and one that comes later does not overtake it.
  const auto many = start(7 * kMib);
  const auto later = start(100);
  CHECK(pair.room.sink().held() == 2);
  pair.room.sink().EndOne(absl::OkStatus());
  CHECK(two->get().status.ok());
  pair.room.sink().EndOne(absl::OkStatus());
  CHECK(one->get().status.ok());
  for (const uint64_t bytes : {3 * kMib, 3 * kMib, kMib}) {
    pair.room.sink().WaitForJobs(1);
    CHECK(pair.room.sink().held() == 1);
    CHECK(pair.room.sink().front()->bytes == bytes);
    pair.room.sink().EndOne(absl::OkStatus());
  }
  CHECK(many->get().bytes == 7 * kMib);
  pair.room.sink().WaitForJobs(1);
  pair.room.sink().EndOne(absl::OkStatus());
  CHECK(later->get().status.ok());
}

TEST_CASE("closing an engine answers those that wait to be relayed") {
  Pair pair(std::map<std::string, std::string>{{"BufferPool", "1:8"}});
  pair.room.sink().Hold();
  const TestBatch batch = {{0x3000}, {0x5000}, {0x100}};
  Answer<TransferEnd> running, waiting;
  pair.client->TransferSync(Args(kServer, CopyDirection::kRead, batch), running.callback());
  pair.room.sink().WaitForJobs(1);
  pair.client->TransferSync(Args(kServer, CopyDirection::kRead, batch), waiting.callback());
  std::promise<void> closed;
  pair.room.registry().Close(pair.client, "test", [&closed] { closed.set_value(); });
  closed.get_future().wait();
  CHECK(Code(running.get().status) == ApiCode::kFailed);
  CHECK(Code(waiting.get().status) == ApiCode::kFailed);
}

TEST_CASE("another daemon is asked for exactly what its engine has not registered") {
  Pair pair;
  pair.room.links().peer().Add(0x70000, 0x100);
  REQUIRE(Connect(*pair.client, kFar).ok());
  const auto channel = pair.room.links().last();
  const TestBatch batch = {{0x3000, 0x4000}, {0x70080, 0x90000}, {0x100, 0x40}};
  CHECK(Transfer(*pair.client, kFar, CopyDirection::kWrite, batch).status.ok());
  CHECK(channel->refreshes() == 1);
  const auto asked = channel->relayed();
  REQUIRE(asked.size() == 2);
  CHECK(asked[0].address == 0x70100);
  CHECK(asked[0].length == 0x80);
  CHECK(asked[1].address == 0x90000);
  CHECK(asked[1].length == 0x40);
  // Given back when the last reference to the transfer is gone.
  while (channel->relays_closed() == 0) std::this_thread::yield();

  channel->RefuseRelay(Failed("relays nothing"));
  CHECK(Code(Transfer(*pair.client, kFar, CopyDirection::kWrite, batch).status) ==
        ApiCode::kFailed);
  channel->RefuseRelay(absl::OkStatus());
  CHECK(Transfer(*pair.client, kFar, CopyDirection::kWrite, batch).status.ok());
}

TEST_CASE("a channel that breaks while a relay is granted is opened and asked again") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kFar).ok());
  pair.room.links().last()->Break(Failed("cut"));
  const TestBatch batch = {{0x3000}, {0x90000}, {0x40}};
  CHECK(Transfer(*pair.client, kFar, CopyDirection::kWrite, batch).status.ok());
  CHECK(pair.room.links().last()->relayed().size() == 1);
}

constexpr char kGone[] = "range 0x70000+0x40 is not registered";

// The peer has deregistered its memory; the initiator's daemon does not know yet.
struct Stale : Pair {
  explicit Stale(std::map<std::string, std::string> options = kPool) : Pair(std::move(options)) {
    AddRegion(*client, 0x3000, 0x1000);
    room.links().peer().Add(0x70000, 0x100);
    REQUIRE(Connect(*client, kFar).ok());
    room.links().peer().Clear();
    room.sink().Hold();
  }
  const TestBatch batch = {{0x3000}, {0x70000}, {0x40}};
};

TEST_CASE("what another daemon refuses as not registered is relayed") {
  Stale stale;
  const bool moved = GENERATE(false, true);
  Answer<TransferEnd> answer;
  stale.client->TransferSync(Args(kFar, CopyDirection::kWrite, stale.batch), answer.callback());
  stale.room.sink().WaitForJobs(1);
  stale.room.sink().front()->moved = moved;
  stale.room.sink().EndOne(ParamInvalid(kGone));
  stale.room.sink().WaitForJobs(1);
  CHECK(stale.room.links().last()->relayed().size() == 1);
  stale.room.sink().EndOne(absl::OkStatus());
  CHECK(answer.get().status.ok());
  const auto description = stale.client->Describe();
  CHECK(description.transfers_relayed == 1);
  CHECK(description.transfers_completed == 1);
  CHECK(description.transfers_failed == 0);
  CHECK(description.transfers_active == 0);
}

TEST_CASE("without a relay a refusal is PARAM_INVALID only if nothing has moved") {
  Stale stale(std::map<std::string, std::string>{});
  const bool moved = GENERATE(false, true);
  Answer<TransferEnd> answer;
  stale.client->TransferSync(Args(kFar, CopyDirection::kWrite, stale.batch), answer.callback());
  stale.room.sink().WaitForJobs(1);
  stale.room.sink().front()->moved = moved;
  stale.room.sink().EndOne(ParamInvalid(kGone));
  CHECK(Code(answer.get().status) == (moved ? ApiCode::kFailed : ApiCode::kParamInvalid));
  CHECK(stale.room.links().last()->refreshes() == 1);
  CHECK(stale.room.sink().submitted() == 1);
}

TEST_CASE("a range that is registered again is sent again, once") {
  Stale stale(std::map<std::string, std::string>{});
  stale.room.links().peer().Add(0x70000, 0x80);
  Answer<TransferEnd> answer;
  stale.client->TransferSync(Args(kFar, CopyDirection::kRead, stale.batch), answer.callback());
  stale.room.sink().WaitForJobs(1);
  stale.room.sink().EndOne(ParamInvalid(kGone));
  stale.room.sink().WaitForJobs(1);
  SECTION("and arrives") {
    stale.room.sink().EndOne(absl::OkStatus());
    CHECK(answer.get().status.ok());
  }
  SECTION("and is refused again") {
    stale.room.sink().front()->moved = true;
    stale.room.sink().EndOne(ParamInvalid(kGone));
    CHECK(Code(answer.get().status) == ApiCode::kFailed);
    CHECK(stale.room.sink().submitted() == 2);
  }
}

TEST_CASE("an asynchronous transfer that is refused later fails, the next one is refused at once") {
  Stale stale;
  const auto id = Submit(*stale.client, kFar, CopyDirection::kRead, stale.batch);
  REQUIRE(id.ok());
  stale.room.sink().WaitForJobs(1);
  stale.room.sink().EndOne(ParamInvalid(kGone));
  const auto reports = stale.client->Query(std::vector<uint64_t>{*id});
  CHECK(reports[0].state == TransferState::kFailed);
  CHECK_THAT(std::string(reports[0].status.message()), Contains("is not registered"));
  CHECK(Code(Submit(*stale.client, kFar, CopyDirection::kRead, stale.batch).status()) ==
        ApiCode::kParamInvalid);
}

TEST_CASE("a list that is known to be out of date is fetched before a transfer is accepted") {
  Stale stale;
  stale.room.links().last()->Outdate();
  CHECK(Code(Submit(*stale.client, kFar, CopyDirection::kRead, stale.batch).status()) ==
        ApiCode::kParamInvalid);
  CHECK(stale.room.sink().submitted() == 0);
}

}  // namespace
}  // namespace hixld
