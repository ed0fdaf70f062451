#include "client/bench/sweep.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

// The numbers of a plan for one block size, batch and number of threads.
absl::StatusOr<Plan> MakePlan(const InitiatorOptions& options, Op op, Layout layout, uint64_t block,
                              uint64_t batch, uint64_t threads) {
  Plan plan;
  plan.op = op;
  plan.layout = layout;
  plan.block = block;
  plan.threads = threads;
  plan.seed = options.seed;
  if (options.kv.tensors > 0) {
    plan.tensors = options.kv.tensors;
    plan.blocks_per_tensor = options.kv.blocks_per_tensor;
    plan.batch = std::min(batch, options.kv.blocks());
  } else {
    const uint64_t least = op == Op::kMix ? 2 : 1;
    plan.batch = batch;
    const uint64_t transfers = std::max(least, options.working_set / (block * batch));
    plan.blocks_per_tensor = batch * transfers;
  }
  if (op == Op::kMix && plan.transfers_per_thread() < 2) {
    return ParamInvalid(absl::StrCat("--op mix needs at least two transfers, but one of ",
                                     plan.batch, " blocks takes them all"),
                        {.option = "--batch"});
  }
  // Reading the text back applies the limits of a plan.
  return Plan::FromText(plan.ToText());
}

void AddGroups(const InitiatorOptions& options, std::optional<Path> path,
               const std::vector<Case>& cases, std::vector<MemoryGroup>* groups) {
  for (const MemoryKind memory : options.memory) {
    // Without --target-memory both sides have the same kind.
    const bool same = options.target_memory.empty();
    for (const MemoryKind target_memory :
         same ? std::vector<MemoryKind>{memory} : options.target_memory) {
      MemoryGroup& group = groups->emplace_back(MemoryGroup{memory, target_memory, path, cases});
      for (Case& each : group.cases) {
        each.memory = memory;
        each.target_memory = target_memory;
        each.path = path;
      }
    }
  }
}

}  // namespace

uint64_t MemoryGroup::RegionBytes() const {
  uint64_t most = 0;
  for (const Case& each : cases) most = std::max(most, each.plan.RegionBytes());
  return most;
}

absl::StatusOr<std::vector<MemoryGroup>> MakeSweep(const InitiatorOptions& options) {
  std::vector<Case> cases;
  for (const Op op : options.ops) {
    for (const Layout layout : options.layouts) {
      for (const uint64_t depth : options.depths) {
        for (const uint64_t threads : options.threads) {
          for (const uint64_t batch : options.batches) {
            for (const uint64_t block : options.blocks) {
              HIXLD_ASSIGN_OR_RETURN(const Plan plan,
                                     MakePlan(options, op, layout, block, batch, threads));
              cases.push_back({.plan = plan, .depth = depth});
            }
          }
        }
      }
    }
  }
  std::vector<MemoryGroup> groups;
  std::vector<std::optional<Path>> paths(options.paths.begin(), options.paths.end());
  if (paths.empty()) paths.push_back(std::nullopt);
  for (const std::optional<Path> path : paths) AddGroups(options, path, cases, &groups);
  return groups;
}

}  // namespace hixld::bench
