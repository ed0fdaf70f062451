// What each operation answers, and in which order it checks (contract 1.3 to 1.9).
#include "daemon/engine/engine.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "tests/daemon/engine/fakes.h"

namespace hixld {
namespace {

using Catch::Contains;

constexpr char kServer[] = "127.0.0.1:26000";
constexpr char kElsewhere[] = "127.0.0.9:26000";  // an engine of another daemon
constexpr char kClient[] = "127.0.0.1";

std::string Message(const absl::Status& status) { return std::string(status.message()); }
ApiCode Code(const absl::Status& status) { return ApiCodeOf(status); }

// Two engines of one daemon, with one region each.
struct Pair {
  EngineRoom room;
  std::shared_ptr<Engine> client;
  std::shared_ptr<Engine> server;
  TestRegion local, remote;

  using Options = std::map<std::string, std::string>;

  explicit Pair(Options client_options = {}) {
    client = room.Open(kClient, 1, std::move(client_options));
    server = room.Open(kServer, 2);
    local = AddRegion(*client, 0x10000, 0x1000);
    remote = AddRegion(*server, 0x20000, 0x1000);
  }
  TestBatch Batch(uint64_t length = 0x100) const {
    return {{local.address}, {remote.address}, {length}};
  }
};

TEST_CASE("READ copies from the remote engine, WRITE to it") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  memset(pair.remote.memory->bytes(), 'r', 0x100);
  CHECK(Transfer(*pair.client, kServer, CopyDirection::kRead, pair.Batch()).bytes == 0x100);
  CHECK(pair.local.memory->bytes()[0xff] == std::byte{'r'});
  CHECK(pair.local.memory->bytes()[0x100] == std::byte{0});
  memset(pair.local.memory->bytes(), 'w', 0x80);
  CHECK(Transfer(*pair.client, kServer, CopyDirection::kWrite, pair.Batch(0x80)).status.ok());
  CHECK(pair.remote.memory->bytes()[0x7f] == std::byte{'w'});
  CHECK(pair.remote.memory->bytes()[0x80] == std::byte{'r'});
  const EngineDescription description = pair.client->Describe();
  CHECK(description.bytes_read == 0x100);
  CHECK(description.bytes_written == 0x80);
  CHECK(description.transfers_active == 0);
}

TEST_CASE("connect checks timeout, itself, syntax, then the connection") {
  Pair pair;
  CHECK(Code(Connect(*pair.client, kClient, 0)) == ApiCode::kParamInvalid);
  CHECK(Code(Connect(*pair.client, kClient)) == ApiCode::kParamInvalid);
  CHECK(Code(Connect(*pair.server, "127.0.0.1:26000")) == ApiCode::kParamInvalid);
  CHECK(Code(Connect(*pair.client, "localhost:26000")) == ApiCode::kParamInvalid);
  CHECK(Code(Connect(*pair.client, "127.0.0.2")) == ApiCode::kParamInvalid);
  CHECK(Connect(*pair.client, kServer).ok());
  CHECK(Code(Connect(*pair.client, kServer)) == ApiCode::kAlreadyConnected);
  // The other direction is another channel.
  CHECK(Code(Connect(*pair.server, kClient)) == ApiCode::kParamInvalid);
  CHECK(Code(Disconnect(*pair.server, kClient)) == ApiCode::kNotConnected);
}

TEST_CASE("twenty connects at once: one success, the rest already connected") {
  Pair pair;
  pair.room.links().Hold();
  std::vector<std::unique_ptr<Answer<absl::StatusOr<Engine::Connected>>>> answers;
  for (int i = 0; i < 20; ++i) {
    answers.push_back(std::make_unique<Answer<absl::StatusOr<Engine::Connected>>>());
    pair.client->Connect(kElsewhere, 20'000, answers.back()->callback());
  }
  pair.room.links().Answer(absl::OkStatus());
  int connected = 0;
  for (auto& answer : answers) {
    const absl::Status status = answer->get().status();
    connected += status.ok() ? 1 : 0;
    CHECK((status.ok() || Code(status) == ApiCode::kAlreadyConnected));
  }
  CHECK(connected == 1);
  CHECK(pair.room.links().opens() == 1);
}

TEST_CASE("a connect that runs out of time leaves nothing, and the next joins or starts anew") {
  Pair pair;
  pair.room.links().Hold();
  CHECK(Code(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, pair.Batch()).status) ==
        ApiCode::kNotConnected);
  Answer<absl::StatusOr<Engine::Connected>> early, late;
  pair.client->Connect(kElsewhere, 20'000, early.callback());
  pair.client->Connect(kElsewhere, 20'000, late.callback());
  // The first attempt's time is over; who joined it has time left and goes on.
  pair.room.links().Answer(Failed("refused"));
  CHECK(Code(early.get().status()) == ApiCode::kFailed);
  CHECK(Code(late.get().status()) == ApiCode::kFailed);
  CHECK(Code(Disconnect(*pair.client, kElsewhere)) == ApiCode::kNotConnected);
  Answer<absl::StatusOr<Engine::Connected>> again;
  pair.client->Connect(kElsewhere, 20'000, again.callback());
  pair.room.links().Answer(absl::OkStatus());
  CHECK(again.get().ok());
}

TEST_CASE("a connection that comes after everybody gave up is closed again") {
  Pair pair;
  pair.room.links().Hold();
  Answer<absl::StatusOr<Engine::Connected>> first, second;
  pair.client->Connect(kElsewhere, 20'000, first.callback());
  pair.client->Connect(kElsewhere, 1, second.callback());
  CHECK(Code(second.get().status()) == ApiCode::kTimeout);
  CHECK_FALSE(first.ready());
  pair.room.links().Answer(absl::OkStatus());
  CHECK(first.get().ok());
}

TEST_CASE("transfers check null addresses, connection, emptiness, memory - in this order") {
  Pair pair;
  const auto code = [&](const TestBatch& batch) {
    return Code(Transfer(*pair.client, kServer, CopyDirection::kRead, batch).status);
  };
  const TestBatch null = {{0}, {1}, {1}};
  const TestBatch empty;
  CHECK(code(null) == ApiCode::kParamInvalid);
  CHECK(code(pair.Batch()) == ApiCode::kNotConnected);
  CHECK(code(empty) == ApiCode::kNotConnected);
  REQUIRE(Connect(*pair.client, kServer).ok());
  CHECK(code(null) == ApiCode::kParamInvalid);
  CHECK(code(empty) == ApiCode::kParamInvalid);
  CHECK(code(pair.Batch(0)) == ApiCode::kParamInvalid);
  CHECK(code(pair.Batch(0x1001)) == ApiCode::kParamInvalid);
  CHECK(code(pair.Batch(0x1000)) == ApiCode::kSuccess);
  CHECK(pair.room.sink().submitted() == 1);
}

TEST_CASE("memory registered after connecting is usable, deregistered memory is not") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  const TestRegion late = AddRegion(*pair.server, 0x50000, 0x100);
  const TestBatch batch = {{pair.local.address}, {late.address}, {0x100}};
  CHECK(Transfer(*pair.client, kServer, CopyDirection::kWrite, batch).status.ok());
  Answer<absl::StatusOr<uint32_t>> gone;
  pair.server->Deregister({late.id, 12345}, gone.callback());
  CHECK(gone.get().value() == 1);
  CHECK(Code(Transfer(*pair.client, kServer, CopyDirection::kWrite, batch).status) ==
        ApiCode::kParamInvalid);
}

TEST_CASE("a remote range that is not in the list is asked for once more") {
  Pair pair;
  auto& peer = pair.room.links().peer();
  peer.Add(0x70000, 0x100);
  REQUIRE(Connect(*pair.client, kElsewhere).ok());
  const TestBatch known = {{pair.local.address}, {0x70000}, {0x100}};
  const TestBatch later = {{pair.local.address}, {0x80000}, {0x100}};
  CHECK(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, known).status.ok());
  CHECK(pair.room.links().last()->refreshes() == 0);
  CHECK(Code(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, later).status) ==
        ApiCode::kParamInvalid);
  CHECK(pair.room.links().last()->refreshes() == 1);
  peer.Add(0x80000, 0x100);
  CHECK(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, later).status.ok());
  CHECK(pair.room.links().last()->refreshes() == 2);
  // A wrong local side needs no question.
  const TestBatch wrong = {{0x1}, {0x90000}, {0x100}};
  CHECK(Code(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, wrong).status) ==
        ApiCode::kParamInvalid);
  CHECK(pair.room.links().last()->refreshes() == 2);
}

TEST_CASE("an ended asynchronous transfer is reported once") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  pair.room.sink().Hold();
  const uint64_t id = Submit(*pair.client, kServer, CopyDirection::kRead, pair.Batch(), 42).value();
  CHECK(pair.client->Query({{id}})[0].state == TransferState::kWaiting);
  CHECK(pair.client->Query({{id}})[0].state == TransferState::kWaiting);
  pair.room.sink().EndOne(absl::OkStatus());
  const TransferReport report = pair.client->Query({{id}})[0];
  CHECK(report.state == TransferState::kCompleted);
  CHECK(report.user_data == 42);
  const TransferReport again = pair.client->Query({{id}})[0];
  CHECK(again.state == TransferState::kFailed);
  CHECK(Code(again.status) == ApiCode::kParamInvalid);
}

TEST_CASE("the query of all goes in submission order, within its limit") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  pair.room.sink().Hold();
  std::vector<uint64_t> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(Submit(*pair.client, kServer, CopyDirection::kRead, pair.Batch()).value());
  }
  pair.room.sink().EndOne(absl::OkStatus());
  pair.room.sink().EndOne(Failed("the wire is cut"));
  auto some = pair.client->QueryAll(1, false);
  REQUIRE(some.size() == 1);
  CHECK(some[0].id == ids[0]);
  some = pair.client->QueryAll(0, true);
  REQUIRE(some.size() == 1);
  CHECK(some[0].id == ids[1]);
  CHECK(some[0].state == TransferState::kFailed);
  some = pair.client->QueryAll(0, false);
  REQUIRE(some.size() == 2);
  CHECK(some[0].state == TransferState::kWaiting);
  const auto failures = pair.room.log().RecentFailures();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].message == "the wire is cut");
}

TEST_CASE("disconnect ends the initiator's transfers and answers when they are fenced") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  CHECK(Code(Disconnect(*pair.client, kServer, 0)) == ApiCode::kParamInvalid);
  pair.room.sink().Hold();
  pair.room.sink().KeepCancelled();
  const uint64_t id = Submit(*pair.client, kServer, CopyDirection::kRead, pair.Batch()).value();
  Answer<absl::Status> disconnected;
  pair.client->Disconnect(kServer, 20'000, disconnected.callback());
  CHECK_FALSE(disconnected.ready());
  // Already nobody may ask for it, nor transfer.
  CHECK(Code(pair.client->Query({{id}})[0].status) == ApiCode::kParamInvalid);
  CHECK(Code(Transfer(*pair.client, kServer, CopyDirection::kRead, pair.Batch()).status) ==
        ApiCode::kNotConnected);
  pair.room.sink().EndOne(Failed("cancelled"));
  CHECK(disconnected.get().ok());
  CHECK(Code(Disconnect(*pair.client, kServer)) == ApiCode::kNotConnected);
  CHECK(pair.client->Describe().transfers_active == 0);
}

TEST_CASE("a dead peer: transfers fail, disconnect succeeds once") {
  Pair pair;
  pair.room.links().peer().Add(0x70000, 0x100);
  REQUIRE(Connect(*pair.client, kElsewhere).ok());
  const TestBatch batch = {{pair.local.address}, {0x70000}, {0x100}};
  pair.room.sink().Hold();
  const uint64_t id = Submit(*pair.client, kElsewhere, CopyDirection::kRead, batch).value();
  pair.room.links().Refuse(Failed("nobody listens"));
  pair.room.links().last()->Break(Failed("the link is lost"));
  CHECK(pair.client->Query({{id}})[0].state == TransferState::kFailed);
  CHECK(Code(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, batch).status) ==
        ApiCode::kFailed);
  CHECK(Disconnect(*pair.client, kElsewhere).ok());
  CHECK(Code(Disconnect(*pair.client, kElsewhere)) == ApiCode::kNotConnected);
}

TEST_CASE("after a loss the next transfer opens the channel again and sees the new regions") {
  Pair pair;
  pair.room.links().peer().Add(0x70000, 0x100);
  REQUIRE(Connect(*pair.client, kElsewhere).ok());
  const auto old = pair.room.links().last();
  old->Break(Failed("the peer restarted"));
  pair.room.links().peer().Add(0x80000, 0x100);
  const TestBatch batch = {{pair.local.address}, {0x80000}, {0x100}};
  CHECK(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, batch).status.ok());
  CHECK(pair.room.links().opens() == 2);
  CHECK(pair.room.links().last()->refreshes() == 0);
  // To the caller it is the same connection.
  CHECK(Code(Connect(*pair.client, kElsewhere)) == ApiCode::kAlreadyConnected);
}

TEST_CASE("an engine of this daemon that goes away breaks its channels") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  pair.room.sink().Hold();
  Answer<TransferEnd> running;
  const TestBatch batch = pair.Batch();
  pair.client->TransferSync(Args(kServer, CopyDirection::kRead, batch), running.callback());
  Answer<bool> closed;
  pair.room.registry().Close(pair.server, "the test says so",
                             [done = closed.callback()]() mutable { done(true); });
  CHECK(closed.get());
  CHECK(Code(running.get().status) == ApiCode::kFailed);
  pair.room.links().Refuse(Failed("nobody listens"));
  CHECK(Code(Transfer(*pair.client, kServer, CopyDirection::kRead, pair.Batch()).status) ==
        ApiCode::kFailed);
  CHECK(Disconnect(*pair.client, kServer).ok());
  CHECK(Code(Connect(*pair.client, kServer)) == ApiCode::kFailed);
}

TEST_CASE("AutoConnect connects on demand and drops a channel after a failure") {
  Pair pair(Pair::Options{{"AutoConnect", "1"}});
  const TestBatch empty;
  CHECK(Code(Transfer(*pair.client, kServer, CopyDirection::kRead, empty).status) ==
        ApiCode::kParamInvalid);
  CHECK(Transfer(*pair.client, kServer, CopyDirection::kRead, pair.Batch()).status.ok());
  CHECK(Code(Connect(*pair.client, kServer)) == ApiCode::kAlreadyConnected);
  CHECK(Disconnect(*pair.client, kServer).ok());
  CHECK(Code(Disconnect(*pair.client, kServer)) == ApiCode::kNotConnected);
  // A dead peer's channel goes by itself.
  pair.room.links().peer().Add(0x70000, 0x100);
  const TestBatch elsewhere = {{pair.local.address}, {0x70000}, {0x100}};
  CHECK(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, elsewhere).status.ok());
  pair.room.links().last()->Break(Failed("lost"));
  CHECK(Code(Disconnect(*pair.client, kElsewhere)) == ApiCode::kNotConnected);
  // A refused connection is the transfer's error.
  pair.room.links().Refuse(Timeout("silence"));
  CHECK(Code(Transfer(*pair.client, kElsewhere, CopyDirection::kRead, elsewhere).status) ==
        ApiCode::kTimeout);
}

TEST_CASE("deregistering is refused to a client that is connected, free to a server") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  Answer<absl::StatusOr<uint32_t>> unknown, refused, free;
  pair.client->Deregister({999}, unknown.callback());
  CHECK(unknown.get().value() == 1);
  pair.client->Deregister({pair.local.id}, refused.callback());
  const absl::Status status = refused.get().status();
  CHECK(Code(status) == ApiCode::kFailed);
  CHECK_THAT(Message(status), Contains(kServer));
  REQUIRE(Disconnect(*pair.client, kServer).ok());
  pair.client->Deregister({pair.local.id}, free.callback());
  CHECK(free.get().value() == 0);
}

TEST_CASE("a server's deregistration ends what touches the region and nothing else") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  const TestRegion other = AddRegion(*pair.server, 0x50000, 0x100);
  pair.room.sink().Hold();
  const uint64_t touching =
      Submit(*pair.client, kServer, CopyDirection::kRead, pair.Batch()).value();
  const TestBatch batch = {{pair.local.address}, {other.address}, {0x100}};
  const uint64_t untouched = Submit(*pair.client, kServer, CopyDirection::kRead, batch).value();
  Answer<absl::StatusOr<uint32_t>> gone;
  pair.server->Deregister({pair.remote.id}, gone.callback());
  CHECK(gone.get().ok());
  CHECK(pair.client->Query({{touching}})[0].state == TransferState::kFailed);
  CHECK(pair.client->Query({{untouched}})[0].state == TransferState::kWaiting);
  pair.room.sink().EndOne(absl::OkStatus());
}

TEST_CASE("deregistration answers only when the transfer is fenced") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  pair.room.sink().Hold();
  pair.room.sink().KeepCancelled();
  REQUIRE(Submit(*pair.client, kServer, CopyDirection::kWrite, pair.Batch()).ok());
  Answer<absl::StatusOr<uint32_t>> gone;
  pair.server->Deregister({pair.remote.id}, gone.callback());
  pair.room.sink().WaitForCancels(1);
  CHECK_FALSE(gone.ready());
  pair.room.sink().EndOne(Failed("cancelled"));
  CHECK(gone.get().ok());
}

TEST_CASE("a job keeps its memory alive until it has ended") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  pair.room.sink().Hold();
  pair.room.sink().KeepCancelled();
  REQUIRE(Submit(*pair.client, kServer, CopyDirection::kWrite, pair.Batch()).ok());
  const std::weak_ptr<TestMemory> memory = pair.remote.memory;
  pair.remote.memory.reset();
  Answer<absl::StatusOr<uint32_t>> gone;
  pair.server->Deregister({pair.remote.id}, gone.callback());
  CHECK_FALSE(memory.expired());
  pair.room.sink().EndOne(Failed("cancelled"));
  CHECK(gone.get().ok());
  CHECK(memory.expired());
}

TEST_CASE("limits are RESOURCE_EXHAUSTED and name their option") {
  EngineLimits limits;
  limits.max_transfers_per_engine = 2;
  limits.max_descriptors_per_transfer = 2;
  limits.max_regions_per_session = 1;
  limits.max_channels_per_engine = 1;
  limits.max_engines_per_session = 1;
  EngineRoom room(limits);
  const auto client = room.Open(kClient, 1);
  const auto server = room.Open(kServer, 2);
  const TestRegion local = AddRegion(*client, 0x10000, 0x100);
  const TestRegion remote = AddRegion(*server, 0x20000, 0x100);
  REQUIRE(Connect(*client, kServer).ok());
  const auto expect = [](const absl::Status& status, const char* option) {
    CHECK(Code(status) == ApiCode::kResourceExhausted);
    CHECK(ErrorInfoOf(status).option == option);
  };
  expect(room.TryOpen("127.0.0.1:26001", 1).status(), "limits.max_engines_per_session");
  expect(Connect(*client, kElsewhere), "limits.max_channels_per_engine");
  const TestBatch three = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
  expect(Transfer(*client, kServer, CopyDirection::kRead, three).status,
         "limits.max_descriptors_per_transfer");
  const TestBatch batch = {{local.address}, {remote.address}, {0x10}};
  room.sink().Hold();
  const uint64_t id = Submit(*client, kServer, CopyDirection::kRead, batch).value();
  REQUIRE(Submit(*client, kServer, CopyDirection::kRead, batch).ok());
  expect(Submit(*client, kServer, CopyDirection::kRead, batch).status(),
         "limits.max_transfers_per_engine");
  room.sink().EndOne(absl::OkStatus());
  // Ended is not enough: its end must have been asked for.
  CHECK_FALSE(Submit(*client, kServer, CopyDirection::kRead, batch).ok());
  CHECK(client->Query({{id}})[0].state == TransferState::kCompleted);
  CHECK(Submit(*client, kServer, CopyDirection::kRead, batch).ok());
  room.sink().EndOne(absl::OkStatus());
  room.sink().EndOne(absl::OkStatus());
}

TEST_CASE("a caller that goes away cancels its transfer, also before it has started") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  pair.room.sink().Hold();
  const TestBatch batch = pair.Batch();
  Answer<TransferEnd> end;
  auto cancel =
      pair.client->TransferSync(Args(kServer, CopyDirection::kRead, batch), end.callback());
  cancel();
  CHECK(Code(end.get().status) == ApiCode::kFailed);
  // Waiting for its connection: it is never handed to the transport.
  Pair waiting(Pair::Options{{"AutoConnect", "1"}});
  waiting.room.links().peer().Add(0x70000, 0x100);
  waiting.room.links().Hold();
  const TestBatch elsewhere = {{waiting.local.address}, {0x70000}, {0x100}};
  Answer<TransferEnd> never;
  cancel = waiting.client->TransferSync(Args(kElsewhere, CopyDirection::kRead, elsewhere),
                                        never.callback());
  cancel();
  waiting.room.links().Answer(absl::OkStatus());
  CHECK(Code(never.get().status) == ApiCode::kFailed);
  CHECK(waiting.room.sink().submitted() == 0);
}

TEST_CASE("sixteen threads on one engine") {
  Pair pair;
  REQUIRE(Connect(*pair.client, kServer).ok());
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const TestBatch batch = {
            {pair.local.address + t * 64}, {pair.remote.address + t * 64}, {64}};
        if (t % 4 == 3) {
          const auto region = pair.server->Register({{.address = 0x100000 + t * 0x1000u,
                                                      .length = 64,
                                                      .access = std::make_shared<TestMemory>(64)}},
                                                    0);
          Answer<absl::StatusOr<uint32_t>> gone;
          pair.server->Deregister({region->front()->id}, gone.callback());
          good += gone.get().ok() ? 1 : 0;
          continue;
        }
        const auto id = Submit(*pair.client, kServer, CopyDirection::kWrite, batch);
        if (!id.ok()) continue;
        good += pair.client->Query({{*id}})[0].state == TransferState::kCompleted ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(good == 16 * 50);
}

TEST_CASE("transfers race with disconnects, deregistrations and the end of the engine") {
  for (int round = 0; round < 20; ++round) {
    Pair pair;
    REQUIRE(Connect(*pair.client, kServer).ok());
    std::thread transfers([&] {
      for (int i = 0; i < 50; ++i) {
        const TestBatch batch = pair.Batch(8);
        Transfer(*pair.client, kServer, CopyDirection::kWrite, batch);
      }
    });
    std::thread connections([&] {
      for (int i = 0; i < 20; ++i) {
        Disconnect(*pair.client, kServer).IgnoreError();
        Connect(*pair.client, kServer).IgnoreError();
      }
    });
    Answer<absl::StatusOr<uint32_t>> gone;
    pair.server->Deregister({pair.remote.id}, gone.callback());
    CHECK(gone.get().ok());
    Answer<bool> closed;
    pair.room.registry().Close(pair.server, "race",
                               [done = closed.callback()]() mutable { done(true); });
    CHECK(closed.get());
    transfers.join();
    connections.join();
    CHECK(pair.client->Describe().transfers_active == 0);
  }
}

}  // namespace
}  // namespace hixld
