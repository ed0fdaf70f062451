// Transfers that this process copies by itself (docs/direct-copies.md).
#include <utility>
#include <vector>

#include "client/cpp/engine.h"
#include "client/cpp/mapped_range.h"
#include "proto/base/clock.h"

namespace hixld::client {
namespace {

// Listing a large table for copies takes at most one in so many parts of the time.
constexpr int64_t kPublishPart = 10;

}  // namespace

// After the hot path has missed: gets what it lacked and tries once more.
bool Engine::CopiedHere(const Attachment& live, const TransferCall& call, int64_t deadline) {
  if (!direct_.Wants(*live.session, call)) return false;
  const bool listed = direct_.local_missing() && PublishLocal();
  const bool reached = direct_.Reach(live.session, call, deadline);
  return (listed || reached) && direct_.TryCopy(call.remote_engine, call.direction, call.batch);
}

bool Engine::PublishLocal() {
  MutexLock lock(&attach_mutex_);
  const int64_t start = MonotonicNanos();
  if (start < next_publish_ns_) return false;
  std::vector<LocalRange> ranges;
  for (const UsableRange& usable : memory_.UsableHostRanges()) {
    const uint64_t begin = usable.range.address;
    const uint64_t end = begin + usable.range.length;
    if (!IsMapped(begin, end)) continue;
    ranges.push_back({.begin = begin, .end = end, .ours = usable.pool});
  }
  direct_.SetLocal(std::make_shared<const LocalRanges>(std::move(ranges)));
  const int64_t end = MonotonicNanos();
  next_publish_ns_ = end + (end - start) * kPublishPart;
  return true;
}

}  // namespace hixld::client
