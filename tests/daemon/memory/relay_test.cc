#include "daemon/memory/relay.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

using CopyCommand = Relay::CopyCommand;
using CopyDone = Relay::CopyDone;
using Slice = MemoryAccess::Slice;

constexpr uint64_t kSlot = 64 << 10;
// Where the imitated client's memory starts.
constexpr uint64_t kBase = 0x5000'0000;

// A client in this process: it has its own mapping of the arena, and memory that the daemon's side
// never touches.
class Client {
 public:
  explicit Client(size_t bytes, uint32_t slots = 2, uint64_t pool_bytes = 16 * kSlot)
      : memory(bytes),
        pool(ArenaPool::Create({.name = "relay",
                                .min_arena_bytes = kSlot,
                                .arena_bytes = kSlot,
                                .max_bytes = pool_bytes,
                                .max_bytes_option = "pools.relay.bytes"})),
        executor(Executor::Options{}),
        relay(std::make_shared<Relay>(
            Relay::Options{
                .session_id = 1, .client = "pid 12", .slot_bytes = kSlot, .max_slots = slots},
            pool, &executor, [this](uint64_t id, CopyCommand command) {
              std::lock_guard lock(mutex);
              commands.emplace_back(id, std::move(command));
              arrived.notify_all();
            })) {}

  std::pair<uint64_t, CopyCommand> Next() {
    std::unique_lock lock(mutex);
    arrived.wait(lock, [this] { return !commands.empty(); });
    auto command = std::move(commands.front());
    commands.erase(commands.begin());
    return command;
  }

  // Does what a command asks.
  void Copy(const CopyCommand& command) {
    const auto arena = relay->FindArena(command.arena_id());
    REQUIRE(arena != nullptr);
    auto view = MapShared(arena->fd.get(), 0, arena->size);
    REQUIRE(view.ok());
    REQUIRE(command.slices_size() <= 1024);
    for (const auto& slice : command.slices()) {
      std::byte* mine = memory.data() + (slice.client_address() - kBase);
      std::byte* shared = view->data() + slice.arena_offset();
      if (command.to_arena()) {
        memcpy(shared, mine, slice.length());
      } else {
        memcpy(mine, shared, slice.length());
      }
    }
  }

  void Serve(std::future<absl::Status>* until) {
    while (until->wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      std::unique_lock lock(mutex);
      if (!arrived.wait_for(lock, std::chrono::milliseconds(1),
                            [this] { return !commands.empty(); })) {
        continue;
      }
      lock.unlock();
      const auto [id, command] = Next();
      Copy(command);
      REQUIRE(relay->OnAnswer(id, CopyDone()).ok());
    }
  }

  std::future<absl::Status> Start(bool read, std::vector<Slice> slices) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    auto done = [promise](absl::Status status) { promise->set_value(std::move(status)); };
    RelayAccess access(relay, {}, kBase, memory.size(), "memory of pid 12");
    if (read) {
      access.Read(std::move(slices), done);
    } else {
      access.Write(std::move(slices), done);
    }
    return promise->get_future();
  }

  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::pair<uint64_t, CopyCommand>> commands;
  std::vector<std::byte> memory;
  std::shared_ptr<ArenaPool> pool;
  Executor executor;
  std::shared_ptr<Relay> relay;
};

void Fill(std::vector<std::byte>* bytes, int seed) {
  for (size_t i = 0; i < bytes->size(); ++i) (*bytes)[i] = std::byte((i * seed) >> 4);
}

TEST_CASE("memory is read and written through the client") {
  const size_t bytes = 5 * kSlot + 123;
  Client client(bytes);
  Fill(&client.memory, 31);
  std::vector<std::byte> host(bytes);
  // One large slice, then thousands of small ones.
  std::vector<Slice> slices;
  slices.push_back({.offset = 0, .host = host.data(), .length = 3 * kSlot});
  for (uint64_t at = 3 * kSlot; at < bytes;) {
    const uint64_t length = std::min<uint64_t>(bytes - at, at % 50);
    slices.push_back({.offset = at, .host = host.data() + at, .length = length});
    at += std::max<uint64_t>(length, 1);
    if (length == 0)
      slices.push_back({.offset = at - 1, .host = host.data() + at - 1, .length = 1});
  }
  auto read = client.Start(true, slices);
  client.Serve(&read);
  REQUIRE(read.get().ok());
  CHECK(host == client.memory);

  Fill(&host, 77);
  auto written = client.Start(false, slices);
  client.Serve(&written);
  REQUIRE(written.get().ok());
  CHECK(host == client.memory);
  CHECK(client.pool->stats().arenas == 1);
}

TEST_CASE("the client's errors name the address") {
  Client client(4 * kSlot);
  std::vector<std::byte> host(4 * kSlot);
  auto read = client.Start(true, {{.offset = 0, .host = host.data(), .length = host.size()}});
  const auto first = client.Next();
  const auto second = client.Next();
  CopyDone bad;
  bad.set_error_number(EFAULT);
  bad.set_failed_address(kBase + 5);
  REQUIRE(client.relay->OnAnswer(first.first, bad).ok());
  // The operation ends only when no command is on its way any more.
  CHECK(read.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  REQUIRE(client.relay->OnAnswer(second.first, CopyDone()).ok());
  const absl::Status status = read.get();
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("pid 12 at 0x50000005") && Catch::Contains("no such memory"));
  // The relay goes on.
  auto again = client.Start(true, {{.offset = 0, .host = host.data(), .length = 10}});
  client.Serve(&again);
  CHECK(again.get().ok());
}

TEST_CASE("answers to nothing are refused") {
  Client client(kSlot);
  CHECK(ApiCodeOf(client.relay->OnAnswer(1, CopyDone())) == ApiCode::kParamInvalid);
  std::byte byte;
  auto read = client.Start(true, {{.offset = 0, .host = &byte, .length = 1}});
  const auto [id, command] = client.Next();
  CHECK(ApiCodeOf(client.relay->OnAnswer(id + 1, CopyDone())) == ApiCode::kParamInvalid);
  CHECK(client.relay->OnAnswer(id, CopyDone()).ok());
  CHECK(ApiCodeOf(client.relay->OnAnswer(id, CopyDone())) == ApiCode::kParamInvalid);
  CHECK(read.get().ok());
}

TEST_CASE("a client that never answers: everything ends with the session") {
  Client client(8 * kSlot);
  std::vector<std::byte> host(8 * kSlot);
  const bool read = GENERATE(true, false);
  std::vector<std::future<absl::Status>> results;
  for (int i = 0; i < 5; ++i) {
    results.push_back(
        client.Start(read, {{.offset = 0, .host = host.data(), .length = host.size()}}));
  }
  client.Next();
  client.Next();
  CHECK(client.relay->OldestCommand().has_value());
  client.relay->Close(Failed("session 1 has ended"));
  for (auto& result : results) CHECK(result.get().message() == "session 1 has ended");
  CHECK(!client.relay->OldestCommand().has_value());
  auto late = client.Start(read, {{.offset = 0, .host = host.data(), .length = 1}});
  CHECK(late.get().message() == "session 1 has ended");
}

TEST_CASE("the arena is small when the pool is nearly empty, and refused when it is") {
  Client one(kSlot, /*slots=*/4, /*pool_bytes=*/kSlot);
  std::byte byte;
  auto read = one.Start(true, {{.offset = 0, .host = &byte, .length = 1}});
  one.Serve(&read);
  CHECK(read.get().ok());
  CHECK(one.pool->stats().arena_bytes == kSlot);

  Client none(kSlot, /*slots=*/4, /*pool_bytes=*/kSlot / 2);
  const absl::Status status = none.Start(true, {{.offset = 0, .host = &byte, .length = 1}}).get();
  CHECK(ApiCodeOf(status) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(status).option == "pools.relay.bytes");
}

TEST_CASE("closing races with answers") {
  for (int round = 0; round < 20; ++round) {
    Client client(4 * kSlot);
    std::vector<std::byte> host(4 * kSlot);
    std::vector<std::future<absl::Status>> results;
    std::atomic<bool> stop{false};
    std::thread server([&] {
      while (!stop) {
        std::unique_lock lock(client.mutex);
        if (client.commands.empty()) continue;
        const uint64_t id = client.commands.back().first;
        client.commands.pop_back();
        lock.unlock();
        // Unknown once the relay has closed.
        (void)client.relay->OnAnswer(id, CopyDone());
      }
    });
    for (int i = 0; i < 4; ++i) {
      results.push_back(
          client.Start(i % 2 == 0, {{.offset = 0, .host = host.data(), .length = host.size()}}));
    }
    client.relay->Close(Failed("ended"));
    for (auto& result : results) (void)result.get();
    stop = true;
    server.join();
  }
}

}  // namespace
}  // namespace hixld
