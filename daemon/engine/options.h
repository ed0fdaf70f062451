// The options of one engine (contract 3.1).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/engine/batcher.h"

namespace hixld {

struct EngineOptions {
  // Transfers open channels on demand (contract 1.12).
  bool auto_connect = false;
  // hixld.batching.* in GlobalResourceConfig; the daemon's configuration where they are absent.
  BatchingOptions batching;
  // RdmaTrafficClass and RdmaServiceLevel; unset: as the node is configured.
  std::optional<uint8_t> traffic_class;
  std::optional<uint8_t> service_level;
  // As the client gave them, for operators.
  std::map<std::string, std::string> given;
};

// Unknown keys and bad values are PARAM_INVALID and name the key, the value and what is allowed.
absl::StatusOr<EngineOptions> ParseEngineOptions(const std::map<std::string, std::string>& options,
                                                 const BatchingOptions& batching);

}  // namespace hixld
