#include "client/cpp/device_memory.h"

#include <iterator>

namespace hixld::client {

void DeviceMemory::Add(uint64_t device_address, uint64_t length, uint64_t mapped_address) {
  MutexLock lock(&mutex_);
  ranges_[device_address] = {.length = length, .mapped_address = mapped_address};
}

void DeviceMemory::Remove(uint64_t device_address) {
  MutexLock lock(&mutex_);
  ranges_.erase(device_address);
}

std::optional<uint64_t> DeviceMemory::Find(uint64_t device_address, uint64_t length) const {
  MutexLock lock(&mutex_);
  const auto next = ranges_.upper_bound(device_address);
  if (next == ranges_.begin()) return std::nullopt;
  const auto& [start, range] = *std::prev(next);
  const uint64_t offset = device_address - start;
  if (offset >= range.length || length > range.length - offset) return std::nullopt;
  return range.mapped_address + offset;
}

}  // namespace hixld::client
