// Where this process sees the device memory that it owns: what the daemon's copy commands name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"

namespace hixld::client {

// Ranges never overlap: a device's addresses are its own, and each buffer has its own. Thread-safe.
class DeviceMemory {
 public:
  // `length` bytes that the device knows by `device_address` are mapped at `mapped_address`.
  void Add(uint64_t device_address, uint64_t length, uint64_t mapped_address);
  void Remove(uint64_t device_address);
  // The mapped address, if all `length` bytes lie in one range.
  std::optional<uint64_t> Find(uint64_t device_address, uint64_t length) const;

 private:
  struct Range {
    uint64_t length;
    uint64_t mapped_address;
  };
  mutable Mutex mutex_;
  std::map<uint64_t, Range> ranges_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
