// The `host` backend: device ids for nodes without accelerators. It has no memory of its own, so
// that engines bound to a device work, and whatever they register as device memory is host memory.
#pragma once

#include <memory>

#include "daemon/device/backend.h"

namespace hixld {

struct HostBackendOptions {
  // Devices 0 .. count - 1.
  int32_t count = 1;
};

std::unique_ptr<DeviceBackend> CreateHostBackend(HostBackendOptions options);

}  // namespace hixld
