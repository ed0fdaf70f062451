// How a transfer that somebody waits for has ended.
#pragma once

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace hixld {

struct TransferEnd {
  absl::Status status;
  uint64_t bytes = 0;
  uint64_t id = 0;  // 0: it was refused
};

// Called exactly once, on any thread, when no byte of the transfer can land any more.
using TransferDone = absl::AnyInvocable<void(TransferEnd)>;

}  // namespace hixld
