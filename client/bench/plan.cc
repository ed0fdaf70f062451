#include "client/bench/plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/bench/parse.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

// Bytes before the first and after the last thread's area that nothing may touch.
constexpr uint64_t kGuard = 4096;
constexpr uint64_t kAreaAlignment = 4096;
constexpr uint64_t kLimit = uint64_t{1} << 46;

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Places in one tensor: when scattered, a quarter of them stays unused.
uint64_t Slots(const Plan& plan) {
  const uint64_t blocks = plan.blocks_per_tensor;
  return plan.layout == Layout::kScattered ? blocks + blocks / 4 + 1 : blocks;
}

uint64_t AreaBytes(const Plan& plan) {
  return RoundUp(plan.tensors * Slots(plan) * BlockStride(plan), kAreaAlignment);
}

// The first `count` elements of a random order of 0..range-1.
std::vector<uint64_t> RandomOrder(uint64_t range, uint64_t count, Random& random) {
  std::vector<uint64_t> order(range);
  std::iota(order.begin(), order.end(), 0);
  for (uint64_t i = 0; i < count; ++i) std::swap(order[i], order[i + random.Below(range - i)]);
  order.resize(count);
  return order;
}

absl::Status BadPlan(absl::string_view text, absl::string_view why) {
  return ParamInvalid(absl::StrCat("plan \"", text, "\": ", why));
}

absl::Status CheckNumbers(const Plan& plan, absl::string_view text) {
  if (plan.block == 0 || plan.batch == 0 || plan.threads == 0 || plan.tensors == 0 ||
      plan.blocks_per_tensor == 0) {
    return BadPlan(text, "a number is 0");
  }
  // Each factor is bounded first, so that the products cannot overflow.
  if (plan.block > kLimit || plan.threads > 65536 || plan.tensors > 65536 ||
      plan.blocks_per_tensor > kLimit / plan.tensors / plan.threads / plan.block) {
    return BadPlan(text, "it needs too much memory");
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t BlockStride(const Plan& plan) {
  if (plan.layout != Layout::kScattered) return plan.block;
  const uint64_t gap = std::clamp<uint64_t>(plan.block / 4, 64, 4096);
  return plan.block + RoundUp(gap, 64);
}

const std::vector<std::string>& OpNames() {
  static const std::vector<std::string>& names =
      *new std::vector<std::string>{"read", "write", "mix"};
  return names;
}

const std::vector<std::string>& LayoutNames() {
  static const std::vector<std::string>& names =
      *new std::vector<std::string>{"contiguous", "scattered", "shuffled"};
  return names;
}

const std::vector<std::string>& BatchFormNames() {
  static const std::vector<std::string>& names =
      *new std::vector<std::string>{"descriptors", "arrays", "blocks"};
  return names;
}

uint64_t Random::Next() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t Random::Below(uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
}

uint64_t Plan::transfers_per_thread() const { return (blocks_per_thread() + batch - 1) / batch; }

bool Plan::IsRead(uint64_t index) const {
  return op == Op::kRead || (op == Op::kMix && index % 2 == 0);
}

uint64_t Plan::RegionBytes() const { return 2 * kGuard + threads * AreaBytes(*this); }

std::string Plan::ToText() const {
  return absl::StrCat("op=", OpNames()[static_cast<size_t>(op)],
                      " layout=", LayoutNames()[static_cast<size_t>(layout)], " block=", block,
                      " batch=", batch, " threads=", threads, " tensors=", tensors,
                      " blocks_per_tensor=", blocks_per_tensor, " seed=", seed);
}

absl::StatusOr<Plan> Plan::FromText(absl::string_view text) {
  Plan plan;
  const std::map<std::string, uint64_t*> numbers = {
      {"block", &plan.block},     {"batch", &plan.batch},
      {"threads", &plan.threads}, {"tensors", &plan.tensors},
      {"seed", &plan.seed},       {"blocks_per_tensor", &plan.blocks_per_tensor}};
  for (const absl::string_view field : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(field, absl::MaxSplits('=', 1));
    const auto number = numbers.find(pair.first);
    if (number != numbers.end()) {
      if (!absl::SimpleAtoi(pair.second, number->second)) return BadPlan(text, "not a number");
    } else if (pair.first == "op") {
      HIXLD_ASSIGN_OR_RETURN(const size_t index, ParseChoice("op", pair.second, OpNames()));
      plan.op = static_cast<Op>(index);
    } else if (pair.first == "layout") {
      HIXLD_ASSIGN_OR_RETURN(const size_t index, ParseChoice("layout", pair.second, LayoutNames()));
      plan.layout = static_cast<Layout>(index);
    } else {
      return BadPlan(text, absl::StrCat("unknown field ", pair.first));
    }
  }
  HIXLD_RETURN_IF_ERROR(CheckNumbers(plan, text));
  return plan;
}

std::vector<Block> BlocksOfThread(const Plan& plan, uint64_t thread) {
  Random random(plan.seed * 0x100000001B3u + thread);
  const uint64_t slots = Slots(plan);
  const uint64_t count = plan.blocks_per_tensor;
  std::vector<uint64_t> local(count);
  std::iota(local.begin(), local.end(), 0);
  std::vector<uint64_t> remote = local;
  if (plan.layout == Layout::kScattered) {
    local = RandomOrder(slots, count, random);
    remote = RandomOrder(slots, count, random);
  } else if (plan.layout == Layout::kShuffled) {
    local = RandomOrder(slots, count, random);
    remote = local;
  }
  const uint64_t stride = BlockStride(plan);
  const uint64_t start = kGuard + thread * AreaBytes(plan);
  std::vector<Block> blocks;
  blocks.reserve(plan.blocks_per_thread());
  for (uint64_t tensor = 0; tensor < plan.tensors; ++tensor) {
    const uint64_t base = start + tensor * slots * stride;
    for (uint64_t i = 0; i < count; ++i) {
      blocks.push_back({base + local[i] * stride, base + remote[i] * stride, plan.block});
    }
  }
  return blocks;
}

}  // namespace hixld::bench
