// Registering memory with a device, whatever backs it, and counting that.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transports/memory_access.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma {

// Of one transport. Outlived by nothing that counts: registrations share it.
struct RegistrationCounters {
  std::atomic<uint64_t> regions{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> made{0};
  std::atomic<uint64_t> failed{0};
};

// Whether a network card can get at this memory at all.
bool Registrable(const MemoryAccess& access);

// Registers bytes [offset, offset + length) of the memory. `*address` is what work requests call
// its first byte. Counted as long as the region lives.
absl::StatusOr<std::unique_ptr<VerbsRegion>> RegisterPart(
    VerbsDomain* domain, const std::shared_ptr<RegistrationCounters>& counters,
    const MemoryAccess& access, uint64_t offset, uint64_t length, int access_flags,
    uint64_t* address);

}  // namespace hixld::rdma
