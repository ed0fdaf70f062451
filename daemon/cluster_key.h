// The key that the daemons of a cluster share.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "config/config.h"

namespace hixld {

// The contents of security.cluster_key_file without white space at the end; empty when no file is
// set. PARAM_INVALID for a file that cannot be read, is too short or long, or is open to others;
// the message says where the key was set.
absl::StatusOr<std::string> ReadClusterKey(const Config& config);

}  // namespace hixld
