// The initiator's role: runs a sweep against a target and reports.
#pragma once

#include "absl/status/status.h"
#include "client/bench/options.h"

namespace hixld::bench {

// Prints the table to standard output and progress to standard error. The first failure ends it.
absl::Status RunInitiator(InitiatorOptions options);

}  // namespace hixld::bench
