// What an accelerator must offer. A backend with a runtime of its own loads it with dlopen, so that
// nothing needs it to start; device_manager.cc is where backends are registered.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/memory/arena_pool.h"
#include "proto/base/fd.h"
#include "transports/memory_access.h"

namespace hixld {

// Where an operation on device memory runs. The daemon is the default; a backend whose memory
// cannot be imported by another process has it done in the owner's process by command.
enum class ExecutionPlace : uint8_t { kDaemon, kClient };

struct DeviceCapabilities {
  bool allocate = false;
  bool copy_host_device = false;
  bool copy_device_device = false;  // between two devices, without the host
  bool export_shareable = false;    // a descriptor or key another process can import
  bool import_shareable = false;
  bool host_mappable = false;  // a host process can map device memory
  bool dma_buf = false;        // for RDMA registration
  ExecutionPlace place = ExecutionPlace::kDaemon;
};

// "allocate", "copy_host_device", ...: those that are there.
std::vector<std::string> CapabilityNames(const DeviceCapabilities& capabilities);

struct DeviceDescription {
  int32_t device_id = 0;  // physical
  std::string backend;
  std::string product;  // "Ascend910B3" and the like; "host" for the host backend
  // What the product refuses is refused here.
  bool product_limits = false;
  uint64_t memory_bytes = 0;
  uint64_t memory_used = 0;
  DeviceCapabilities capabilities;
};

// Marks an error as the device layer's, so that it is told apart from hixld's own: the message
// begins with "device layer (BACKEND, device N): ".
absl::Status DeviceLayerError(absl::string_view backend, int32_t device_id,
                              const absl::Status& status);

// One allocation of device memory; freed when the last reference goes, which may take long.
class DeviceAllocation {
 public:
  virtual ~DeviceAllocation() = default;
  // The address by which the device knows it; never 0.
  virtual uint64_t device_address() const = 0;
  virtual uint64_t size() const = 0;
  // Reads and writes go through the device's copy engine.
  virtual std::shared_ptr<MemoryAccess> access() = 0;
  // What a client process maps to see the memory, where host_mappable; else nullptr. It shows
  // memory of the allocation's owner only.
  virtual std::shared_ptr<const Arena> arena() const = 0;
  virtual uint64_t arena_offset() const = 0;
  // A descriptor of that, for another process. UNSUPPORTED where there is none.
  virtual absl::StatusOr<UniqueFd> ExportFd() const = 0;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual absl::string_view name() const = 0;
  virtual std::vector<DeviceDescription> Devices() const = 0;
  // Pools of the daemon's own that stand for device memory, for those who watch them; they live as
  // long as the backend. Empty where the memory is the device's.
  virtual std::vector<const ArenaPool*> Pools() const { return {}; }
  // Memory for `owner` (a session). RESOURCE_EXHAUSTED when the device's memory is full,
  // PARAM_INVALID for an unknown device (message lists the allowed ids), UNSUPPORTED where the
  // capability is missing. `alignment` is a power of two, or 0. May block.
  virtual absl::StatusOr<std::unique_ptr<DeviceAllocation>> Allocate(uint64_t owner,
                                                                     int32_t device_id,
                                                                     uint64_t size,
                                                                     uint64_t alignment) = 0;
  // Copies between two allocations of this backend on the device's own engine, asynchronously;
  // both accesses must live until `done`. UNSUPPORTED where copy_device_device is false or one of
  // them is not this backend's.
  virtual void CopyDeviceToDevice(MemoryAccess* source, uint64_t source_offset,
                                  MemoryAccess* target, uint64_t target_offset, uint64_t length,
                                  MemoryAccess::Done done) = 0;
};

}  // namespace hixld
