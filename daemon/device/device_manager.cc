#include "daemon/device/device_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// Where backends are registered: a name and how to make one. In order of precedence.
struct Registration {
  const char* name;
  std::unique_ptr<DeviceBackend> (*create)(const DeviceOptions& options);
};

constexpr Registration kBackends[] = {
    {"sim", [](const DeviceOptions& options) { return CreateSimBackend(options.sim); }},
    {"host", [](const DeviceOptions& options) { return CreateHostBackend(options.host); }},
};

std::string KnownBackends() {
  return absl::StrJoin(kBackends, ", ", [](std::string* out, const Registration& registration) {
    absl::StrAppend(out, registration.name);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceManager>> DeviceManager::Create(const DeviceOptions& options) {
  for (const std::string& name : options.backends) {
    if (std::none_of(std::begin(kBackends), std::end(kBackends),
                     [&name](const Registration& r) { return name == r.name; })) {
      return ParamInvalid(absl::StrCat("unknown device backend \"", name, "\""),
                          {.object = absl::StrCat("device backend ", name),
                           .option = "devices.backends",
                           .allowed = KnownBackends()});
    }
  }
  if (options.sim.product_limits && ProductFormOf(options.sim.product) == ProductForm::kUnknown) {
    return ParamInvalid(
        absl::StrCat(
            "product \"", options.sim.product,
            "\" has no limits that are known; allowed for devices.sim.product: ", KnownProducts()),
        {.object = absl::StrCat("product ", options.sim.product),
         .option = "devices.sim.product",
         .allowed = KnownProducts()});
  }
  auto manager = std::make_unique<DeviceManager>();
  for (const Registration& registration : kBackends) {
    if (std::find(options.backends.begin(), options.backends.end(), registration.name) ==
        options.backends.end()) {
      continue;
    }
    manager->backends_.push_back(registration.create(options));
    DeviceBackend* backend = manager->backends_.back().get();
    for (const DeviceDescription& device : backend->Devices()) {
      manager->by_device_.emplace(device.device_id, backend);
    }
  }
  return manager;
}

absl::StatusOr<DeviceBackend*> DeviceManager::Find(int32_t device_id) const {
  const auto found = by_device_.find(device_id);
  if (found != by_device_.end()) return found->second;
  const std::string known = absl::StrJoin(
      by_device_, ", ",
      [](std::string* out, const auto& device) { absl::StrAppend(out, device.first); });
  return ParamInvalid(absl::StrCat("no device ", device_id),
                      {.object = absl::StrCat("device ", device_id),
                       .option = "devices.backends",
                       .allowed = known.empty() ? "none: no backend has devices" : known});
}

DeviceDescription DeviceManager::DescriptionOf(int32_t device_id) const {
  const auto found = by_device_.find(device_id);
  if (found == by_device_.end()) return {};
  for (DeviceDescription& device : found->second->Devices()) {
    if (device.device_id == device_id) return std::move(device);
  }
  return {};
}

DeviceCapabilities DeviceManager::CapabilitiesOf(int32_t device_id) const {
  return DescriptionOf(device_id).capabilities;
}

Product DeviceManager::ProductOf(int32_t device_id) const {
  const DeviceDescription device = DescriptionOf(device_id);
  return {.name = device.product,
          .form = ProductFormOf(device.product),
          .limits = device.product_limits};
}

std::vector<int32_t> DeviceManager::Ids() const {
  std::vector<int32_t> ids;
  for (const auto& [id, backend] : by_device_) {
    if (backend->name() != "host") ids.push_back(id);
  }
  return ids;
}

std::vector<DeviceDescription> DeviceManager::List() const {
  std::vector<DeviceDescription> result;
  for (const auto& backend : backends_) {
    for (DeviceDescription& device : backend->Devices()) result.push_back(std::move(device));
  }
  return result;
}

std::vector<const ArenaPool*> DeviceManager::Pools() const {
  std::vector<const ArenaPool*> result;
  for (const auto& backend : backends_) {
    for (const ArenaPool* pool : backend->Pools()) result.push_back(pool);
  }
  return result;
}

}  // namespace hixld
