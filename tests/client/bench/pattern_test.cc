#include "client/bench/pattern.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <vector>

#include "client/bench/text.h"

namespace hixld::bench {
namespace {

constexpr uint64_t kLocal = 11;
constexpr uint64_t kRemote = 22;

// Two regions, and hixld done by memcpy.
struct World {
  explicit World(const Plan& plan)
      : plan(plan), local(plan.RegionBytes()), remote(plan.RegionBytes()) {
    FillPattern(kLocal, local.data(), local.size());
    FillPattern(kRemote, remote.data(), remote.size());
  }
  void Move() {
    for (uint64_t thread = 0; thread < plan.threads; ++thread) {
      const std::vector<Block> blocks = BlocksOfThread(plan, thread);
      for (uint64_t i = 0; i < blocks.size(); ++i) {
        std::byte* const here = local.data() + blocks[i].local;
        std::byte* const there = remote.data() + blocks[i].remote;
        const bool read = plan.IsRead(i / plan.batch);
        std::memcpy(read ? here : there, read ? there : here, blocks[i].length);
      }
    }
  }
  absl::Status Verify(Side side) const {
    return VerifyRegion(plan, side, kLocal, kRemote,
                        side == Side::kLocal ? local.data() : remote.data());
  }
  Plan plan;
  std::vector<std::byte> local;
  std::vector<std::byte> remote;
};

Plan SomePlan(Op op, Layout layout) {
  Plan plan;
  plan.op = op;
  plan.layout = layout;
  plan.block = 1000;  // no multiple of the pattern's word
  plan.batch = 3;
  plan.threads = 2;
  plan.tensors = 2;
  plan.blocks_per_tensor = 7;
  return plan;
}

const Op kOps[] = {Op::kRead, Op::kWrite, Op::kMix};
const Layout kLayouts[] = {Layout::kContiguous, Layout::kScattered, Layout::kShuffled};

TEST_CASE("the pattern can be checked from any offset") {
  std::vector<std::byte> data(10'000);
  FillPattern(5, data.data(), data.size());
  for (const size_t offset : {0, 1, 7, 8, 4095, 4097, 9999}) {
    CHECK(FirstMismatch(5, offset, data.data() + offset, data.size() - offset) ==
          data.size() - offset);
  }
  CHECK(FirstMismatch(6, 0, data.data(), data.size()) < 8);
  CHECK(FirstMismatch(5, 8, data.data(), data.size()) < 8);
  data[7777] ^= std::byte{1};
  CHECK(FirstMismatch(5, 13, data.data() + 13, data.size() - 13) == 7777 - 13);
}

TEST_CASE("blocks that were moved right pass on both sides") {
  for (const Op op : kOps) {
    for (const Layout layout : kLayouts) {
      World world(SomePlan(op, layout));
      world.Move();
      CHECK(ErrorText(world.Verify(Side::kLocal)) == "");
      CHECK(ErrorText(world.Verify(Side::kRemote)) == "");
    }
  }
}

TEST_CASE("a block that was not moved is noticed and named") {
  for (const Layout layout : kLayouts) {
    World world(SomePlan(Op::kRead, layout));
    world.Move();
    const Block lost = BlocksOfThread(world.plan, 1)[5];
    FillPattern(kLocal, world.local.data(), 0);
    std::vector<std::byte> old(world.local.size());
    FillPattern(kLocal, old.data(), old.size());
    std::memcpy(world.local.data() + lost.local, old.data() + lost.local, lost.length);
    CHECK(ErrorText(world.Verify(Side::kLocal)).find("block 5 of thread 1") != std::string::npos);
  }
}

TEST_CASE("any single foreign byte is noticed, beside the blocks and at the source too") {
  Random random(3);
  for (const Op op : kOps) {
    for (const Layout layout : kLayouts) {
      World world(SomePlan(op, layout));
      world.Move();
      for (int i = 0; i < 50; ++i) {
        const Side side = i % 2 == 0 ? Side::kLocal : Side::kRemote;
        std::vector<std::byte>& region = side == Side::kLocal ? world.local : world.remote;
        std::byte& byte = region[random.Below(region.size())];
        byte ^= std::byte{0x40};
        CHECK(!world.Verify(side).ok());
        byte ^= std::byte{0x40};
      }
      for (const size_t end : {size_t{0}, world.local.size() - 1}) {
        world.local[end] ^= std::byte{1};
        CHECK(!world.Verify(Side::kLocal).ok());
        world.local[end] ^= std::byte{1};
      }
      CHECK(world.Verify(Side::kLocal).ok());
    }
  }
}

TEST_CASE("blocks do not overlap and lie inside the region") {
  for (const Layout layout : kLayouts) {
    const Plan plan = SomePlan(Op::kRead, layout);
    std::set<uint64_t> local;
    std::set<uint64_t> remote;
    for (uint64_t thread = 0; thread < plan.threads; ++thread) {
      const std::vector<Block> blocks = BlocksOfThread(plan, thread);
      REQUIRE(blocks.size() == plan.blocks_per_thread());
      for (const Block& block : blocks) {
        for (uint64_t i = 0; i < block.length; ++i) {
          REQUIRE(local.insert(block.local + i).second);
          REQUIRE(remote.insert(block.remote + i).second);
        }
      }
    }
    CHECK(*local.rbegin() < plan.RegionBytes());
    CHECK(*remote.rbegin() < plan.RegionBytes());
  }
}

TEST_CASE("layouts are what they say") {
  Plan plan = SomePlan(Op::kRead, Layout::kContiguous);
  plan.tensors = 1;
  plan.blocks_per_tensor = 64;
  std::vector<Block> blocks = BlocksOfThread(plan, 0);
  for (size_t i = 1; i < blocks.size(); ++i) {
    CHECK(blocks[i].local == blocks[i - 1].local + plan.block);
    CHECK(blocks[i].remote == blocks[i - 1].remote + plan.block);
  }
  plan.layout = Layout::kShuffled;
  blocks = BlocksOfThread(plan, 0);
  for (const Block& block : blocks) CHECK(block.local == block.remote);
  CHECK(blocks[0].local + plan.block != blocks[1].local);
  plan.layout = Layout::kScattered;
  blocks = BlocksOfThread(plan, 0);
  for (size_t i = 1; i < blocks.size(); ++i) {
    CHECK(blocks[i].local != blocks[i - 1].local + plan.block);
  }
}

TEST_CASE("blocks of one index have one place in every tensor") {
  const Plan plan = SomePlan(Op::kRead, Layout::kScattered);
  const std::vector<Block> blocks = BlocksOfThread(plan, 1);
  const uint64_t distance = blocks[plan.blocks_per_tensor].local - blocks[0].local;
  for (uint64_t i = 0; i < plan.blocks_per_tensor; ++i) {
    CHECK(blocks[i + plan.blocks_per_tensor].local == blocks[i].local + distance);
    CHECK(blocks[i + plan.blocks_per_tensor].remote == blocks[i].remote + distance);
  }
}

TEST_CASE("a plan's text gives the same plan, and a bad one is refused") {
  const Plan plan = SomePlan(Op::kMix, Layout::kScattered);
  const auto back = Plan::FromText(plan.ToText());
  REQUIRE(back.ok());
  CHECK(back->ToText() == plan.ToText());
  CHECK(back->RegionBytes() == plan.RegionBytes());
  for (const char* text :
       {"block=0", "block=x", "op=erase", "size=4", "block=99999999999999", "threads=1000000",
        "tensors=65000 blocks_per_tensor=99999999999999", "batch=-1"}) {
    INFO(text);
    CHECK(!Plan::FromText(text).ok());
  }
}

}  // namespace
}  // namespace hixld::bench
