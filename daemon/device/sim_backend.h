// The `sim` backend: an NPU imitated on the CPU. Its memory is daemon memory under addresses that
// mean nothing to a CPU, and is reached through an asynchronous copy engine only, as on a real
// device; so everything above it runs the same code as it would there.
#pragma once

#include <memory>
#include <string>

#include "daemon/device/backend.h"
#include "daemon/memory/arena_pool.h"

namespace hixld {

struct SimBackendOptions {
  // Devices 0 .. count - 1.
  int32_t count = 2;
  uint64_t memory_bytes = uint64_t{1} << 30;  // of each device
  std::string product = "Ascend910B3";
  // Refuse what the product refuses; the product must be a known one.
  bool product_limits = false;
  // Bytes per second of each device's copy engine; 0: as fast as the CPU copies.
  uint64_t copy_bandwidth = 0;
  // kClient: as if only the owner's process could reach its memory, like a backend that cannot
  // import it.
  ExecutionPlace place = ExecutionPlace::kDaemon;
  // Shared with the other pools whose arenas clients map.
  ArenaIds arena_ids;
};

// Allocations and accesses may outlive the backend; copies that are queued then still run.
std::unique_ptr<DeviceBackend> CreateSimBackend(SimBackendOptions options);

}  // namespace hixld
