// The node's devices: which backend serves which device id.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/device/backend.h"
#include "daemon/device/host_backend.h"
#include "daemon/device/product.h"
#include "daemon/device/sim_backend.h"

namespace hixld {

struct DeviceOptions {
  // Names of backends, devices.backends. A device id belongs to the first backend that has it,
  // with `host` last whatever its place in the list.
  std::vector<std::string> backends = {"host", "sim"};
  HostBackendOptions host;
  SimBackendOptions sim;
};

// Immutable; thread-safe.
class DeviceManager {
 public:
  // PARAM_INVALID for an unknown backend, and for a product without known limits where those are
  // to be imitated; it lists the known ones.
  static absl::StatusOr<std::unique_ptr<DeviceManager>> Create(const DeviceOptions& options);

  // The backend of a device. PARAM_INVALID for an unknown id; it lists the known ones.
  absl::StatusOr<DeviceBackend*> Find(int32_t device_id) const;
  // Of a known device; the default one otherwise.
  DeviceCapabilities CapabilitiesOf(int32_t device_id) const;
  // Of a known device; an empty one otherwise.
  Product ProductOf(int32_t device_id) const;
  // Of all devices, ascending; the node's own memory is none.
  std::vector<int32_t> Ids() const;
  // All devices of all backends, by backend.
  std::vector<DeviceDescription> List() const;
  // Of all backends; they live as long as the manager.
  std::vector<const ArenaPool*> Pools() const;

 private:
  // An empty one for an unknown device.
  DeviceDescription DescriptionOf(int32_t device_id) const;

  std::vector<std::unique_ptr<DeviceBackend>> backends_;
  std::map<int32_t, DeviceBackend*> by_device_;
};

}  // namespace hixld
