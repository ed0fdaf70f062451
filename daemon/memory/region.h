// Registered memory and the tables that answer "may this engine touch this range?".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/mutex.h"
#include "transports/memory_access.h"

namespace hixld {

enum class MemoryType : uint8_t { kDevice = 0, kHost = 1 };  // contract 1.1

// As messages call it.
inline absl::string_view MemoryTypeName(MemoryType type) {
  return type == MemoryType::kDevice ? "device" : "host";
}

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

// "0x7f0000001000+4096".
std::string DescribeRange(uint64_t address, uint64_t length);
// "region 0x7f0000001000+4096 (host)".
std::string DescribeRegion(const Region& region);

// The part of one range that lies in one region.
struct RegionPart {
  std::shared_ptr<const Region> region;
  uint64_t offset = 0;  // in region->access
  uint64_t length = 0;
};

// Regions of one type, sorted by address and without overlap, in chunks of bounded size:
// snapshots share the chunks that did not change, so that adding one region to a hundred thousand
// copies one chunk and not all of them.
class RegionRun {
 public:
  using RegionPtr = std::shared_ptr<const Region>;

  // The region that holds `address`, or nullptr.
  const RegionPtr* Find(uint64_t address) const;
  // The last region that starts at or before `address`, and the first one after it; nullptr where
  // there is none.
  const RegionPtr* AtOrBefore(uint64_t address) const;
  const RegionPtr* After(uint64_t address) const;

  // Both take lists sorted by address. `added` must not overlap what is there.
  RegionRun With(const std::vector<RegionPtr>& added) const;
  RegionRun Without(const std::vector<uint64_t>& addresses) const;

  size_t size() const { return size_; }
  void AppendTo(std::vector<RegionPtr>* out) const;

 private:
  struct Chunk {
    std::vector<uint64_t> addresses;
    std::vector<RegionPtr> regions;
  };

  size_t ChunkFor(uint64_t address) const;
  void PushChunk(std::shared_ptr<const Chunk> chunk);
  void PushSplit(std::vector<RegionPtr> regions);

  std::vector<uint64_t> first_;  // the lowest address of each chunk
  std::vector<std::shared_ptr<const Chunk>> chunks_;
  size_t size_ = 0;
};

// An immutable snapshot of one engine's regions. Look-ups take no lock.
class RegionSnapshot {
 public:
  explicit RegionSnapshot(std::vector<std::shared_ptr<const Region>> regions, uint64_t version);
  RegionSnapshot(RegionRun device, RegionRun host, uint64_t version);

  // Splits [address, address + length) into parts of registered regions: it may lie inside one
  // region or span several adjacent ones (contract 1.6). Otherwise PARAM_INVALID naming the range
  // and the nearest region. Ranges of length 0, at address 0 or that overflow are PARAM_INVALID.
  // `parts` is appended to, and unchanged after an error.
  absl::Status Resolve(uint64_t address, uint64_t length, std::vector<RegionPart>* parts) const;

  // Fast path of Resolve: the one region that holds the whole range, or nullptr. No reference is
  // taken; the caller holds the snapshot.
  const Region* Find(uint64_t address, uint64_t length) const;

  // All regions: the device ones by address, then the host ones by address.
  std::vector<std::shared_ptr<const Region>> regions() const;
  size_t size() const { return runs_[0].size() + runs_[1].size(); }
  uint64_t version() const { return version_; }
  const RegionRun& run(MemoryType type) const { return runs_[static_cast<size_t>(type)]; }

 private:
  absl::Status NotRegistered(uint64_t address, uint64_t length, uint64_t missing) const;

  // Host and device regions may overlap each other, so each type has its own run.
  RegionRun runs_[2];
  const uint64_t version_;
};

// One engine's regions. Writers take the lock; readers load the snapshot.
class RegionTable {
 public:
  RegionTable();

  struct Request {
    uint64_t address = 0;
    uint64_t length = 0;
    MemoryType type = MemoryType::kHost;
    std::shared_ptr<MemoryAccess> access;
    uint64_t access_offset = 0;
  };
  // Adds all or none; yields one region per request, in order. The same (address, length, type)
  // as an existing region, or as an earlier request, yields that one (contract 1.6); partial
  // overlap with a region of the same type is PARAM_INVALID naming both; more than `max_regions`
  // is RESOURCE_EXHAUSTED naming limits.max_regions_per_session.
  absl::StatusOr<std::vector<std::shared_ptr<const Region>>> Add(std::vector<Request> requests,
                                                                 size_t max_regions);
  // Removes what it knows; returns how many ids were unknown.
  size_t Remove(const std::vector<uint64_t>& ids);
  void Clear();

  std::shared_ptr<const RegionSnapshot> Load() const;

 private:
  struct Place {
    uint64_t address;
    MemoryType type;
  };

  void Publish(std::shared_ptr<const RegionSnapshot> snapshot);

  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, Place> by_id_ ABSL_GUARDED_BY(mutex_);
  // Written under `mutex_`, read without it: swapped with std::atomic_store and atomic_load, whose
  // locks the thread sanitizer understands, unlike those of std::atomic<std::shared_ptr>.
  std::shared_ptr<const RegionSnapshot> snapshot_;
};

}  // namespace hixld
