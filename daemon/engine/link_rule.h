// What two engines can do with each other on the products that they run on, or imitate (contract
// 3.4 and 7): which protocol joins them, and between which types of memory it moves data.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/product.h"
#include "daemon/link/link.h"
#include "daemon/memory/region.h"

namespace hixld {

// Immutable.
class LinkRule {
 public:
  // nullptr where one side has no product limits: everything goes. PARAM_INVALID when the two have
  // no protocol in common. `initiator` and `target` are the engines' ids, for messages.
  static absl::StatusOr<std::shared_ptr<const LinkRule>> Make(const std::string& initiator,
                                                              const EndpointSet& initiator_has,
                                                              const std::string& target,
                                                              const EndpointSet& target_has);

  // "hccs:device", "ub_ctp", ...
  const std::string& protocol() const { return protocol_; }
  // UNSUPPORTED, with the reason, when data does not move between memory of these types.
  absl::Status Check(size_t descriptor, MemoryType local, MemoryType remote) const;

 private:
  LinkRule() = default;
  void FillUbCtp(const EndpointSet& initiator_has, const EndpointSet& target_has);
  void Fill(ProductForm form);

  std::string protocol_;
  std::string product_;
  PlacementRule rules_[2][2];  // by type, local first
};

}  // namespace hixld
