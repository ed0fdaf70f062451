// The books of one engine: memory, requests, and the pool of background connects (contract 1.6,
// 1.9, 1.13).
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "client/cpp/async_connect.h"
#include "client/cpp/memory_table.h"
#include "client/cpp/request_table.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

MemoryRange Host(uint64_t address, uint64_t length) { return {address, length, MemoryKind::kHost}; }

TEST_CASE("ranges: the same one, neighbours, and every kind of overlap") {
  MemoryTable table;
  const uint64_t handle = table.Add({.range = Host(1000, 100)});
  CHECK(handle != 0);
  struct Row {
    uint64_t address, length;
    bool allowed;
  };
  const std::vector<Row> rows = {
      {1000, 100, true},  {900, 100, true},  {1100, 1, true},    {1, 10, true},
      {900, 101, false},  {1099, 1, false},  {1000, 99, false},  {1000, 101, false},
      {900, 1000, false}, {1050, 10, false}, {1099, 100, false},
  };
  for (const Row& row : rows) {
    INFO(row.address << "+" << row.length);
    CHECK(table.Check(Host(row.address, row.length)).ok() == row.allowed);
    CHECK(table.Check({row.address, row.length, MemoryKind::kDevice}).ok());
  }
  CHECK(table.Find(Host(1000, 100)) == handle);
  CHECK(table.Find(Host(1000, 99)) == 0);
  CHECK(table.Find({1000, 100, MemoryKind::kDevice}) == 0);
  CHECK_FALSE(table.Check(Host(0, 1)).ok());
  CHECK_FALSE(table.Check(Host(1, 0)).ok());
  CHECK_FALSE(table.Check(Host(UINT64_MAX, 2)).ok());
  table.Remove(handle);
  CHECK(table.Check(Host(1050, 100)).ok());
  CHECK(table.Get(handle) == nullptr);
  CHECK(table.Add({.range = Host(1, 1)}) != handle);
}

TEST_CASE("requests keep their order and go with their peer") {
  RequestTable table;
  const uint64_t first = table.Add({.peer = "a"});
  const uint64_t second = table.Add({.peer = "b"});
  const uint64_t third = table.Add({.peer = "a"});
  CHECK(first < second);
  CHECK(second < third);
  table.DropPeer("a");
  CHECK(table.Get(first) == nullptr);
  CHECK(table.Get(third) == nullptr);
  CHECK(table.Get(second)->peer == "b");
}

// Tasks that wait until the test lets them go, one by one.
class Gate {
 public:
  AsyncConnectPool::Work Work(const std::string& name) {
    return [this, name](const std::string& peer, int32_t) {
      const std::string key = name + " " + peer;
      MutexLock lock(&mutex_);
      started_.push_back(key);
      changed_.SignalAll();
      while (results_.count(key) == 0) changed_.Wait(&mutex_);
      const absl::Status result = results_[key];
      results_.erase(key);
      return result;
    };
  }
  void Finish(const std::string& key, absl::Status result = absl::OkStatus()) {
    MutexLock lock(&mutex_);
    results_[key] = std::move(result);
    changed_.SignalAll();
  }
  void AwaitStart(const std::string& key, size_t times = 1) {
    MutexLock lock(&mutex_);
    while (static_cast<size_t>(std::count(started_.begin(), started_.end(), key)) < times) {
      changed_.Wait(&mutex_);
    }
  }
  size_t started() {
    MutexLock lock(&mutex_);
    return started_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> started_;
  std::map<std::string, absl::Status> results_;
};

struct Fixture {
  explicit Fixture(size_t threads = 2, size_t capacity = 8)
      : pool(threads, capacity, gate.Work("connect"), gate.Work("disconnect")) {}
  // Waits for the state; the test's time limit is the deadline.
  void Await(const std::string& peer, LinkState state) {
    while (pool.State(peer) != state) std::this_thread::yield();
  }
  Gate gate;
  AsyncConnectPool pool;
};

TEST_CASE("a connect goes from pending to connecting to its end") {
  Fixture f;
  CHECK(f.pool.State("a") == LinkState::kNotConnected);
  REQUIRE(f.pool.Connect("a", 1).ok());
  f.gate.AwaitStart("connect a");
  CHECK(f.pool.State("a") == LinkState::kConnecting);
  SECTION("connected") {
    f.gate.Finish("connect a");
    f.Await("a", LinkState::kConnected);
  }
  SECTION("already connected is connected") {
    f.gate.Finish("connect a", AlreadyConnected("is"));
    f.Await("a", LinkState::kConnected);
  }
  SECTION("failed, and why") {
    f.gate.Finish("connect a", Timeout("nobody answers"));
    f.Await("a", LinkState::kConnectFailed);
    CHECK(f.pool.LastError("a").message() == "nobody answers");
  }
}

TEST_CASE("a disconnect always ends not connected, and leaves the map") {
  Fixture f;
  REQUIRE(f.pool.Disconnect("a", 1).ok());
  f.gate.AwaitStart("disconnect a");
  CHECK(f.pool.States() == std::map<std::string, LinkState>{{"a", LinkState::kDisconnecting}});
  f.gate.Finish("disconnect a", NotConnected("was not"));
  f.Await("a", LinkState::kNotConnected);
  CHECK(f.pool.States().empty());
}

TEST_CASE("tasks of one peer run in order, of different peers in parallel") {
  Fixture f;
  REQUIRE(f.pool.Connect("a", 1).ok());
  REQUIRE(f.pool.Disconnect("a", 1).ok());
  REQUIRE(f.pool.Connect("b", 1).ok());
  f.gate.AwaitStart("connect a");
  f.gate.AwaitStart("connect b");
  CHECK(f.gate.started() == 2);
  f.gate.Finish("connect a");
  f.gate.AwaitStart("disconnect a");
  f.gate.Finish("disconnect a");
  f.gate.Finish("connect b");
  f.Await("a", LinkState::kNotConnected);
  f.Await("b", LinkState::kConnected);
}

TEST_CASE("the latest submission decides what is seen") {
  Fixture f;
  REQUIRE(f.pool.Connect("a", 1).ok());
  f.gate.AwaitStart("connect a");
  REQUIRE(f.pool.Disconnect("a", 1).ok());
  CHECK(f.pool.State("a") == LinkState::kDisconnectPending);
  f.gate.Finish("connect a");
  f.gate.AwaitStart("disconnect a");
  REQUIRE(f.pool.Connect("a", 1).ok());
  f.gate.Finish("disconnect a");
  f.gate.AwaitStart("connect a", 2);
  CHECK(f.pool.State("a") == LinkState::kConnecting);
  f.gate.Finish("connect a");
  f.Await("a", LinkState::kConnected);
}

TEST_CASE("a full queue refuses, and the end waits for what has started") {
  auto f = std::make_unique<Fixture>(1, 2);
  REQUIRE(f->pool.Connect("a", 1).ok());
  f->gate.AwaitStart("connect a");
  REQUIRE(f->pool.Connect("b", 1).ok());
  REQUIRE(f->pool.Connect("c", 1).ok());
  const absl::Status refused = f->pool.Connect("d", 1);
  CHECK(ApiCodeOf(refused) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(refused).option == "connect_pool.task_queue_capacity");
  CHECK(f->pool.State("d") == LinkState::kNotConnected);
  // The thread may still take one that waits before it sees the end; the rest are dropped.
  for (const char* task : {"connect c", "connect b", "connect a"}) f->gate.Finish(task);
  f.reset();
}

}  // namespace
}  // namespace hixld::client
