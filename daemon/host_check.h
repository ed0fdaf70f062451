// Whether this host has what the configuration names.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/config.h"

namespace hixld {

// The group of socket.group; gid_t(-1) where none is named. PARAM_INVALID for a name that this host
// does not know.
absl::StatusOr<gid_t> SocketGroup(const Config& config);

// One line for each address, network interface or directory that the configuration names and this
// host does not have. They may come later, so that this stops no start. `socket_path`: where the
// daemon would listen.
std::vector<std::string> MissingFromHost(const Config& config, const std::string& socket_path);

// tcp.congestion_control where lanes get it; empty: they have the kernel's default.
std::string UsableCongestionControl(const Config& config);

// RESOURCE_EXHAUSTED when this process may not open the descriptors that a daemon without clients
// needs.
absl::Status CheckDescriptorLimit();

}  // namespace hixld
