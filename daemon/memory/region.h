// Registered memory and the tables that answer "may this engine touch this range?".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "transports/memory_access.h"

namespace hixld {

enum class MemoryType : uint8_t { kDevice = 0, kHost = 1 };  // contract 1.1

// One registered piece of memory. Immutable; kept alive by the tables and by transfers in flight.
struct Region {
  uint64_t id = 0;
  // Where the client sees it.
  uint64_t address = 0;
  uint64_t length = 0;
  MemoryType type = MemoryType::kHost;
  // How the daemon sees it; the region starts at `access_offset` in it.
  std::shared_ptr<MemoryAccess> access;
  uint64_t access_offset = 0;

  uint64_t end() const { return address + length; }
};

// "region 0x7f0000001000+4096 (host)".
std::string DescribeRange(uint64_t address, uint64_t length);

// The part of one range that lies in one region.
struct RegionPart {
  std::shared_ptr<const Region> region;
  uint64_t offset = 0;  // in region->access
  uint64_t length = 0;
};

// An immutable snapshot of one engine's regions, sorted by address. Look-ups take no lock.
class RegionSnapshot {
 public:
  explicit RegionSnapshot(std::vector<std::shared_ptr<const Region>> regions, uint64_t version);

  // Splits [address, address + length) into parts of registered regions: it may lie inside one
  // region or span several adjacent ones (contract 1.6). Otherwise PARAM_INVALID naming the range
  // and the nearest region. Ranges of length 0, at address 0 or that overflow are PARAM_INVALID.
  absl::Status Resolve(uint64_t address, uint64_t length, std::vector<RegionPart>* parts) const;

  // Fast path of Resolve: the one region that holds the whole range, or nullptr. No reference is
  // taken; the caller holds the snapshot.
  const Region* Find(uint64_t address, uint64_t length) const;

  const std::vector<std::shared_ptr<const Region>>& regions() const { return regions_; }
  uint64_t version() const { return version_; }

 private:
  // Host and device regions may overlap each other, so each type has its own sorted run.
  std::vector<std::shared_ptr<const Region>> regions_;
  std::vector<const Region*> by_address_[2];
  const uint64_t version_;
};

// One engine's regions. Writers take the lock; readers load the snapshot.
class RegionTable {
 public:
  RegionTable();

  // Adds all or none. The same (address, length, type) as an existing region yields that one
  // (contract 1.6); partial overlap with a region of the same type is PARAM_INVALID naming both;
  // more than `max_regions` is RESOURCE_EXHAUSTED naming limits.max_regions_per_session.
  // `make` is called for each new region only, outside the lock's critical look-ups.
  struct Request {
    uint64_t address = 0;
    uint64_t length = 0;
    MemoryType type = MemoryType::kHost;
    std::shared_ptr<MemoryAccess> access;
    uint64_t access_offset = 0;
  };
  absl::StatusOr<std::vector<std::shared_ptr<const Region>>> Add(std::vector<Request> requests,
                                                                 size_t max_regions);
  // Removes what it knows; returns how many ids were unknown.
  size_t Remove(const std::vector<uint64_t>& ids);
  void Clear();

  std::shared_ptr<const RegionSnapshot> Load() const;

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const RegionSnapshot> snapshot_;  // swapped with std::atomic_store/load
};

}  // namespace hixld
