// Both ends of a gate in one process.
#include "proto/direct/gate.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "proto/base/memfd.h"
#include "proto/base/status.h"
#include "proto/direct/copier.h"
#include "proto/direct/keeper.h"

namespace hixld::direct {
namespace {

constexpr int64_t kMade = 1'000'000;

Region FileRegion(uint64_t address, uint64_t length) {
  return {.address = address, .length = length, .kind = RegionKind::kFile};
}

// A gate with both ends attached.
struct Gate {
  explicit Gate(std::vector<Region> table = {FileRegion(0x1000, 0x1000)}) : regions(table) {
    auto made = Keeper::Create({.regions = regions,
                                .files = 1,
                                .max_bytes = 1 << 20,
                                .max_descriptors = 64,
                                .target_pid = 1,
                                .now_ns = kMade},
                               &memory);
    REQUIRE(made.ok());
    keeper = std::move(*made);
    raw = std::move(*MapShared(memory.get(), 0, keeper->size()));
    wake = UniqueFd(eventfd(0, EFD_NONBLOCK));
  }
  absl::StatusOr<std::unique_ptr<Copier>> Attach() {
    return Copier::Attach(std::move(*MapShared(memory.get(), 0, keeper->size())),
                          UniqueFd(dup(wake.get())));
  }
  // The same through the keeper's own mapping: the thread sanitizer does not see that two mappings
  // are one memory. It belongs to the keeper, so it must not go with the copier.
  Copier& AttachHere() {
    static auto& kept = *new std::vector<std::unique_ptr<Copier>>;
    auto copier =
        Copier::Attach(Mapping(keeper->memory().data(), keeper->size()), UniqueFd(dup(wake.get())));
    REQUIRE(copier.ok());
    kept.push_back(std::move(*copier));
    return *kept.back();
  }
  Header& header() { return *reinterpret_cast<Header*>(raw.data()); }
  Lane& lane(size_t i) { return reinterpret_cast<Lane*>(raw.data() + LanesOffset())[i]; }
  Region& region(size_t i) { return reinterpret_cast<Region*>(raw.data() + RegionsOffset())[i]; }
  bool woken() {
    uint64_t count;
    return read(wake.get(), &count, sizeof(count)) == sizeof(count);
  }

  std::vector<Region> regions;
  UniqueFd memory;
  std::unique_ptr<Keeper> keeper;
  Mapping raw;
  UniqueFd wake;
};

TEST_CASE("an open gate lets in, a closed one does not, and the last one out tells") {
  Gate gate;
  auto copier = std::move(*gate.Attach());
  REQUIRE(copier->regions().size() == 1);
  CHECK(copier->max_bytes() == 1 << 20);
  CHECK(copier->max_descriptors() == 64);
  REQUIRE(copier->Enter(3));
  CHECK_FALSE(gate.keeper->Empty());
  copier->Leave(3);
  CHECK(gate.keeper->Empty());
  CHECK_FALSE(gate.woken());

  REQUIRE(copier->Enter(kLanes + 1));
  gate.keeper->Close();
  CHECK(copier->closed());
  CHECK_FALSE(gate.keeper->Empty());
  CHECK_FALSE(copier->Enter(0));
  copier->Leave(kLanes + 1);
  CHECK(gate.keeper->Empty());
  CHECK(gate.woken());
}

TEST_CASE("the client sees that the target has registered more") {
  Gate gate;
  auto copier = std::move(*gate.Attach());
  CHECK_FALSE(copier->outdated());
  gate.keeper->NoteMoreRegions();
  CHECK(copier->outdated());
}

TEST_CASE("memory that went before the gate was attached counts as outdated, not as known") {
  Gate gate;
  gate.keeper->NoteMoreRegions();
  CHECK((*gate.Attach())->outdated());
}

TEST_CASE("a gate that makes no sense is refused") {
  SECTION("magic") {
    Gate gate;
    gate.header().magic = 0;
    CHECK(ApiCodeOf(gate.Attach().status()) == ApiCode::kParamInvalid);
  }
  SECTION("version") {
    Gate gate;
    gate.header().version = 2;
    CHECK(ApiCodeOf(gate.Attach().status()) == ApiCode::kUnsupported);
  }
  SECTION("more regions than fit") {
    Gate gate;
    gate.header().regions = UINT64_MAX / sizeof(Region);
    CHECK_FALSE(gate.Attach().ok());
  }
  SECTION("another order") {
    Gate gate;
    gate.header().regions_offset = 0;
    CHECK_FALSE(gate.Attach().ok());
  }
  SECTION("regions that overlap") {
    Gate gate({FileRegion(0x1000, 0x1000), FileRegion(0x1800, 0x1000)});
    CHECK_FALSE(gate.Attach().ok());
  }
  SECTION("a region that wraps around") {
    Gate gate({FileRegion(0x1000, UINT64_MAX)});
    CHECK_FALSE(gate.Attach().ok());
  }
  SECTION("a file that does not exist") {
    Gate gate;
    gate.region(0).file = 1;
    CHECK_FALSE(gate.Attach().ok());
  }
  SECTION("a kind that does not exist") {
    Gate gate;
    gate.region(0).kind = static_cast<RegionKind>(7);
    CHECK_FALSE(gate.Attach().ok());
  }
  SECTION("too short") { CHECK_FALSE(Copier::Attach(Mapping(), UniqueFd()).ok()); }
}

TEST_CASE("totals are taken once") {
  Gate gate;
  auto copier = std::move(*gate.Attach());
  copier->Count(0, true, 4096, 1);
  copier->Count(1, false, 100, 3);
  const Counts first = gate.keeper->Take(kMade + 1'000'000);
  CHECK(first.reads == 1);
  CHECK(first.writes == 1);
  CHECK(first.bytes_read == 4096);
  CHECK(first.bytes_written == 100);
  CHECK(first.descriptors_read == 1);
  CHECK(first.descriptors_written == 3);
  copier->Count(0, true, 50, 1);
  const Counts second = gate.keeper->Take(kMade + 1'000'001);
  CHECK(second.reads == 1);
  CHECK(second.bytes_read == 50);
  CHECK(second.writes == 0);
}

TEST_CASE("counters that go back or race ahead are not believed") {
  Gate gate;
  gate.lane(0).bytes_read = UINT64_MAX;
  gate.lane(1).bytes_read = UINT64_MAX;
  gate.lane(0).reads = 100;
  const Counts first = gate.keeper->Take(kMade + 1000);
  CHECK(first.bytes_read == 2 * 256 * 1000);
  CHECK(first.reads == 100);
  gate.lane(0).reads = 3;
  gate.lane(0).bytes_read = 0;
  gate.lane(1).bytes_read = 0;
  const Counts second = gate.keeper->Take(kMade + 2000);
  CHECK(second.reads == 0);
  CHECK(second.bytes_read == 0);
  // A clock that goes back must not either.
  CHECK(gate.keeper->Take(0).reads == 0);
}

TEST_CASE("after the gate is closed and empty no byte lands") {
  constexpr int kThreads = 3;
  constexpr size_t kBytes = 256;
  for (int round = 0; round < 50; ++round) {
    Gate gate;
    Copier* const copier = &gate.AttachHere();
    // Plain memory: the thread sanitizer sees whether the gate orders the copies before the end.
    std::vector<std::vector<char>> targets(kThreads, std::vector<char>(kBytes, 0));
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        bool first = true;
        char value = 1;
        while (copier->Enter(static_cast<uint32_t>(t))) {
          memset(targets[t].data(), value++, kBytes);
          copier->Count(static_cast<uint32_t>(t), false, kBytes, 1);
          copier->Leave(static_cast<uint32_t>(t));
          if (first) started.fetch_add(1);
          first = false;
        }
      });
    }
    while (started.load() < kThreads) std::this_thread::yield();
    gate.keeper->Close();
    while (!gate.keeper->Empty()) std::this_thread::yield();
    for (auto& target : targets) memset(target.data(), 'x', kBytes);
    for (auto& thread : threads) thread.join();
    for (const auto& target : targets) {
      CHECK(target == std::vector<char>(kBytes, 'x'));
    }
    CHECK(gate.keeper->Empty());
  }
}

}  // namespace
}  // namespace hixld::direct
