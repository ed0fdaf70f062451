#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"
#include "proto/ring/consumer.h"
#include "proto/ring/futex.h"
#include "proto/ring/producer.h"

namespace hixld::ring {
namespace {

constexpr uint32_t kNoLimit = 1U << 30;

struct Pair {
  std::unique_ptr<Consumer> consumer;
  std::unique_ptr<Producer> producer;
  Mapping raw;  // what a hostile client would scribble into
};

Pair MakePair(const Geometry& geometry) {
  Pair pair;
  auto consumer = Consumer::Create(geometry);
  REQUIRE(consumer.ok());
  pair.consumer = std::move(*consumer);
  auto map = [&] {
    auto mapping = MapShared(pair.consumer->memory_fd(), 0, pair.consumer->size());
    REQUIRE(mapping.ok());
    return std::move(*mapping);
  };
  pair.raw = map();
  auto producer = Producer::Attach(map(), UniqueFd(dup(pair.consumer->wake_fd())));
  REQUIRE(producer.ok());
  pair.producer = std::move(*producer);
  return pair;
}

Producer::Request RequestOf(const std::vector<Descriptor>& descriptors) {
  return Producer::Request{.engine = 1,
                           .channel = 2,
                           .op = Op::kWrite,
                           .descriptors = descriptors,
                           .room_deadline_ns = kNoDeadline};
}

std::vector<Descriptor> Sequence(uint64_t start, size_t count) {
  std::vector<Descriptor> list(count);
  for (size_t i = 0; i < count; ++i) list[i] = {start + i, start + i + 1, start + i + 2};
  return list;
}

// The daemon's loop in small: takes batches, completes each with the sum of its local addresses
// as "bytes", sleeps on the eventfd when there is nothing.
void Serve(Consumer* consumer, size_t batches) {
  for (size_t done = 0; done < batches;) {
    Consumer::Batch batch;
    auto got = consumer->Next(kNoLimit, &batch);
    if (!got.ok()) return;
    if (*got) {
      uint64_t sum = 0;
      for (size_t i = 0; i < batch.size(); ++i) {
        sum += batch.local[i];
        // Sequence() makes neighbours of the three.
        if (batch.remote[i] != batch.local[i] + 1 || batch.lengths[i] != batch.local[i] + 2)
          sum = 0;
      }
      consumer->Publish(batch.slot, kCompleted, 0, sum, 1, "");
      ++done;
      continue;
    }
    if (!consumer->TrySleep()) continue;
    pollfd wake = {.fd = consumer->wake_fd(), .events = POLLIN, .revents = 0};
    poll(&wake, 1, -1);
    uint64_t count;
    (void)!read(consumer->wake_fd(), &count, sizeof(count));
    consumer->StayAwake();
  }
}

uint64_t SumOf(const std::vector<Descriptor>& list) {
  uint64_t sum = 0;
  for (const Descriptor& d : list) sum += d.local;
  return sum;
}

}  // namespace

TEST_CASE("batches of every size arrive whole and in order") {
  Pair pair = MakePair({.entries = 8, .slots = 16, .arena_descriptors = 64});
  const std::vector<size_t> sizes = {1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 200, 1000};
  std::thread daemon([&] { Serve(pair.consumer.get(), sizes.size()); });
  for (size_t size : sizes) {
    const auto list = Sequence(size * 1000, size);
    auto slot = pair.producer->Submit(RequestOf(list));
    REQUIRE(slot.ok());
    REQUIRE(pair.producer->Wait(*slot, 0, kNoDeadline));
    const auto result = pair.producer->Read(*slot);
    CHECK(result.state == kCompleted);
    CHECK(result.bytes == SumOf(list));
    pair.producer->Release(*slot);
  }
  daemon.join();
  CHECK(pair.consumer->in_flight() == 0);
}

// Every piece of a batch, as the daemon got it.
std::vector<Descriptor> PiecesOf(const Consumer::Batch& batch) {
  std::vector<Descriptor> pieces;
  for (size_t i = 0; i < batch.size(); ++i) {
    pieces.push_back({batch.local[i], batch.remote[i], batch.lengths[i]});
  }
  return pieces;
}

bool operator==(const Descriptor& a, const Descriptor& b) {
  return a.local == b.local && a.remote == b.remote && a.length == b.length;
}

TEST_CASE("blocks arrive as the addresses that their tables give them, in order") {
  Pair pair = MakePair({.entries = 8, .slots = 16, .arena_descriptors = 64});
  const std::vector<BlockTables> tables = {{1000, 16, 500'000, 32, 8},
                                           {1 << 30, 4096, uint64_t{1} << 40, 1 << 20, 4096}};
  // Up to what an entry holds, one more, several entries, and around the arena's end many times.
  for (const uint32_t count : {1, 2, 3, 47, 48, 49, 1000, 5, 777}) {
    std::vector<uint32_t> local(count);
    std::vector<uint32_t> remote(count);
    std::vector<Descriptor> wanted;
    for (uint32_t i = 0; i < count; ++i) {
      local[i] = (i * 7919) % 4099;
      remote[i] = UINT32_MAX - i;
    }
    for (const BlockTables& table : tables) {
      for (uint32_t i = 0; i < count; ++i) {
        wanted.push_back({table.local_base + local[i] * table.local_stride,
                          table.remote_base + remote[i] * table.remote_stride, table.block_bytes});
      }
    }
    Producer::Request request = RequestOf({});
    request.tables = tables;
    request.local_blocks = local;
    request.remote_blocks = remote;
    std::thread client([&] { REQUIRE(pair.producer->Submit(request).ok()); });
    Consumer::Batch batch;
    absl::StatusOr<bool> got = false;
    while (got.ok() && !*got) got = pair.consumer->Next(kNoLimit, &batch);
    client.join();
    REQUIRE(got.ok());
    CHECK(PiecesOf(batch) == wanted);
    pair.consumer->Publish(batch.slot, kCompleted, 0, 0, 0, "");
    pair.producer->Release(batch.slot);
  }
}

TEST_CASE("a batch of blocks beyond the limit fails alone") {
  Pair pair = MakePair({.entries = 8, .slots = 4, .arena_descriptors = 16});
  const std::vector<BlockTables> tables = {{1000, 16, 2000, 16, 8}};
  const std::vector<uint32_t> blocks(11, 0);
  Producer::Request request = RequestOf({});
  request.tables = tables;
  request.local_blocks = blocks;
  request.remote_blocks = blocks;
  const auto slot = pair.producer->Submit(request);
  REQUIRE(slot.ok());
  Consumer::Batch batch;
  CHECK_FALSE(*pair.consumer->Next(10, &batch));
  CHECK(pair.producer->Read(*slot).code == static_cast<uint32_t>(ApiCode::kResourceExhausted));

  request.local_blocks = {};
  request.remote_blocks = {};
  CHECK(ApiCodeOf(pair.producer->Submit(request).status()) == ApiCode::kParamInvalid);
}

TEST_CASE("several client threads lose no batch when ring, arena and slots are tight") {
  Pair pair = MakePair({.entries = 4, .slots = 8, .arena_descriptors = 32});
  constexpr size_t kThreads = 4;
  constexpr size_t kRounds = 2000;
  std::thread daemon([&] { Serve(pair.consumer.get(), kThreads * kRounds); });
  std::vector<std::thread> clients;
  std::atomic<uint64_t> wrong{0};
  for (size_t t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      for (size_t i = 0; i < kRounds; ++i) {
        const auto list = Sequence(t * 1'000'000 + i, 1 + i % 40);
        auto slot = pair.producer->Submit(RequestOf(list));
        if (!slot.ok() || !pair.producer->Wait(*slot, i % 2 == 0 ? 20'000 : 0, kNoDeadline) ||
            pair.producer->Read(*slot).bytes != SumOf(list)) {
          wrong.fetch_add(1);
        }
        if (slot.ok()) pair.producer->Release(*slot);
      }
    });
  }
  for (auto& client : clients) client.join();
  daemon.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("a full ring is TIMEOUT at the deadline and exhausted slots say so") {
  Pair pair = MakePair({.entries = 2, .slots = 3, .arena_descriptors = 16});
  const auto one = Sequence(1, 1);
  auto request = RequestOf(one);
  REQUIRE(pair.producer->Submit(request).ok());
  REQUIRE(pair.producer->Submit(request).ok());
  request.room_deadline_ns = MonotonicNanos() + kNanosPerMilli;
  CHECK(ApiCodeOf(pair.producer->Submit(request).status()) == ApiCode::kTimeout);

  Consumer::Batch batch;
  REQUIRE(*pair.consumer->Next(kNoLimit, &batch));
  request.room_deadline_ns = kNoDeadline;
  REQUIRE(pair.producer->Submit(request).ok());
  REQUIRE(*pair.consumer->Next(kNoLimit, &batch));
  const auto status = pair.producer->Submit(request).status();
  CHECK(ApiCodeOf(status) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(status).option == "rings.slots");
}

TEST_CASE("a batch beyond the limit fails alone and the next one goes on") {
  Pair pair = MakePair({.entries = 64, .slots = 4, .arena_descriptors = 16});
  const auto big = Sequence(1, 12);
  const auto small = Sequence(1, 2);
  auto first = pair.producer->Submit(RequestOf(big));
  auto second = pair.producer->Submit(RequestOf(small));
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  Consumer::Batch batch;
  REQUIRE(*pair.consumer->Next(10, &batch));
  CHECK(batch.slot == *second);
  const auto result = pair.producer->Read(*first);
  CHECK(result.state == kFailed);
  CHECK(result.code == static_cast<uint32_t>(ApiCode::kResourceExhausted));
  CHECK(result.text.find("limits.max_descriptors_per_transfer") != std::string::npos);
}

TEST_CASE("after the daemon's death exactly the unfinished transfers are lost") {
  Pair pair = MakePair({.entries = 16, .slots = 8, .arena_descriptors = 16});
  const auto one = Sequence(1, 1);
  std::vector<uint32_t> slots;
  for (int i = 0; i < 5; ++i) {
    auto slot = pair.producer->Submit(RequestOf(one));
    REQUIRE(slot.ok());
    slots.push_back(*slot);
  }
  Consumer::Batch batch;
  for (int i = 0; i < 3; ++i) REQUIRE(*pair.consumer->Next(kNoLimit, &batch));
  pair.consumer->Publish(slots[0], kCompleted, 0, 1, 1, "");
  pair.consumer->Publish(slots[2], kFailed, 503900, 0, 1, "why");

  auto lost = pair.producer->Abandon();
  std::sort(lost.begin(), lost.end());
  std::vector<uint32_t> expected = {slots[1], slots[3], slots[4]};
  std::sort(expected.begin(), expected.end());
  CHECK(lost == expected);
  CHECK(pair.producer->Read(slots[0]).state == kCompleted);
  CHECK(pair.producer->Read(slots[2]).text == "why");
  CHECK(pair.producer->Read(slots[1]).state == kFailed);
  CHECK(pair.producer->Submit(RequestOf(one)).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("forgotten slots come back once their transfers have ended") {
  Pair pair = MakePair({.entries = 16, .slots = 2, .arena_descriptors = 16});
  const auto one = Sequence(1, 1);
  const auto first = pair.producer->Submit(RequestOf(one));
  const auto second = pair.producer->Submit(RequestOf(one));
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  pair.producer->Forget(*first);
  pair.producer->Forget(*second);
  CHECK(ApiCodeOf(pair.producer->Submit(RequestOf(one)).status()) == ApiCode::kResourceExhausted);
  Consumer::Batch batch;
  REQUIRE(*pair.consumer->Next(kNoLimit, &batch));
  REQUIRE(*pair.consumer->Next(kNoLimit, &batch));
  pair.consumer->Publish(*second, kFailed, 503900, 0, 0, "");
  const auto third = pair.producer->Submit(RequestOf(one));
  REQUIRE(third.ok());
  CHECK(*third == *second);
}

TEST_CASE("a sleeping daemon is woken once and an awake one never") {
  Pair pair = MakePair({.entries = 16, .slots = 8, .arena_descriptors = 16});
  const auto one = Sequence(1, 1);
  uint64_t wakes = 0;
  REQUIRE(pair.producer->Submit(RequestOf(one)).ok());
  REQUIRE(pair.producer->Submit(RequestOf(one)).ok());
  REQUIRE(read(pair.consumer->wake_fd(), &wakes, sizeof(wakes)) == sizeof(wakes));
  CHECK(wakes == 1);
  CHECK_FALSE(pair.consumer->TrySleep());  // two entries wait
  REQUIRE(pair.producer->Submit(RequestOf(one)).ok());
  CHECK(read(pair.consumer->wake_fd(), &wakes, sizeof(wakes)) == -1);  // nobody slept
}

TEST_CASE("nonsense in the ring is refused by name") {
  Pair pair = MakePair({.entries = 16, .slots = 8, .arena_descriptors = 16});
  auto* header = reinterpret_cast<Header*>(pair.raw.data());
  auto* entries = reinterpret_cast<Entry*>(pair.raw.data() + EntriesOffset());
  const auto refused = [&](const char* name) {
    Consumer::Batch batch;
    const auto got = pair.consumer->Next(kNoLimit, &batch);
    REQUIRE_FALSE(got.ok());
    CHECK(std::string(got.status().message()).find(name) != std::string::npos);
  };
  entries[0] = Entry{};
  entries[0].count = 1;
  entries[0].flags = kInline;
  SECTION("tail too far") {
    header->tail.store(17);
    refused("tail");
  }
  SECTION("slot out of range") {
    entries[0].slot = 8;
    header->tail.store(1);
    refused("slot");
  }
  SECTION("count beyond the inline places") {
    entries[0].count = 4;
    header->tail.store(1);
    refused("count");
  }
  SECTION("arena index") {
    entries[0].flags = 0;
    entries[0].arena_index = 16;
    header->tail.store(1);
    refused("arena index");
  }
  SECTION("inline and blocks together") {
    entries[0].flags = kInline | kBlocks;
    header->tail.store(1);
    refused("flags");
  }
  SECTION("an unknown flag") {
    entries[0].flags = kInline | 16;
    header->tail.store(1);
    refused("flags");
  }
  SECTION("more pairs of blocks than the arena holds") {
    entries[0].flags = kBlocks;
    entries[0].count = 16 * kPairsPerDescriptor + 1;
    header->tail.store(1);
    refused("count");
  }
  SECTION("op") {
    entries[0].op = 7;
    header->tail.store(1);
    refused("op");
  }
  SECTION("slot in use") {
    entries[1] = entries[0];
    header->tail.store(2);
    Consumer::Batch batch;
    REQUIRE(*pair.consumer->Next(kNoLimit, &batch));
    refused("slot");
  }
  SECTION("a continued batch that changes its slot") {
    entries[0].flags = kInline | kMore;
    entries[1] = entries[0];
    entries[1].slot = 1;
    header->tail.store(2);
    refused("continued");
  }
}

// Writes random words all over the shared memory, past the geometry that the client reads, for
// as long as it lives.
class Scribbler {
 public:
  Scribbler(const Mapping& memory, uint64_t seed)
      : thread_([this, &memory, seed] {
          std::mt19937_64 random(seed);
          auto* words = reinterpret_cast<uint64_t*>(memory.data());
          const size_t count = memory.size() / sizeof(uint64_t);
          while (!stop_.load(std::memory_order_relaxed)) {
            const uint64_t value = random() % 3 == 0 ? random() : random() % 20;
            __atomic_store_n(words + 8 + random() % (count - 8), value, __ATOMIC_RELAXED);
          }
        }) {}
  ~Scribbler() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_CASE("random bytes in the ring never get past a check while the daemon reads it") {
  const Geometry geometry{.entries = 16, .slots = 8, .arena_descriptors = 16};
  uint64_t refused = 0;
  uint64_t bad = 0;
  for (uint64_t session = 0; session < 100; ++session) {
    Pair pair = MakePair(geometry);
    const Scribbler scribbler(pair.raw, session);
    for (int round = 0; round < 50000; ++round) {
      Consumer::Batch batch;
      const auto got = pair.consumer->Next(64, &batch);
      if (!got.ok()) {
        ++refused;
        break;  // where a real session ends
      }
      if (!*got) continue;
      if (batch.slot >= geometry.slots || batch.size() == 0 || batch.size() > 64) {
        ++bad;
      }
      pair.consumer->Publish(batch.slot, kCompleted, 0, 0, 0, "");
    }
  }
  CHECK(bad == 0);
  CHECK(refused > 0);
}

TEST_CASE("ring memory with a foreign layout is refused") {
  auto consumer = Consumer::Create({.entries = 8, .slots = 4, .arena_descriptors = 8});
  REQUIRE(consumer.ok());
  auto raw = MapShared((*consumer)->memory_fd(), 0, (*consumer)->size());
  REQUIRE(raw.ok());
  reinterpret_cast<Header*>(raw->data())->version = kLayoutVersion + 1;
  auto producer = Producer::Attach(std::move(*raw), UniqueFd());
  CHECK(ApiCodeOf(producer.status()) == ApiCode::kParamInvalid);
}

}  // namespace hixld::ring
