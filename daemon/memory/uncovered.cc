#include "daemon/memory/uncovered.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

constexpr MemoryType kTypes[] = {MemoryType::kDevice, MemoryType::kHost};

// Sorts the ranges and joins those that overlap or touch.
std::vector<AddressRange> Joined(std::vector<AddressRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.address < b.address; });
  std::vector<AddressRange> joined;
  for (const AddressRange& range : ranges) {
    if (!joined.empty() && range.address <= joined.back().end()) {
      AddressRange& last = joined.back();
      last.length = std::max(last.end(), range.end()) - last.address;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

// Where the next region after `address` begins, at most `end`.
uint64_t NextRegion(const RegionSnapshot& regions, uint64_t address, uint64_t end) {
  for (const MemoryType type : kTypes) {
    const RegionRun::RegionPtr* after = regions.run(type).After(address);
    if (after != nullptr) end = std::min(end, (*after)->address);
  }
  return end;
}

absl::Status CheckGranted(const std::vector<AddressRange>& ranges) {
  if (ranges.empty() || ranges.size() > RelayGrants::kMaxRanges) {
    return ResourceExhausted(
        absl::StrCat("a relayed transfer names ", ranges.size(), " ranges of unregistered memory"),
        {.object = "relayed transfer",
         .limit = absl::StrCat(RelayGrants::kMaxRanges, " ranges that do not touch each other")});
  }
  for (const AddressRange& range : ranges) {
    if (range.address != 0 && range.length != 0 && range.end() > range.address) continue;
    return ParamInvalid(absl::StrCat("range ", DescribeRange(range.address, range.length),
                                     " of a relayed transfer cannot be"),
                        {.object = "relayed transfer",
                         .allowed = "address > 0, length > 0, address + length below 2^64"});
  }
  return absl::OkStatus();
}

}  // namespace

const Region* RegionAt(const RegionSnapshot& regions, uint64_t address) {
  for (const MemoryType type : kTypes) {
    const RegionRun::RegionPtr* region = regions.run(type).Find(address);
    if (region != nullptr) return region->get();
  }
  return nullptr;
}

std::vector<AddressRange> Uncovered(const RegionSnapshot& regions,
                                    std::vector<AddressRange> ranges) {
  std::vector<AddressRange> gaps;
  for (const AddressRange& range : Joined(std::move(ranges))) {
    uint64_t at = range.address;
    while (at < range.end()) {
      if (const Region* region = RegionAt(regions, at)) {
        at = region->end();
        continue;
      }
      const uint64_t next = NextRegion(regions, at, range.end());
      gaps.push_back({.address = at, .length = next - at});
      at = next;
    }
  }
  return gaps;
}

std::shared_ptr<const RegionSnapshot> WithUncovered(
    const RegionSnapshot& regions, absl::Span<const AddressRange> gaps,
    const std::function<std::shared_ptr<MemoryAccess>(const AddressRange&)>& access) {
  std::vector<std::shared_ptr<const Region>> added;
  added.reserve(gaps.size());
  for (const AddressRange& gap : gaps) {
    auto region = std::make_shared<Region>();
    region->address = gap.address;
    region->length = gap.length;
    region->type = MemoryType::kHost;
    region->access = access(gap);
    added.push_back(std::move(region));
  }
  return std::make_shared<const RegionSnapshot>(regions.run(MemoryType::kDevice),
                                                regions.run(MemoryType::kHost).With(added),
                                                regions.version());
}

absl::StatusOr<uint64_t> RelayGrants::Open(std::vector<AddressRange> ranges,
                                           const MakeAccess& access) {
  HIXLD_RETURN_IF_ERROR(CheckGranted(ranges));
  MutexLock lock(&mutex_);
  if (open_.size() >= kMaxOpen) {
    return ResourceExhausted(absl::StrCat(open_.size(), " transfers of the channel are relayed"),
                             {.object = "relayed transfer",
                              .limit = absl::StrCat(kMaxOpen, " transfers of one channel")});
  }
  const uint64_t id = next_id_++;
  open_.emplace(id, std::move(ranges));
  Publish(access);
  return id;
}

void RelayGrants::Close(uint64_t id, const MakeAccess& access) {
  MutexLock lock(&mutex_);
  if (open_.erase(id) != 0) Publish(access);
}

std::shared_ptr<const RegionSnapshot> RelayGrants::Load() const {
  return std::atomic_load_explicit(&published_, std::memory_order_acquire);
}

void RelayGrants::Publish(const MakeAccess& access) {
  std::vector<AddressRange> all;
  for (const auto& [id, ranges] : open_) all.insert(all.end(), ranges.begin(), ranges.end());
  std::shared_ptr<const RegionSnapshot> granted;
  if (!all.empty()) {
    granted = WithUncovered(RegionSnapshot({}, 0), Joined(std::move(all)), access);
  }
  std::atomic_store_explicit(&published_, std::move(granted), std::memory_order_release);
}

}  // namespace hixld
