#include "daemon/device/backend.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {

absl::Status DeviceLayerError(absl::string_view backend, int32_t device_id,
                              const absl::Status& status) {
  return Annotate(status, absl::StrCat("device layer (", backend, ", device ", device_id, ")"));
}

std::vector<std::string> CapabilityNames(const DeviceCapabilities& capabilities) {
  std::vector<std::string> names;
  const auto add = [&names](bool there, const char* name) {
    if (there) names.emplace_back(name);
  };
  add(capabilities.allocate, "allocate");
  add(capabilities.copy_host_device, "copy_host_device");
  add(capabilities.copy_device_device, "copy_device_device");
  add(capabilities.export_shareable, "export_shareable");
  add(capabilities.import_shareable, "import_shareable");
  add(capabilities.host_mappable, "host_mappable");
  add(capabilities.dma_buf, "dma_buf");
  add(capabilities.place == ExecutionPlace::kClient, "executed_by_client");
  return names;
}

}  // namespace hixld
