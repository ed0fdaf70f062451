// Ranges of a client's memory that it has not registered, for transfers that go through its relay
// (contract 1.11).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/memory/region.h"
#include "proto/base/mutex.h"

namespace hixld {

struct AddressRange {
  uint64_t address = 0;
  uint64_t length = 0;

  uint64_t end() const { return address + length; }
};

// What of `ranges` no region of the snapshot holds: sorted, without overlap, neighbours joined. The
// ranges are not empty and do not overflow.
std::vector<AddressRange> Uncovered(const RegionSnapshot& regions,
                                    std::vector<AddressRange> ranges);

// The snapshot with a host region more for each of `gaps`, which are Uncovered in it. `access`
// gives each its access; it may give nullptr where nobody will use it. Such regions have the id 0.
std::shared_ptr<const RegionSnapshot> WithUncovered(
    const RegionSnapshot& regions, absl::Span<const AddressRange> gaps,
    const std::function<std::shared_ptr<MemoryAccess>(const AddressRange&)>& access);

// The region, of either type, that holds the address, or nullptr. The caller holds the snapshot.
const Region* RegionAt(const RegionSnapshot& regions, uint64_t address);

// Ranges that one channel's relayed transfers may use at the target, beside registered memory.
// Thread-safe; readers take no lock.
class RelayGrants {
 public:
  // Transfers of one channel that are relayed at a time, and ranges of each.
  static constexpr size_t kMaxOpen = 1024;
  static constexpr size_t kMaxRanges = 32'768;
  using MakeAccess = std::function<std::shared_ptr<MemoryAccess>(const AddressRange&)>;

  // Returns the grant's id. PARAM_INVALID for ranges that cannot be, RESOURCE_EXHAUSTED for too
  // many.
  absl::StatusOr<uint64_t> Open(std::vector<AddressRange> ranges, const MakeAccess& access);
  void Close(uint64_t id, const MakeAccess& access);
  // What is granted now; nullptr when nothing is.
  std::shared_ptr<const RegionSnapshot> Load() const;

 private:
  void Publish(const MakeAccess& access) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, std::vector<AddressRange>> open_ ABSL_GUARDED_BY(mutex_);
  // Written under `mutex_`, read without it, as in RegionTable.
  std::shared_ptr<const RegionSnapshot> published_;
};

}  // namespace hixld
