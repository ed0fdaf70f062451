// Which physical device this process is bound to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace hixld::client {

// Physical id of logical device `logical` under ASCEND_RT_VISIBLE_DEVICES `visible`, a
// comma-separated list of physical ids in which entry i is logical device i. nullopt = every
// device is visible under its own number. A malformed list is PARAM_INVALID; an id outside is
// FAILED and lists the allowed ones.
absl::StatusOr<int32_t> PhysicalDevice(int64_t logical, const std::optional<std::string>& visible);

// The same for `requested`, or, when that is negative, for ASCEND_DEVICE_ID's value `device_id`,
// or, when that is unset or empty, for logical device 0. Where nothing asks for a device, an
// empty list of visible devices is no error.
absl::StatusOr<int32_t> BoundDevice(int32_t requested, const std::optional<std::string>& device_id,
                                    const std::optional<std::string>& visible);

}  // namespace hixld::client
