// How a lane proves to which link it belongs, and its target that it knows the link too.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace hixld {

enum class LaneSide : uint8_t { kInitiator, kTarget };

// HMAC-SHA256 with the link's secret over the side's label, link id, lane index and generation.
// Generations of a lane only grow, so that a hello cannot be replayed.
std::string LaneProof(absl::string_view secret, LaneSide side, uint64_t link_id, uint32_t lane,
                      uint32_t generation);

// In constant time.
bool ProofsEqual(absl::string_view a, absl::string_view b);

}  // namespace hixld
