// The cases of a sweep, in the order in which they run.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/bench/options.h"
#include "client/bench/report.h"

namespace hixld::bench {

// Cases that share memory on both sides, allocated and connected once.
struct MemoryGroup {
  MemoryKind memory;
  MemoryKind target_memory;
  std::optional<Path> path;
  std::vector<Case> cases;

  // What the largest case needs on each side.
  uint64_t RegionBytes() const;
};

// Groups of one path come one after the other. PARAM_INVALID: mix with fewer than two transfers in
// a pass.
absl::StatusOr<std::vector<MemoryGroup>> MakeSweep(const InitiatorOptions& options);

}  // namespace hixld::bench
