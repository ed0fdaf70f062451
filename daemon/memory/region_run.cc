#include <algorithm>
#include <utility>

#include "daemon/memory/region.h"

namespace hixld {
namespace {

// Copying a chunk costs a reference count per region; searching costs a step per doubling.
constexpr size_t kMaxChunk = 512;

}  // namespace

size_t RegionRun::ChunkFor(uint64_t address) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), address);
  return after == first_.begin() ? 0 : static_cast<size_t>(after - first_.begin()) - 1;
}

const RegionRun::RegionPtr* RegionRun::AtOrBefore(uint64_t address) const {
  if (chunks_.empty() || address < first_[0]) return nullptr;
  const Chunk& chunk = *chunks_[ChunkFor(address)];
  const auto after = std::upper_bound(chunk.addresses.begin(), chunk.addresses.end(), address);
  return &chunk.regions[static_cast<size_t>(after - chunk.addresses.begin()) - 1];
}

const RegionRun::RegionPtr* RegionRun::After(uint64_t address) const {
  if (chunks_.empty()) return nullptr;
  const size_t index = ChunkFor(address);
  const Chunk& chunk = *chunks_[index];
  const auto after = std::upper_bound(chunk.addresses.begin(), chunk.addresses.end(), address);
  if (after != chunk.addresses.end()) {
    return &chunk.regions[static_cast<size_t>(after - chunk.addresses.begin())];
  }
  return index + 1 < chunks_.size() ? &chunks_[index + 1]->regions[0] : nullptr;
}

const RegionRun::RegionPtr* RegionRun::Find(uint64_t address) const {
  const RegionPtr* region = AtOrBefore(address);
  // The subtraction cannot wrap: the region starts at or before the address.
  if (region == nullptr || address - (*region)->address >= (*region)->length) return nullptr;
  return region;
}

void RegionRun::AppendTo(std::vector<RegionPtr>* out) const {
  for (const auto& chunk : chunks_) {
    out->insert(out->end(), chunk->regions.begin(), chunk->regions.end());
  }
}

void RegionRun::PushChunk(std::shared_ptr<const Chunk> chunk) {
  first_.push_back(chunk->addresses[0]);
  size_ += chunk->regions.size();
  chunks_.push_back(std::move(chunk));
}

void RegionRun::PushSplit(std::vector<RegionPtr> regions) {
  const size_t pieces = (regions.size() + kMaxChunk - 1) / kMaxChunk;
  size_t begin = 0;
  for (size_t piece = 0; piece < pieces; ++piece) {
    const size_t end = regions.size() * (piece + 1) / pieces;
    auto chunk = std::make_shared<Chunk>();
    chunk->regions.assign(std::make_move_iterator(regions.begin() + begin),
                          std::make_move_iterator(regions.begin() + end));
    chunk->addresses.reserve(chunk->regions.size());
    for (const RegionPtr& region : chunk->regions) chunk->addresses.push_back(region->address);
    PushChunk(std::move(chunk));
    begin = end;
  }
}

RegionRun RegionRun::With(const std::vector<RegionPtr>& added) const {
  const auto by_address = [](const RegionPtr& a, const RegionPtr& b) {
    return a->address < b->address;
  };
  RegionRun result;
  if (chunks_.empty()) {
    result.PushSplit(added);
    return result;
  }
  size_t next = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    // What belongs into this chunk: everything below the first address of the next one.
    const size_t begin = next;
    while (next < added.size() &&
           (i + 1 == chunks_.size() || added[next]->address < first_[i + 1])) {
      ++next;
    }
    if (begin == next) {
      result.PushChunk(chunks_[i]);
      continue;
    }
    std::vector<RegionPtr> merged;
    merged.reserve(chunks_[i]->regions.size() + next - begin);
    std::merge(chunks_[i]->regions.begin(), chunks_[i]->regions.end(), added.begin() + begin,
               added.begin() + next, std::back_inserter(merged), by_address);
    result.PushSplit(std::move(merged));
  }
  return result;
}

RegionRun RegionRun::Without(const std::vector<uint64_t>& addresses) const {
  RegionRun result;
  // What is left of small chunks is gathered here, so that they don't stay small for ever.
  std::vector<RegionPtr> pending;
  const auto flush = [&result, &pending] {
    if (!pending.empty()) result.PushSplit(std::exchange(pending, {}));
  };
  size_t next = 0;
  for (const auto& chunk : chunks_) {
    const bool touched = next < addresses.size() && addresses[next] <= chunk->addresses.back();
    if (!touched && (pending.empty() || pending.size() + chunk->regions.size() > kMaxChunk)) {
      flush();
      result.PushChunk(chunk);
      continue;
    }
    if (pending.size() >= kMaxChunk / 2) flush();
    for (size_t i = 0; i < chunk->regions.size(); ++i) {
      if (next < addresses.size() && addresses[next] == chunk->addresses[i]) {
        ++next;
      } else {
        pending.push_back(chunk->regions[i]);
      }
    }
  }
  flush();
  return result;
}

}  // namespace hixld
