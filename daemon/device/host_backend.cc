#include "daemon/device/host_backend.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

class HostBackend : public DeviceBackend {
 public:
  explicit HostBackend(HostBackendOptions options) : options_(options) {}

  absl::string_view name() const override { return "host"; }

  std::vector<DeviceDescription> Devices() const override {
    std::vector<DeviceDescription> devices;
    for (int32_t id = 0; id < options_.count; ++id) {
      devices.push_back({.device_id = id, .backend = "host", .product = "host"});
    }
    return devices;
  }

  absl::StatusOr<std::unique_ptr<DeviceAllocation>> Allocate(uint64_t owner, int32_t device_id,
                                                             uint64_t size,
                                                             uint64_t alignment) override {
    return Unsupported(absl::StrCat("device ", device_id, " (host) has no memory of its own"),
                       {.object = absl::StrCat("device ", device_id),
                        .option = "devices.backends",
                        .allowed = "host memory, or a device of a backend that allocates"});
  }

  void CopyDeviceToDevice(MemoryAccess* source, uint64_t source_offset, MemoryAccess* target,
                          uint64_t target_offset, uint64_t length,
                          MemoryAccess::Done done) override {
    done(Unsupported("the host backend has no device memory", {.object = "backend host"}));
  }

 private:
  const HostBackendOptions options_;
};

}  // namespace

std::unique_ptr<DeviceBackend> CreateHostBackend(HostBackendOptions options) {
  return std::make_unique<HostBackend>(options);
}

}  // namespace hixld
