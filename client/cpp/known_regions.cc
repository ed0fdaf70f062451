#include "client/cpp/known_regions.h"

#include <algorithm>
#include <iterator>

namespace hixld::client {
namespace {

// Beyond these the daemon is asked.
constexpr size_t kMaxChannels = 4096;
constexpr size_t kMaxIntervals = 8192;
constexpr size_t kMaxPieces = 4096;

// The least range that holds several.
struct Hull {
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
  void Add(uint64_t address, uint64_t length) {
    begin = std::min(begin, address);
    end = std::max(end, address + length);
  }
  bool In(const Intervals& intervals) const { return intervals.Holds(begin, end); }
};

// A table's blocks lie between those of the lowest and the highest index. Nothing holds sums that
// wrap.
bool TableIn(const Intervals& intervals, uint64_t base, uint64_t stride, uint64_t bytes,
             uint32_t low, uint32_t high) {
  uint64_t begin = 0;
  uint64_t end = 0;
  if (__builtin_mul_overflow(stride, uint64_t{low}, &begin) ||
      __builtin_add_overflow(base, begin, &begin) ||
      __builtin_mul_overflow(stride, uint64_t{high}, &end) ||
      __builtin_add_overflow(base, end, &end) || __builtin_add_overflow(end, bytes, &end)) {
    return false;
  }
  return intervals.Holds(begin, end);
}

bool BlocksIn(const BlockView& blocks, const Intervals& local, const Intervals& remote) {
  if (blocks.local_blocks.empty()) return false;
  const auto [l_low, l_high] =
      std::minmax_element(blocks.local_blocks.begin(), blocks.local_blocks.end());
  const auto [r_low, r_high] =
      std::minmax_element(blocks.remote_blocks.begin(), blocks.remote_blocks.end());
  for (const ring::BlockTables& table : blocks.tables) {
    if (!TableIn(local, table.local_base, table.local_stride, table.block_bytes, *l_low, *l_high) ||
        !TableIn(remote, table.remote_base, table.remote_stride, table.block_bytes, *r_low,
                 *r_high)) {
      return false;
    }
  }
  return true;
}

bool PiecesIn(const BatchView& batch, const Intervals& local, const Intervals& remote) {
  Hull here;
  Hull there;
  for (size_t i = 0; i < batch.count; ++i) {
    here.Add(batch.local(i), batch.length(i));
    there.Add(batch.remote(i), batch.length(i));
  }
  if (here.In(local) && there.In(remote)) return true;
  if (batch.count > kMaxPieces) return false;
  for (size_t i = 0; i < batch.count; ++i) {
    const uint64_t length = batch.length(i);
    if (!local.Holds(batch.local(i), batch.local(i) + length) ||
        !remote.Holds(batch.remote(i), batch.remote(i) + length)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void Intervals::Add(const ring::Extent& extent) {
  if (extent.begin >= extent.end) return;
  ring::Extent merged = extent;
  // The first one that touches it or lies behind it.
  auto first = std::lower_bound(
      intervals_.begin(), intervals_.end(), extent.begin,
      [](const ring::Extent& interval, uint64_t begin) { return interval.end < begin; });
  auto last = first;
  for (; last != intervals_.end() && last->begin <= extent.end; ++last) {
    merged.begin = std::min(merged.begin, last->begin);
    merged.end = std::max(merged.end, last->end);
  }
  if (first == last) {
    if (intervals_.size() < kMaxIntervals) intervals_.insert(first, merged);
    return;
  }
  *first = merged;
  intervals_.erase(std::next(first), last);
}

bool Intervals::Holds(uint64_t begin, uint64_t end) const {
  if (begin >= end) return false;
  const auto after = std::upper_bound(
      intervals_.begin(), intervals_.end(), begin,
      [](uint64_t at, const ring::Extent& interval) { return at < interval.begin; });
  return after != intervals_.begin() && end <= std::prev(after)->end;
}

void KnownRegions::ForgetOld(uint32_t gone) {
  if (gone == gone_) return;
  by_channel_.clear();
  gone_ = gone;
}

bool KnownRegions::Hold(uint64_t channel, const BatchView& batch, uint32_t gone) {
  MutexLock lock(&mutex_);
  ForgetOld(gone);
  const auto found = by_channel_.find(channel);
  if (found == by_channel_.end()) return false;
  const Sides& sides = found->second;
  return batch.blocks != nullptr ? BlocksIn(*batch.blocks, sides.local, sides.remote)
                                 : PiecesIn(batch, sides.local, sides.remote);
}

void KnownRegions::Learn(uint64_t channel, const ring::Producer::Extents& extents, uint32_t gone) {
  MutexLock lock(&mutex_);
  ForgetOld(gone);
  if (by_channel_.size() >= kMaxChannels) by_channel_.clear();
  Sides& sides = by_channel_[channel];
  for (const ring::Extent& extent : extents.local) sides.local.Add(extent);
  for (const ring::Extent& extent : extents.remote) sides.remote.Add(extent);
}

}  // namespace hixld::client
