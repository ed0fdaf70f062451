// hixlctl devices: the accelerators that the daemon owns.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/hixlctl/command.h"
#include "client/hixlctl/human.h"
#include "client/hixlctl/table.h"
#include "proto/base/status.h"

namespace hixld::hixlctl {
namespace {

std::string Text(const hixl::v1::ListDevicesResponse& response) {
  Table table({{"DEVICE", Align::kRight},
               {"BACKEND"},
               {"PRODUCT"},
               {"MEMORY", Align::kRight},
               {"USED", Align::kRight},
               {"CAPABILITIES"}});
  for (const hixl::v1::DeviceInfo& device : response.devices()) {
    // A backend that has no memory of its own says 0.
    const bool has_memory = device.memory_bytes() > 0;
    table.AddRow({absl::StrCat(device.device_id()), device.backend(), device.product(),
                  has_memory ? HumanBytes(device.memory_bytes()) : "",
                  has_memory ? HumanBytes(device.memory_used()) : "",
                  absl::StrJoin(device.capabilities(), " ")});
  }
  return table.ToString("No devices.");
}

}  // namespace

Action PrepareDevices(CLI::App&) {
  return [](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.ListDevices());
    std::string text = Text(response);
    return AnswerOutput(std::move(text), std::move(response));
  };
}

}  // namespace hixld::hixlctl
