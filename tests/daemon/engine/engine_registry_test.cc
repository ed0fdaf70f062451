#include "daemon/engine/engine_registry.h"

#include <catch2/catch.hpp>

#include "tests/daemon/engine/fakes.h"

namespace hixld {
namespace {

using Catch::Contains;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// What a link holds of an inbound channel.
class FakeHandle : public InboundHandle {
 public:
  uint64_t channel_id() const override { return 1; }
  absl::string_view transport() const override { return "tcp"; }
  void Fence(absl::AnyInvocable<void()> fenced) override {
    {
      MutexLock lock(&mutex_);
      if (holding_) {
        fences_.push_back(std::move(fenced));
        return;
      }
    }
    fenced();
  }
  void Hold() {
    MutexLock lock(&mutex_);
    holding_ = true;
  }
  void Close(std::string reason) override {
    MutexLock lock(&mutex_);
    closed_ = std::move(reason);
  }
  size_t fences() const {
    MutexLock lock(&mutex_);
    return fences_.size();
  }
  void LetFencesGo() {
    std::vector<absl::AnyInvocable<void()>> fences;
    {
      MutexLock lock(&mutex_);
      holding_ = false;
      fences.swap(fences_);
    }
    for (auto& fence : fences) fence();
  }
  std::string closed() const {
    MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  mutable Mutex mutex_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<absl::AnyInvocable<void()>> fences_ ABSL_GUARDED_BY(mutex_);
  std::string closed_ ABSL_GUARDED_BY(mutex_);
};

TEST_CASE("bad options come before a bad id, and both are PARAM_INVALID") {
  EngineRoom room;
  CHECK_THAT(Message(room.TryOpen("ad.0.0.1:26200", 1, {{"Nonsense", "1"}}).status()),
             Contains("Nonsense"));
  const absl::Status bad = room.TryOpen("ad.0.0.1:26200").status();
  CHECK(ApiCodeOf(bad) == ApiCode::kParamInvalid);
  CHECK_THAT(Message(bad), Contains("ad.0.0.1"));
}

TEST_CASE("an id that listens is taken once; ids of clients may be shared") {
  EngineRoom room;
  const auto first = room.Open("127.0.0.1:26000", 7);
  const absl::Status taken = room.TryOpen("127.0.0.1:26000", 8).status();
  CHECK(ApiCodeOf(taken) == ApiCode::kFailed);
  CHECK_THAT(Message(taken), Contains("session 7"));
  room.Open("127.0.0.1", 7);
  room.Open("127.0.0.1", 8);
  room.Open("127.0.0.1:0", 8);
  room.Open("127.0.0.1:-5", 8);
  CHECK(room.registry().All().size() == 5);
}

TEST_CASE("engines of other sessions are unknown") {
  EngineRoom room;
  const auto engine = room.Open("127.0.0.1", 1);
  CHECK(room.registry().Find(1, engine->identity().handle).ok());
  CHECK(ApiCodeOf(room.registry().Find(2, engine->identity().handle).status()) == ApiCode::kFailed);
  CHECK(ApiCodeOf(room.registry().Find(1, 999).status()) == ApiCode::kFailed);
}

TEST_CASE("an engine that listens everywhere is found under every address") {
  EngineRoom room;
  const auto engine = room.Open("0.0.0.0:26000");
  CHECK(room.registry().FindListening(*ParseEndpoint("10.1.2.3:26000")) == engine);
  CHECK(room.registry().FindListening(*ParseEndpoint("10.1.2.3:26001")) == nullptr);
}

TEST_CASE("a session's end fences everything before it is released") {
  EngineRoom room;
  const auto client = room.Open("127.0.0.1", 1);
  const auto server = room.Open("127.0.0.1:26000", 2);
  const TestRegion local = AddRegion(*client, 0x10000, 0x100);
  const TestRegion remote = AddRegion(*server, 0x20000, 0x100);
  REQUIRE(Connect(*client, "127.0.0.1:26000").ok());
  const auto handle = std::make_shared<FakeHandle>();
  handle->Hold();
  auto inbound = room.registry().AcceptChannel(
      {.initiator_engine = "10.0.0.2:5", .target_engine = "127.0.0.1:26000"}, handle);
  REQUIRE(inbound.ok());
  room.sink().Hold();
  room.sink().KeepCancelled();
  const TestBatch batch = {{local.address}, {remote.address}, {0x10}};
  const uint64_t id = Submit(*client, "127.0.0.1:26000", CopyDirection::kWrite, batch).value();

  Answer<bool> released;
  room.registry().OnSessionEnd(2, [done = released.callback()]() mutable { done(true); });
  // Nothing new may touch the memory, from here or from there.
  std::vector<TargetResolver::Part> parts;
  CHECK_FALSE((*inbound)->Resolve(remote.address, 1, &parts).ok());
  room.sink().WaitForCancels(1);
  CHECK(handle->fences() == 1);
  CHECK(handle->closed().empty());
  CHECK_FALSE(released.ready());
  handle->LetFencesGo();
  CHECK_FALSE(released.ready());
  room.sink().EndOne(Failed("cancelled"));
  CHECK(released.get());
  CHECK_THAT(handle->closed(), Contains("its client is gone"));
  CHECK(client->Query({{id}})[0].state == TransferState::kFailed);
  CHECK(room.registry().All().size() == 1);
  CHECK(room.TryOpen("127.0.0.1:26000", 3).ok());
}

TEST_CASE("an id whose holder is closing is given to the next when it is free") {
  EngineRoom room;
  const auto server = room.Open("127.0.0.1:26000", 2);
  const auto handle = std::make_shared<FakeHandle>();
  handle->Hold();
  REQUIRE(room.registry()
              .AcceptChannel({.initiator_engine = "10.0.0.2", .target_engine = "127.0.0.1:26000"},
                             handle)
              .ok());
  Answer<bool> released;
  room.registry().OnSessionEnd(2, [done = released.callback()]() mutable { done(true); });
  Answer<absl::StatusOr<std::shared_ptr<Engine>>> next;
  room.registry().Open(std::make_shared<FakeSession>(3), {.local_engine = "127.0.0.1:26000"},
                       next.callback());
  CHECK_FALSE(next.ready());
  handle->LetFencesGo();
  CHECK(next.get().ok());
}

TEST_CASE("an engine opened while its session ends does not stay") {
  EngineRoom room;
  const auto session = std::make_shared<FakeSession>(5);
  session->End();
  Answer<absl::StatusOr<std::shared_ptr<Engine>>> answer;
  room.registry().Open(session, {.local_engine = "127.0.0.1:26000"}, answer.callback());
  CHECK_FALSE(answer.get().ok());
  CHECK(room.TryOpen("127.0.0.1:26000", 6).ok());
}

TEST_CASE("a new channel of the same listening initiator replaces the stale one") {
  EngineRoom room;
  room.Open("127.0.0.1:26000");
  const auto accept = [&](const std::string& initiator) {
    auto handle = std::make_shared<FakeHandle>();
    REQUIRE(room.registry()
                .AcceptChannel({.initiator_engine = initiator, .target_engine = "127.0.0.1:26000"},
                               handle)
                .ok());
    return handle;
  };
  const auto stale = accept("10.0.0.2:5");
  accept("10.0.0.2:5");
  CHECK_FALSE(stale->closed().empty());
  // Engines that are clients only may have one id and still be two.
  const auto one = accept("10.0.0.3");
  accept("10.0.0.3");
  CHECK(one->closed().empty());
  for (const auto& engine : room.registry().All()) {
    for (const auto& channel : engine->Describe().channels) CHECK_FALSE(channel.initiator);
  }
}

TEST_CASE("an inbound channel touches the engine's own regions only, and spans adjacent ones") {
  EngineRoom room;
  const auto server = room.Open("127.0.0.1:26000");
  const TestRegion a = AddRegion(*server, 0x20000, 0x100);
  const TestRegion b = AddRegion(*server, 0x20100, 0x100);
  auto inbound = room.registry().AcceptChannel(
      {.initiator_engine = "10.0.0.2", .target_engine = "127.0.0.1:26000"},
      std::make_shared<FakeHandle>());
  REQUIRE(inbound.ok());
  std::vector<TargetResolver::Part> parts;
  REQUIRE((*inbound)->Resolve(0x200f0, 0x20, &parts).ok());
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].memory.access == a.memory.get());
  CHECK(parts[0].memory.offset == 0xf0);
  CHECK(parts[1].memory.access == b.memory.get());
  CHECK(parts[1].length == 0x10);
  for (const auto& [address, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0x1ffff, 2}, {0x201ff, 2}, {0x20000, 0}, {~uint64_t{0}, 2}, {0, 1}}) {
    const absl::Status refused = (*inbound)->Resolve(address, length, &parts);
    CHECK(ApiCodeOf(refused) == ApiCode::kParamInvalid);
  }
  CHECK(parts.size() == 2);
}

}  // namespace
}  // namespace hixld
