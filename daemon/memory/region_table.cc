#include <algorithm>
#include <atomic>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/memory/region.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

using RegionPtr = std::shared_ptr<const Region>;

absl::Status CheckRange(uint64_t address, uint64_t length) {
  if (address != 0 && length != 0 && address + length > address) return absl::OkStatus();
  const char* reason = address == 0  ? "starts at address 0"
                       : length == 0 ? "has length 0"
                                     : "goes beyond the end of the address space";
  return ParamInvalid(absl::StrCat("range ", DescribeRange(address, length), " ", reason),
                      {.object = absl::StrCat("range ", DescribeRange(address, length)),
                       .allowed = "address > 0, length > 0, address + length below 2^64"});
}

// Where the range and a region touch: how far the nearer edges are apart.
uint64_t Distance(const Region& region, uint64_t address) {
  if (address < region.address) return region.address - address;
  return address < region.end() ? 0 : address - region.end() + 1;
}

absl::Status OverlapError(const Region& asked, const Region& existing) {
  return ParamInvalid(
      absl::StrCat(DescribeRegion(asked), " partly overlaps ", DescribeRegion(existing)),
      {.object = DescribeRegion(asked),
       .allowed = "the same range again, or one that does not overlap a region of its type"});
}

std::vector<RegionPtr> OfType(const std::vector<RegionPtr>& regions, MemoryType type) {
  std::vector<RegionPtr> result;
  for (const RegionPtr& region : regions) {
    if (region->type == type) result.push_back(region);
  }
  return result;
}

bool ByTypeThenAddress(const RegionPtr& a, const RegionPtr& b) {
  if (a->type != b->type) return a->type < b->type;
  if (a->address != b->address) return a->address < b->address;
  return a->length < b->length;
}

bool SameRange(const Region& a, const Region& b) {
  return a.type == b.type && a.address == b.address && a.length == b.length;
}

// The existing region of the same range, nullptr when the range is free, or an overlap error.
absl::StatusOr<RegionPtr> Match(const RegionRun& run, const Region& asked) {
  const RegionPtr* before = run.AtOrBefore(asked.address);
  if (before != nullptr) {
    if (SameRange(**before, asked)) return *before;
    if ((*before)->end() > asked.address) return OverlapError(asked, **before);
  }
  const RegionPtr* after = run.After(asked.address);
  if (after != nullptr && (*after)->address < asked.end()) return OverlapError(asked, **after);
  return RegionPtr();
}

}  // namespace

std::string DescribeRange(uint64_t address, uint64_t length) {
  return absl::StrFormat("0x%x+%d", address, length);
}

std::string DescribeRegion(const Region& region) {
  return absl::StrCat("region ", DescribeRange(region.address, region.length), " (",
                      MemoryTypeName(region.type), ")");
}

RegionSnapshot::RegionSnapshot(std::vector<RegionPtr> regions, uint64_t version)
    : version_(version) {
  std::sort(regions.begin(), regions.end(), ByTypeThenAddress);
  for (MemoryType type : {MemoryType::kDevice, MemoryType::kHost}) {
    RegionRun& run = runs_[static_cast<size_t>(type)];
    const std::vector<RegionPtr> added = OfType(regions, type);
    if (!added.empty()) run = run.With(added);
  }
}

RegionSnapshot::RegionSnapshot(RegionRun device, RegionRun host, uint64_t version)
    : runs_{std::move(device), std::move(host)}, version_(version) {}

std::vector<RegionPtr> RegionSnapshot::regions() const {
  std::vector<RegionPtr> result;
  result.reserve(size());
  for (const RegionRun& run : runs_) run.AppendTo(&result);
  return result;
}

const Region* RegionSnapshot::Find(uint64_t address, uint64_t length) const {
  if (length == 0) return nullptr;
  for (const RegionRun& run : runs_) {
    const RegionPtr* region = run.Find(address);
    // Written so that no sum can overflow.
    if (region != nullptr && length <= (*region)->length - (address - (*region)->address)) {
      return region->get();
    }
  }
  return nullptr;
}

absl::Status RegionSnapshot::Resolve(uint64_t address, uint64_t length,
                                     std::vector<RegionPart>* parts) const {
  HIXLD_RETURN_IF_ERROR(CheckRange(address, length));
  const size_t parts_before = parts->size();
  const uint64_t end = address + length;
  uint64_t at = address;
  while (at < end) {
    // Of the regions of both types that hold `at`, the one that reaches furthest.
    const RegionPtr* best = nullptr;
    for (const RegionRun& run : runs_) {
      const RegionPtr* region = run.Find(at);
      if (region != nullptr && (best == nullptr || (*region)->end() > (*best)->end())) {
        best = region;
      }
    }
    if (best == nullptr) {
      parts->resize(parts_before);
      return NotRegistered(address, length, at);
    }
    const Region& region = **best;
    const uint64_t part_end = std::min(end, region.end());
    parts->push_back({.region = *best,
                      .offset = region.access_offset + (at - region.address),
                      .length = part_end - at});
    at = part_end;
  }
  return absl::OkStatus();
}

absl::Status RegionSnapshot::NotRegistered(uint64_t address, uint64_t length,
                                           uint64_t missing) const {
  const Region* nearest = nullptr;
  for (const RegionRun& run : runs_) {
    for (const RegionPtr* candidate : {run.AtOrBefore(missing), run.After(missing)}) {
      if (candidate == nullptr) continue;
      if (nearest == nullptr || Distance(**candidate, missing) < Distance(*nearest, missing)) {
        nearest = candidate->get();
      }
    }
  }
  std::string message =
      absl::StrCat("range ", DescribeRange(address, length), " is not registered");
  if (missing != address) absl::StrAppendFormat(&message, " from 0x%x on", missing);
  absl::StrAppend(&message, nearest == nullptr
                                ? "; the engine has no regions"
                                : absl::StrCat("; the nearest is ", DescribeRegion(*nearest)));
  return ParamInvalid(message, {.object = absl::StrCat("range ", DescribeRange(address, length)),
                                .allowed = "ranges inside registered regions"});
}

RegionTable::RegionTable()
    : snapshot_(std::make_shared<RegionSnapshot>(std::vector<RegionPtr>(), 0)) {}

std::shared_ptr<const RegionSnapshot> RegionTable::Load() const {
  return std::atomic_load_explicit(&snapshot_, std::memory_order_acquire);
}

void RegionTable::Publish(std::shared_ptr<const RegionSnapshot> snapshot) {
  std::atomic_store_explicit(&snapshot_, std::move(snapshot), std::memory_order_release);
}

absl::StatusOr<std::vector<RegionPtr>> RegionTable::Add(std::vector<Request> requests,
                                                        size_t max_regions) {
  std::vector<std::shared_ptr<Region>> asked;
  asked.reserve(requests.size());
  for (Request& request : requests) {
    HIXLD_RETURN_IF_ERROR(CheckRange(request.address, request.length));
    auto region = std::make_shared<Region>();
    region->address = request.address;
    region->length = request.length;
    region->type = request.type;
    region->access = std::move(request.access);
    region->access_offset = request.access_offset;
    asked.push_back(std::move(region));
  }
  std::vector<size_t> order(asked.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&asked](size_t a, size_t b) {
    if (ByTypeThenAddress(asked[a], asked[b])) return true;
    if (ByTypeThenAddress(asked[b], asked[a])) return false;
    return a < b;
  });

  MutexLock lock(&mutex_);
  const std::shared_ptr<const RegionSnapshot> old = Load();
  std::vector<RegionPtr> result(asked.size());
  std::vector<std::shared_ptr<Region>> added;
  for (const size_t index : order) {
    const std::shared_ptr<Region>& region = asked[index];
    if (!added.empty() && added.back()->type == region->type) {
      if (SameRange(*added.back(), *region)) {
        result[index] = added.back();
        continue;
      }
      if (added.back()->end() > region->address) return OverlapError(*region, *added.back());
    }
    HIXLD_ASSIGN_OR_RETURN(RegionPtr existing, Match(old->run(region->type), *region));
    if (existing != nullptr) {
      result[index] = std::move(existing);
      continue;
    }
    result[index] = region;
    added.push_back(region);
  }
  if (added.empty()) return result;
  if (old->size() + added.size() > max_regions) {
    return ResourceExhausted(absl::StrCat("registering ", added.size(), " regions beside ",
                                          old->size(), " exceeds the limit of ", max_regions),
                             {.object = "regions",
                              .limit = absl::StrCat(max_regions, " regions"),
                              .option = "limits.max_regions_per_session"});
  }
  // Ids follow the order of the requests, not that of the addresses.
  for (size_t i = 0; i < asked.size(); ++i) {
    if (result[i] == asked[i]) asked[i]->id = next_id_++;
  }
  std::vector<RegionPtr> of_type[2];
  for (const auto& region : added) {
    by_id_.emplace(region->id, Place{region->address, region->type});
    of_type[static_cast<size_t>(region->type)].push_back(region);
  }
  RegionRun runs[2] = {old->run(MemoryType::kDevice), old->run(MemoryType::kHost)};
  for (size_t type = 0; type < 2; ++type) {
    if (!of_type[type].empty()) runs[type] = runs[type].With(of_type[type]);
  }
  Publish(
      std::make_shared<RegionSnapshot>(std::move(runs[0]), std::move(runs[1]), old->version() + 1));
  return result;
}

size_t RegionTable::Remove(const std::vector<uint64_t>& ids) {
  size_t unknown = 0;
  // What is removed dies after the lock is released: its memory may take long to unmap.
  std::shared_ptr<const RegionSnapshot> old;
  MutexLock lock(&mutex_);
  std::vector<uint64_t> addresses[2];
  for (const uint64_t id : ids) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) {
      ++unknown;
      continue;
    }
    addresses[static_cast<size_t>(found->second.type)].push_back(found->second.address);
    by_id_.erase(found);
  }
  if (addresses[0].empty() && addresses[1].empty()) return unknown;
  old = Load();
  RegionRun runs[2] = {old->run(MemoryType::kDevice), old->run(MemoryType::kHost)};
  for (size_t type = 0; type < 2; ++type) {
    if (addresses[type].empty()) continue;
    std::sort(addresses[type].begin(), addresses[type].end());
    runs[type] = runs[type].Without(addresses[type]);
  }
  Publish(
      std::make_shared<RegionSnapshot>(std::move(runs[0]), std::move(runs[1]), old->version() + 1));
  return unknown;
}

void RegionTable::Clear() {
  std::shared_ptr<const RegionSnapshot> old;
  MutexLock lock(&mutex_);
  old = Load();
  by_id_.clear();
  Publish(std::make_shared<RegionSnapshot>(std::vector<RegionPtr>(), old->version() + 1));
}

}  // namespace hixld
