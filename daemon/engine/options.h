// The options of one engine (contract 3.1).
#pragma once

#include <cstdint>
#include <map>
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
  // What becomes of synchronous transfers with unregistered memory (contract 1.11). Without
  // BufferPool they are PARAM_INVALID, with "0:0" FAILED, else they are relayed.
  enum class Unregistered : uint8_t { kInvalid, kFailed, kRelayed };
  Unregistered unregistered = Unregistered::kInvalid;
  // Engines with a pool are those that may deregister memory while they are connected (contract
  // 1.3).
  bool may_deregister_connected() const { return unregistered != Unregistered::kInvalid; }
  // How many relayed transfers may run at a time.
  uint32_t relay_buffers = 0;
  // As the client gave them, for operators.
  std::map<std::string, std::string> given;
};

// Unknown keys and bad values are PARAM_INVALID and name the key, the value and what is allowed.
absl::StatusOr<EngineOptions> ParseEngineOptions(const std::map<std::string, std::string>& options,
                                                 const BatchingOptions& batching);

}  // namespace hixld
