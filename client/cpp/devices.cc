#include "client/cpp/devices.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

constexpr char kVisible[] = "ASCEND_RT_VISIBLE_DEVICES";
constexpr char kDevice[] = "ASCEND_DEVICE_ID";

absl::StatusOr<std::vector<int32_t>> ParseVisible(const std::string& text) {
  std::vector<int32_t> devices;
  if (absl::StripAsciiWhitespace(text).empty()) return devices;
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    int32_t device = 0;
    if (!absl::SimpleAtoi(entry, &device) || device < 0) {
      return ParamInvalid(absl::StrCat(kVisible, " is \"", text, "\""),
                          {.object = kVisible,
                           .option = kVisible,
                           .allowed = "device ids separated by commas, such as 0,1,3"});
    }
    devices.push_back(device);
  }
  return devices;
}

absl::Status NoSuchDevice(int64_t logical, const std::string& allowed) {
  return Failed(absl::StrCat("there is no device ", logical, ", allowed is ", allowed),
                {.object = absl::StrCat("device ", logical),
                 .option = absl::StrCat(kDevice, ", ", kVisible),
                 .allowed = allowed});
}

}  // namespace

absl::StatusOr<int32_t> PhysicalDevice(int64_t logical, const std::optional<std::string>& visible) {
  if (!visible) {
    if (logical < 0 || logical > INT32_MAX) return NoSuchDevice(logical, "0 and up");
    return static_cast<int32_t>(logical);
  }
  HIXLD_ASSIGN_OR_RETURN(const std::vector<int32_t> devices, ParseVisible(*visible));
  if (logical >= 0 && logical < static_cast<int64_t>(devices.size())) {
    return devices[static_cast<size_t>(logical)];
  }
  const std::string allowed =
      devices.empty() ? absl::StrCat("nothing (", kVisible, " is empty)")
                      : absl::StrCat("0..", devices.size() - 1, " (", kVisible, "=", *visible, ")");
  return NoSuchDevice(logical, allowed);
}

absl::StatusOr<int32_t> BoundDevice(int32_t requested, const std::optional<std::string>& device_id,
                                    const std::optional<std::string>& visible) {
  if (requested >= 0) return PhysicalDevice(requested, visible);
  if (device_id && !device_id->empty()) {
    int64_t logical = 0;
    if (!absl::SimpleAtoi(*device_id, &logical)) {
      return ParamInvalid(absl::StrCat(kDevice, " is \"", *device_id, "\""),
                          {.object = kDevice, .option = kDevice, .allowed = "a device id"});
    }
    return PhysicalDevice(logical, visible);
  }
  if (visible && absl::StripAsciiWhitespace(*visible).empty()) return 0;
  return PhysicalDevice(0, visible);
}

}  // namespace hixld::client
