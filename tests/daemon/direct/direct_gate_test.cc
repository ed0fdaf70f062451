// Gates, and who is waited for.
#include "daemon/direct/direct_gate.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "proto/base/memfd.h"
#include "proto/base/status.h"
#include "proto/direct/copier.h"

namespace hixld {
namespace {

constexpr int64_t kLong = 600 * kNanosPerSecond;

// A process that waits to be killed.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ != 0) return;
    while (true) pause();
  }
  ~Child() { Kill(); }
  UniqueFd Pidfd() const { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0))); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

// A gate, and the end of it that the client has.
struct Grant {
  explicit Grant(std::shared_ptr<DirectCopier> watched, int64_t patience_ns = kLong) {
    DirectGate::Plan plan;
    plan.regions = {{.address = 0x1000, .length = 0x1000, .kind = direct::RegionKind::kFile}};
    file = std::move(*CreateSealedMemfd("test", 0x1000));
    plan.files = {{.fd = file.get(), .size = 0x1000}};
    plan.max_bytes = 1 << 20;
    plan.max_descriptors = 16;
    plan.pin = pin;
    plan.patience_ns = patience_ns;
    plan.on_empty = [this](DirectGate*) { empties += 1; };
    UniqueFd memory;
    auto made = DirectGate::Create(std::move(watched), std::move(plan), &memory);
    REQUIRE(made.ok());
    gate = std::move(*made);
    auto attached = direct::Copier::Attach(std::move(*MapShared(memory.get(), 0, gate->size())),
                                           UniqueFd(dup(gate->copier()->wake_fd())));
    REQUIRE(attached.ok());
    client = std::move(*attached);
  }
  // What a Close is told.
  std::future<absl::Status> Close() {
    auto told = std::make_shared<std::promise<absl::Status>>();
    auto future = told->get_future();
    gate->Close([told](absl::Status left) { told->set_value(std::move(left)); });
    return future;
  }

  UniqueFd file;
  std::shared_ptr<int> pin = std::make_shared<int>(0);
  std::atomic<int> empties{0};
  std::shared_ptr<DirectGate> gate;
  std::unique_ptr<direct::Copier> client;
};

struct Room {
  Child child;
  std::unique_ptr<Loop> loop = std::move(*Loop::Start({.name = "test-direct"}));
  std::shared_ptr<DirectCopier> copier =
      std::move(*DirectCopier::Create(loop.get(), "pid 7", child.Pidfd()));

  ~Room() { copier.reset(); }
};

bool Ready(const std::future<absl::Status>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST_CASE("closing an empty gate is answered at once and lets go of the memory") {
  Room room;
  Grant grant(room.copier);
  CHECK(grant.pin.use_count() == 2);
  CHECK_FALSE(grant.gate->Look());
  std::future<absl::Status> left = grant.Close();
  REQUIRE(Ready(left));
  CHECK(left.get().ok());
  CHECK(grant.empties == 1);
  CHECK(grant.pin.use_count() == 1);
  CHECK(grant.gate->closed());
  CHECK_FALSE(grant.client->Enter(0));
  // Again: nobody is inside still.
  CHECK(grant.Close().get().ok());
  CHECK(grant.empties == 1);
}

TEST_CASE("whoever closes waits for those inside, and all who closed are told") {
  Room room;
  Grant grant(room.copier);
  REQUIRE(grant.client->Enter(0));
  REQUIRE(grant.client->Enter(5));
  std::future<absl::Status> first = grant.Close();
  std::future<absl::Status> second = grant.Close();
  CHECK_FALSE(Ready(first));
  CHECK(room.copier->occupied() == 1);
  grant.client->Leave(0);
  CHECK(grant.empties == 0);
  CHECK(grant.pin.use_count() == 2);
  grant.client->Leave(5);
  CHECK(first.get().ok());
  CHECK(second.get().ok());
  CHECK(grant.empties == 1);
  CHECK(grant.pin.use_count() == 1);
}

TEST_CASE("a client that is killed inside is not waited for") {
  Room room;
  Grant grant(room.copier);
  REQUIRE(grant.client->Enter(0));
  std::future<absl::Status> left = grant.Close();
  CHECK_FALSE(Ready(left));
  room.child.Kill();
  CHECK(left.get().ok());
  CHECK(room.copier->ended());
  // And not for another gate, either.
  Grant later(room.copier);
  REQUIRE(later.client->Enter(0));
  CHECK(later.Close().get().ok());
}

TEST_CASE("a client that stays is named after the patience, and waited for again") {
  Room room;
  Grant grant(room.copier, /*patience_ns=*/kNanosPerMilli);
  REQUIRE(grant.client->Enter(0));
  const absl::Status left = grant.Close().get();
  CHECK(ApiCodeOf(left) == ApiCode::kFailed);
  CHECK(ErrorInfoOf(left).object == "pid 7");
  CHECK(ErrorInfoOf(left).option == "local.direct_patience");
  // The memory is kept as long as bytes may land in it.
  CHECK(grant.pin.use_count() == 2);
  CHECK_FALSE(grant.Close().get().ok());
  grant.client->Leave(0);
  CHECK(grant.Close().get().ok());
  CHECK(grant.pin.use_count() == 1);
}

TEST_CASE("a client that scribbles over its lanes is waited for in vain, and counts nothing") {
  Room room;
  Grant grant(room.copier, /*patience_ns=*/kNanosPerMilli);
  grant.client->Leave(3);  // one less than nobody
  CHECK_FALSE(grant.Close().get().ok());
  const direct::Counts counts = grant.gate->TakeCounts();
  CHECK(counts.reads + counts.writes == 0);
  room.child.Kill();
  CHECK(grant.Close().get().ok());
}

TEST_CASE("files are given while the gate is open") {
  Room room;
  Grant grant(room.copier);
  std::shared_ptr<const void> pin;
  const auto file = grant.gate->FindFile(0, &pin);
  REQUIRE(file.ok());
  CHECK(file->fd == grant.file.get());
  CHECK(pin == grant.pin);
  pin.reset();
  CHECK(ApiCodeOf(grant.gate->FindFile(1, &pin).status()) == ApiCode::kParamInvalid);
  grant.Close();
  CHECK(ApiCodeOf(grant.gate->FindFile(0, &pin).status()) == ApiCode::kParamInvalid);
}

TEST_CASE("a gate is found by its id as long as it exists") {
  Room room;
  Grant grant(room.copier);
  const uint64_t id = room.copier->Add(grant.gate);
  CHECK(room.copier->Find(id) == grant.gate);
  CHECK(room.copier->Find(id + 1) == nullptr);
  grant.gate.reset();
  CHECK(room.copier->Find(id) == nullptr);
  CHECK_FALSE(grant.client->Enter(0));
}

TEST_CASE("threads that go in and out while gates are closed leave every one of them") {
  Room room;
  for (int round = 0; round < 50; ++round) {
    Grant grant(room.copier);
    std::vector<std::thread> threads;
    std::atomic<int> started{0};
    // Written inside only, by one thread. Atomic, since the sanitizer does not see that the
    // client's and the daemon's mapping of the gate are one memory.
    std::atomic<int> target{0};
    for (uint32_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        bool first = true;
        while (grant.client->Enter(t)) {
          if (t == 0) target.fetch_add(1, std::memory_order_relaxed);
          grant.client->Leave(t);
          if (std::exchange(first, false)) started += 1;
        }
      });
    }
    while (started < 2) std::this_thread::yield();
    CHECK(grant.Close().get().ok());
    target.store(-1, std::memory_order_relaxed);
    for (auto& thread : threads) thread.join();
    CHECK(target == -1);
  }
}

}  // namespace
}  // namespace hixld
