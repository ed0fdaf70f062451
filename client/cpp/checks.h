// Argument checks that several calls share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::client {

// PARAM_INVALID unless `timeout_ms` > 0.
inline absl::Status CheckTimeout(int32_t timeout_ms) {
  if (timeout_ms > 0) return absl::OkStatus();
  return ParamInvalid(absl::StrCat("the timeout is ", timeout_ms, " ms"),
                      {.object = "timeout", .allowed = "1 ms and more"});
}

// How much longer than its own timeout a call waits for the daemon's word on it.
constexpr int64_t kAnswerGrace = 250 * kNanosPerMilli;

// Whole milliseconds until `deadline` (MonotonicNanos), at least 1.
inline int32_t MillisLeft(int64_t deadline) {
  const int64_t left = (deadline - MonotonicNanos() + kNanosPerMilli - 1) / kNanosPerMilli;
  return static_cast<int32_t>(std::clamp<int64_t>(left, 1, INT32_MAX));
}

}  // namespace hixld::client
