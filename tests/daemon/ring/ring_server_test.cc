#include "daemon/ring/ring_server.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"
#include "proto/ring/producer.h"

namespace hixld {
namespace {

// Answers each batch with the sum of its lengths; holds back those to channel 7; fails channel 8
// and times out channel 9.
class FakeEngines : public RingHandler {
 public:
  void Run(uint64_t session_id, ring::Consumer::Batch batch, Accepted accepted,
           TransferDone done) override {
    uint64_t sum = 0;
    for (const uint64_t length : batch.lengths) sum += length;
    const ring::Extent here = {0x1000, 0x2000};
    const ring::Extent there = {0x3000, 0x4000};
    if (accepted && batch.channel != 8) accepted({&here, 1}, {&there, 1});
    if (batch.channel == 7) {
      MutexLock lock(&mutex_);
      held_.push_back(std::move(done));
      return;
    }
    if (batch.channel == 8) return done({NotConnected("no such channel"), 0, 42});
    if (batch.channel == 9) return done({Timeout("too slow"), 0, 43});
    done({absl::OkStatus(), sum, session_id});
  }
  size_t held() {
    MutexLock lock(&mutex_);
    return held_.size();
  }
  void Let() {
    std::vector<TransferDone> held;
    {
      MutexLock lock(&mutex_);
      held.swap(held_);
    }
    for (auto& done : held) done({absl::OkStatus(), 1, 1});
  }

 private:
  Mutex mutex_;
  std::vector<TransferDone> held_ ABSL_GUARDED_BY(mutex_);
};

struct Fixture {
  Fixture() {
    auto started = WorkerSet::Start(2, 20'000);
    REQUIRE(started.ok());
    workers = std::move(*started);
    server = std::make_unique<RingServer>(
        workers.get(), &engines,
        RingServer::Options{.geometry = {.entries = 8, .slots = 16, .arena_descriptors = 64}});
  }
  ~Fixture() {
    server.reset();
    workers.reset();
  }

  std::unique_ptr<ring::Producer> Client(uint64_t session_id, std::promise<absl::Status>* end,
                                         Mapping* raw = nullptr) {
    auto grant = server->Open(session_id, [end](absl::Status why) { end->set_value(why); });
    REQUIRE(grant.ok());
    auto memory = MapShared(grant->memory_fd, 0, grant->size);
    REQUIRE(memory.ok());
    if (raw != nullptr) *raw = *MapShared(grant->memory_fd, 0, grant->size);
    auto producer = ring::Producer::Attach(std::move(*memory), UniqueFd(dup(grant->wake_fd)));
    REQUIRE(producer.ok());
    return std::move(*producer);
  }

  FakeEngines engines;
  std::unique_ptr<WorkerSet> workers;
  std::unique_ptr<RingServer> server;
};

ring::Producer::Result Transfer(ring::Producer* client, uint64_t channel,
                                const std::vector<ring::Descriptor>& list) {
  auto slot = client->Submit(
      {.engine = 1, .channel = channel, .descriptors = list, .room_deadline_ns = kNoDeadline});
  REQUIRE(slot.ok());
  REQUIRE(client->Wait(*slot, 0, kNoDeadline));
  auto result = client->Read(*slot);
  client->Release(*slot);
  return result;
}

}  // namespace

TEST_CASE("batches run and their ends reach the slots, asleep and awake") {
  Fixture f;
  std::promise<absl::Status> end;
  auto client = f.Client(5, &end);
  for (uint64_t i = 1; i <= 500; ++i) {
    const std::vector<ring::Descriptor> list(i % 90 + 1, {1, 2, i});
    const auto result = Transfer(client.get(), 1, list);
    CHECK(result.state == ring::kCompleted);
    CHECK(result.bytes == list.size() * i);
    CHECK(result.transfer_id == 5);
  }
  const auto failed = Transfer(client.get(), 8, {{1, 2, 3}});
  CHECK(failed.state == ring::kFailed);
  CHECK(failed.code == static_cast<uint32_t>(ApiCode::kNotConnected));
  CHECK(failed.text == "no such channel");
  CHECK(failed.transfer_id == 42);
  CHECK(Transfer(client.get(), 9, {{1, 2, 3}}).state == ring::kTimedOut);
}

TEST_CASE("a client that writes nonsense loses its rings and nobody else notices") {
  Fixture f;
  std::promise<absl::Status> hostile_end;
  std::promise<absl::Status> good_end;
  Mapping raw;
  auto hostile = f.Client(1, &hostile_end, &raw);
  auto good = f.Client(2, &good_end);
  CHECK(Transfer(hostile.get(), 1, {{1, 2, 3}}).bytes == 3);
  auto* header = reinterpret_cast<ring::Header*>(raw.data());
  const std::vector<ring::Descriptor> one = {{1, 2, 3}};
  auto ended = hostile_end.get_future();
  while (ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    // Whatever the producer makes of it, its wake-up reaches the daemon in the end.
    header->tail.fetch_add(100);
    (void)hostile->Submit({.engine = 1,
                           .channel = 1,
                           .descriptors = one,
                           .room_deadline_ns = MonotonicNanos() + kNanosPerMilli});
    header->tail.fetch_add(100);
  }
  const absl::Status why = ended.get();
  CHECK(ApiCodeOf(why) == ApiCode::kParamInvalid);
  CHECK(Transfer(good.get(), 1, {{1, 2, 4}}).bytes == 4);
}

TEST_CASE("batches that run when the rings are closed still end, and the rings go after them") {
  Fixture f;
  std::promise<absl::Status> end;
  auto client = f.Client(3, &end);
  const std::vector<ring::Descriptor> one = {{1, 2, 3}};
  auto slot = client->Submit(
      {.engine = 1, .channel = 7, .descriptors = one, .room_deadline_ns = kNoDeadline});
  REQUIRE(slot.ok());
  while (f.engines.held() == 0) std::this_thread::yield();
  f.server->Close(3);
  CHECK(f.server->size() == 0);
  f.engines.Let();
  REQUIRE(client->Wait(*slot, 0, kNoDeadline));
  CHECK(client->Read(*slot).state == ring::kCompleted);
}

TEST_CASE("a verdict comes before the end, with the memory around the ranges") {
  Fixture f;
  std::promise<absl::Status> end;
  auto client = f.Client(6, &end);
  const std::vector<ring::Descriptor> one = {{1, 2, 3}};
  const auto submit = [&](uint64_t channel) {
    auto slot = client->Submit({.engine = 1,
                                .channel = channel,
                                .verdict = true,
                                .descriptors = one,
                                .room_deadline_ns = kNoDeadline});
    REQUIRE(slot.ok());
    REQUIRE(client->WaitVerdict(*slot, 0, kNoDeadline));
    return *slot;
  };
  const uint32_t held = submit(7);
  CHECK(client->State(held) == ring::kRunning);
  for (const uint32_t slot : {held, submit(1)}) {
    const auto extents = client->ReadExtents(slot);
    REQUIRE(extents.local.size() == 1);
    REQUIRE(extents.remote.size() == 1);
    CHECK(extents.local[0].begin == 0x1000);
    CHECK(extents.remote[0].end == 0x4000);
  }
  f.engines.Let();
  REQUIRE(client->Wait(held, 0, kNoDeadline));
  CHECK(client->State(held) == ring::kCompleted);
  // What is refused has no verdict but its end.
  const uint32_t refused = submit(8);
  CHECK(client->Read(refused).text == "no such channel");
  CHECK(client->ReadExtents(refused).local.empty());
  CHECK(client->RegionsGone() == 0);
  f.server->RegionsGone();
  CHECK(client->RegionsGone() == 1);
}

TEST_CASE("a session has one set of rings") {
  Fixture f;
  std::promise<absl::Status> end;
  auto client = f.Client(4, &end);
  CHECK(ApiCodeOf(f.server->Open(4, [](absl::Status) {}).status()) == ApiCode::kParamInvalid);
}

}  // namespace hixld
