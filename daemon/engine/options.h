// The options of one engine (contract 3.1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/device/product.h"
#include "daemon/engine/batcher.h"
#include "daemon/link/link.h"

namespace hixld {

// Which of HIXL's engines the client's options ask for (contract 3.3).
enum class EngineKind : uint8_t { kUnknown, kComm, kHixl, kFabric };

// One setting that took effect, for operators.
struct EffectiveOption {
  std::string name;
  std::string value;
  std::string source;  // "default", "option ...", "environment ..."
};

// What the client's library made of the options.
struct EngineProfile {
  EngineKind kind = EngineKind::kUnknown;
  std::vector<std::string> endpoints;  // "hccs:device", ...; empty: to be generated
  std::string net_instance_id;
  bool force_roce = false;
  std::vector<EffectiveOption> effective;
};

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
  // The pool that relayed transfers share: so many buffers of so many bytes. A transfer has as many
  // of them as its bytes need, at least one and at most all.
  uint32_t relay_buffers = 0;
  uint64_t relay_buffer_bytes = 0;
  // Of so many buffers; does not overflow.
  uint64_t RelayBytes(uint32_t buffers) const {
    constexpr uint64_t kMost = uint64_t{1} << 62;
    return relay_buffer_bytes > kMost / std::max(buffers, 1U) ? kMost
                                                              : relay_buffer_bytes * buffers;
  }
  // RdmaTrafficClass and RdmaServiceLevel; unset: as the node is configured.
  std::optional<uint8_t> traffic_class;
  std::optional<uint8_t> service_level;
  // As the client gave them, for operators.
  std::map<std::string, std::string> given;
  EngineProfile profile;
  // Filled where the limits of the device's product count.
  EndpointSet endpoints;
  ProductForm form = ProductForm::kUnknown;
};

// Unknown keys and bad values are PARAM_INVALID and name the key, the value and what is allowed.
absl::StatusOr<EngineOptions> ParseEngineOptions(const std::map<std::string, std::string>& options,
                                                 const BatchingOptions& batching);

// "Comm", "Hixl", "Fabric"; anything else is kUnknown.
EngineKind EngineKindOf(absl::string_view name);
absl::string_view EngineKindName(EngineKind kind);

// Applies a product whose limits count: fills in the endpoints that take effect. PARAM_INVALID for
// a protocol that the product lacks, UNSUPPORTED for fabric memory where there is none.
absl::Status ApplyProduct(const Product& product, const std::string& node, EngineOptions* options);

}  // namespace hixld
