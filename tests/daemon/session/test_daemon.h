// The session room of a daemon, whole, in a temporary directory.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

#include "daemon/device/device_manager.h"
#include "daemon/session/session_server.h"
#include "tests/test_directory.h"

namespace hixld::testing {

class TestDaemon : private SessionObserver {
 public:
  struct Options {
    SessionLimits limits;
    SimBackendOptions sim = {.count = 2, .memory_bytes = 64 << 20};
    int64_t hello_timeout_ns = 5 * kNanosPerSecond;
    int64_t copy_timeout_ns = 10 * kNanosPerSecond;
    int64_t copy_stuck_ns = 2 * kNanosPerSecond;
    uint64_t relay_slot_bytes = 64 << 10;
    mode_t mode = 0660;
  };

  TestDaemon() : TestDaemon(Options()) {}
  // `socket`: empty for one in a directory of its own.
  explicit TestDaemon(Options options, const std::string& socket = "")
      : socket_(socket.empty() ? directory_.socket() : socket),
        control_({.name = "control", .threads = 2}),
        copies_({.name = "copies", .threads = 2, .stuck_after_ns = options.copy_stuck_ns}) {
    auto loop = Loop::Start({.name = "control-loop"});
    REQUIRE(loop.ok());
    loop_ = *std::move(loop);
    const auto arena_ids = std::make_shared<std::atomic<uint64_t>>(1);
    host_pool = ArenaPool::Create({.name = "host",
                                   .min_arena_bytes = 1 << 20,
                                   .max_bytes = 256 << 20,
                                   .max_bytes_option = "pools.host.max_bytes",
                                   .arena_ids = arena_ids});
    relay_pool = ArenaPool::Create({.name = "relay",
                                    .min_arena_bytes = 4096,
                                    .arena_bytes = 4096,
                                    .max_bytes = 16 << 20,
                                    .max_bytes_option = "pools.relay.bytes",
                                    .arena_ids = arena_ids});
    options.sim.arena_ids = arena_ids;
    auto devices = DeviceManager::Create({.sim = options.sim});
    REQUIRE(devices.ok());
    devices_ = *std::move(devices);
    SessionServerOptions server_options = {.socket_path = socket_,
                                           .mode = options.mode,
                                           .daemon_version = "test",
                                           .limits = options.limits,
                                           .hello_timeout_ns = options.hello_timeout_ns,
                                           .copy_timeout_ns = options.copy_timeout_ns,
                                           .relay_slot_bytes = options.relay_slot_bytes};
    server_options.on_last_session_gone = [this] {
      std::lock_guard lock(mutex_);
      ++times_empty_;
      changed_.notify_all();
    };
    auto created = SessionServer::Create(std::move(server_options), {.loop = loop_.get(),
                                                                     .control = &control_,
                                                                     .copies = &copies_,
                                                                     .host_pool = host_pool,
                                                                     .relay_pool = relay_pool,
                                                                     .devices = devices_.get()});
    status = created.status();
    if (!status.ok()) return;
    server = *std::move(created);
    server->AddObserver(this);
    status = server->Listen();
  }
  // The server first: it posts to everything else.
  ~TestDaemon() { server.reset(); }

  const std::string& socket() const { return socket_; }

  // Waits until the last session has been released for the `times`th time.
  void WaitEmpty(int times = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, times] { return times_empty_ >= times; });
  }
  // Holds back `released` of every session that ends from now on.
  void HoldReleases() {
    std::lock_guard lock(mutex_);
    hold_ = true;
  }
  void WaitHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !held_.empty(); });
  }
  void LetGo() {
    std::vector<absl::AnyInvocable<void()>> held;
    {
      std::lock_guard lock(mutex_);
      hold_ = false;
      held.swap(held_);
    }
    for (auto& released : held) released();
  }
  Executor& copies() { return copies_; }

  absl::Status status;
  std::shared_ptr<ArenaPool> host_pool;
  std::shared_ptr<ArenaPool> relay_pool;
  std::unique_ptr<SessionServer> server;

 private:
  void OnSessionEnd(uint64_t session_id, absl::AnyInvocable<void()> released) override {
    {
      std::lock_guard lock(mutex_);
      if (hold_) {
        held_.push_back(std::move(released));
        changed_.notify_all();
        return;
      }
    }
    released();
  }

  TestDirectory directory_;
  const std::string socket_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int times_empty_ = 0;
  bool hold_ = false;
  std::vector<absl::AnyInvocable<void()>> held_;
  std::unique_ptr<DeviceManager> devices_;
  std::unique_ptr<Loop> loop_;
  Executor control_;
  Executor copies_;
};

// What this process holds that a daemon could leak.
struct Holdings {
  size_t descriptors = 0;
  size_t memfd_mappings = 0;
  static Holdings Now() {
    Holdings holdings;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      (void)entry;
      ++holdings.descriptors;
    }
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:") != std::string::npos) ++holdings.memfd_mappings;
    }
    return holdings;
  }
  bool operator==(const Holdings& other) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Holdings& holdings) {
    return out << holdings.descriptors << " descriptors, " << holdings.memfd_mappings
               << " mappings";
  }

  // Whether this process comes back to it: the last descriptors are closed on threads of their own.
  bool Regained() const {
    const int64_t deadline = MonotonicNanos() + 10 * kNanosPerSecond;
    while (Now() != *this) {
      if (MonotonicNanos() > deadline) {
        std::cerr << "before: " << *this << ", now: " << Now() << "\n";
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
};

}  // namespace hixld::testing
