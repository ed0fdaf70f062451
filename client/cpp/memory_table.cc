#include "client/cpp/memory_table.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixld::client {
namespace {

// Handles are unique in the process, so that one of another engine is an unknown one here.
std::atomic<uint64_t> g_next_handle{0x1000};

std::string Describe(const MemoryRange& range) {
  return absl::StrFormat("%s memory 0x%x+%u", range.kind == MemoryKind::kDevice ? "device" : "host",
                         range.address, range.length);
}

absl::Status Bad(const MemoryRange& range, const std::string& reason, const std::string& allowed) {
  return ParamInvalid(
      absl::StrCat(Describe(range), " cannot be registered: ", reason),
      {.object = Describe(range), .allowed = allowed, .text_code = kRegistrationFailed});
}

}  // namespace

absl::Status MemoryTable::Check(const MemoryRange& range) const {
  if (range.address == 0) return Bad(range, "the address is 0", "an address above 0");
  if (range.length == 0) return Bad(range, "the length is 0", "1 byte and more");
  if (range.length > UINT64_MAX - range.address) {
    return Bad(range, "address and length overflow", "a range that ends below 2^64");
  }
  if (Find(range) != 0) return absl::OkStatus();
  const Index& index = IndexOf(range.kind);
  auto next = index.lower_bound(range.address + range.length);
  if (next == index.begin()) return absl::OkStatus();
  // Registered ranges do not overlap each other, so only the last one that starts before our end
  // can overlap us.
  const MemoryRange& other = registrations_.at(std::prev(next)->second).range;
  if (other.address + other.length <= range.address) return absl::OkStatus();
  return Bad(range, absl::StrCat("it overlaps ", Describe(other)),
             "the very same range, or one that touches no registered range of its type");
}

uint64_t MemoryTable::Find(const MemoryRange& range) const {
  const Index& index = IndexOf(range.kind);
  const auto found = index.find(range.address);
  if (found == index.end()) return 0;
  return registrations_.at(found->second).range == range ? found->second : 0;
}

uint64_t MemoryTable::Add(Registration registration) {
  const uint64_t handle = g_next_handle.fetch_add(1, std::memory_order_relaxed);
  const MemoryRange& range = registration.range;
  (range.kind == MemoryKind::kDevice ? device_ : host_)[range.address] = handle;
  registrations_.emplace(handle, std::move(registration));
  return handle;
}

Registration* MemoryTable::Get(uint64_t handle) {
  const auto found = registrations_.find(handle);
  return found == registrations_.end() ? nullptr : &found->second;
}

std::vector<UsableRange> MemoryTable::UsableHostRanges() const {
  std::vector<UsableRange> ranges;
  ranges.reserve(host_.size());
  for (const auto& [address, handle] : host_) {
    const Registration& entry = registrations_.at(handle);
    if (entry.leaving || entry.region_id == 0) continue;
    const auto next = device_.lower_bound(address + entry.range.length);
    if (next != device_.begin()) {
      const MemoryRange& device = registrations_.at(std::prev(next)->second).range;
      if (device.address + device.length > address) continue;
    }
    ranges.push_back({.range = entry.range, .pool = entry.backing.arena != nullptr});
  }
  return ranges;
}

void MemoryTable::Remove(uint64_t handle) {
  const auto found = registrations_.find(handle);
  if (found == registrations_.end()) return;
  const MemoryRange& range = found->second.range;
  (range.kind == MemoryKind::kDevice ? device_ : host_).erase(range.address);
  registrations_.erase(found);
}

}  // namespace hixld::client
