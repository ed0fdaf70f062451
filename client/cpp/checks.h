// Argument checks that several calls share.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::client {

// PARAM_INVALID unless `timeout_ms` > 0.
inline absl::Status CheckTimeout(int32_t timeout_ms) {
  if (timeout_ms > 0) return absl::OkStatus();
  return ParamInvalid(absl::StrCat("the timeout is ", timeout_ms, " ms"),
                      {.object = "timeout", .allowed = "1 ms and more"});
}

}  // namespace hixld::client
