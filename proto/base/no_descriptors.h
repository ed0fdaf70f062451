// The error of a process that has as many descriptors open as it may.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hixld {

// This process has no descriptor left for `what`: RESOURCE_EXHAUSTED that names RLIMIT_NOFILE and
// its value. ErrnoError gives it for EMFILE.
absl::Status NoDescriptors(absl::string_view what);

}  // namespace hixld
