// The last error of each thread, as the extension API tells it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/base/status.h"

namespace hixld::client {

struct LastErrorRecord {
  uint32_t code = 0;
  std::string message;
  ErrorInfo info;
  // All of it in one line.
  std::string text;
};

// Keeps `status` as this thread's last error, if it is one; returns its API code.
uint32_t RecordError(const absl::Status& status);
const LastErrorRecord& LastErrorOfThread();

}  // namespace hixld::client
