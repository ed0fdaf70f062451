#include "client/cpp/channel_pool.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hixld::client {

uint64_t LinksAt(int64_t max_channels, double waterline) {
  return static_cast<uint64_t>(
      std::max(1.0, std::floor(static_cast<double>(max_channels) * waterline)));
}

PoolPlan PlanRoom(const ChannelPoolOptions& options, std::vector<PooledLink> links) {
  PoolPlan plan;
  const uint64_t count = links.size();
  if (count >= LinksAt(options.max_channels, *options.high_waterline)) {
    const uint64_t low = LinksAt(options.max_channels, *options.low_waterline);
    // Those that never carried a transfer first, then those that were idle longest.
    std::stable_sort(links.begin(), links.end(), [](const PooledLink& a, const PooledLink& b) {
      return a.last_used < b.last_used;
    });
    for (PooledLink& link : links) {
      if (plan.evict.size() + low >= count) break;
      if (!link.busy) plan.evict.push_back(std::move(link.peer));
    }
  }
  plan.room = count - plan.evict.size() < static_cast<uint64_t>(options.max_channels);
  return plan;
}

}  // namespace hixld::client
