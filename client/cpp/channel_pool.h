// Which links go when a new one needs room (contract 3.2, channel_pool.*). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/options.h"

namespace hixld::client {

struct PooledLink {
  std::string peer;
  // Rises with every transfer of the engine; 0 = this link never carried one.
  uint64_t last_used = 0;
  // A transfer is in flight, or its end was not asked for yet.
  bool busy = false;
};

struct PoolPlan {
  // There is room for a new link once these peers are disconnected.
  std::vector<std::string> evict;
  bool room = false;
};

// How many links stand for a waterline.
uint64_t LinksAt(int64_t max_channels, double waterline);
// `options` has both waterlines.
PoolPlan PlanRoom(const ChannelPoolOptions& options, std::vector<PooledLink> links);

}  // namespace hixld::client
