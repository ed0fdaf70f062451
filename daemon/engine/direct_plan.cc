#include "daemon/engine/direct_plan.h"

#include <unordered_map>
#include <vector>

namespace hixld {
namespace {

bool OverlapsDevice(const RegionSnapshot& snapshot, const Region& region) {
  const auto* device = snapshot.run(MemoryType::kDevice).AtOrBefore(region.end() - 1);
  return device != nullptr && (*device)->end() > region.address;
}

class Planner {
 public:
  Planner(DirectGate::Plan* plan, bool here) : plan_(plan), here_(here) {}

  void Add(const Region& region) {
    direct::Region entry = {.address = region.address, .length = region.length};
    if (const auto file = region.access->shared_file()) {
      entry.kind = direct::RegionKind::kFile;
      entry.file = NumberOf(*file);
      entry.file_offset = file->offset + region.access_offset;
    } else if (here_) {
      entry.kind = direct::RegionKind::kHere;
    } else if (const auto owner = region.access->owner_process()) {
      entry.kind = direct::RegionKind::kProcess;
      plan_->target_pid = owner->pid;
      plan_->target_pidfd = owner->pidfd;
    } else {
      return;
    }
    plan_->regions.push_back(entry);
  }

 private:
  // The descriptors of all regions are open at once, so that each has a number of its own.
  uint32_t NumberOf(const MemoryAccess::SharedFile& file) {
    const auto [found, added] =
        numbers_.emplace(file.fd, static_cast<uint32_t>(plan_->files.size()));
    if (added) plan_->files.push_back({.fd = file.fd, .size = file.size});
    return found->second;
  }

  DirectGate::Plan* const plan_;
  const bool here_;
  std::unordered_map<int, uint32_t> numbers_;
};

}  // namespace

DirectGate::Plan PlanDirect(const RegionSnapshot& snapshot, bool here) {
  DirectGate::Plan plan;
  std::vector<RegionRun::RegionPtr> host;
  snapshot.run(MemoryType::kHost).AppendTo(&host);
  plan.regions.reserve(host.size());
  Planner planner(&plan, here);
  for (const auto& region : host) {
    if (!OverlapsDevice(snapshot, *region)) planner.Add(*region);
  }
  return plan;
}

}  // namespace hixld
