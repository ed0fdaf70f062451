// hixlctl devices: the accelerators that the daemon owns, and what their products allow.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <set>
#include <string>

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
               {"FORM"},
               {"LIMITS"},
               {"MEMORY", Align::kRight},
               {"USED", Align::kRight},
               {"CAPABILITIES"}});
  for (const hixl::v1::DeviceInfo& device : response.devices()) {
    // A backend that has no memory of its own says 0.
    const bool has_memory = device.memory_bytes() > 0;
    table.AddRow({absl::StrCat(device.device_id()), device.backend(), device.product(),
                  device.product_form(), device.product_limits() ? "product" : "",
                  has_memory ? HumanBytes(device.memory_bytes()) : "",
                  has_memory ? HumanBytes(device.memory_used()) : "",
                  absl::StrJoin(device.capabilities(), " ")});
  }
  return table.ToString("No devices.");
}

std::string TypeName(hixl::v1::MemoryType type) {
  return type == hixl::v1::MEMORY_TYPE_DEVICE ? "device" : "host";
}

// One block per product; devices of one product share it.
std::string RulesText(const hixl::v1::ListDevicesResponse& response) {
  Table table({{"PRODUCT"}, {"PROTOCOL"}, {"LOCAL"}, {"REMOTE"}, {"ALLOWED"}, {"WHY NOT"}});
  std::set<std::string> shown;
  for (const hixl::v1::DeviceInfo& device : response.devices()) {
    if (!shown.insert(device.product()).second) continue;
    for (const hixl::v1::PlacementRule& rule : device.rules()) {
      table.AddRow({device.product(), rule.protocol(), TypeName(rule.local()),
                    TypeName(rule.remote()), rule.allowed() ? "yes" : "no", rule.reason()});
    }
  }
  return "\n" + table.ToString("No product with rules.");
}

}  // namespace

Action PrepareDevices(CLI::App& app) {
  const auto rules = std::make_shared<bool>(false);
  app.add_flag("--rules", *rules,
               "Also show what each product allows: protocol by types of memory, and why not");
  return [rules](AdminClient& client) -> absl::StatusOr<Output> {
    HIXLD_ASSIGN_OR_RETURN(auto response, client.ListDevices());
    std::string text = Text(response);
    if (*rules) text += RulesText(response);
    return AnswerOutput(std::move(text), std::move(response));
  };
}

}  // namespace hixld::hixlctl
