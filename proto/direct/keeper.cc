#include "proto/direct/keeper.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld::direct {
namespace {

// No core copies faster, nor makes transfers or descriptors faster, than this a nanosecond.
constexpr uint64_t kMostBytesPerNano = 256;
constexpr uint64_t kMostEventsPerNano = 1;

// How far a counter has come since `taken`, as far as it can be believed; moves `taken` along.
// `most` is what it can have reached in all since the gate was made, so that a copy that is counted
// at once does not look too fast.
uint64_t Grown(const std::atomic<uint64_t>& counter, uint64_t most, uint64_t* taken) {
  const uint64_t now = std::min(counter.load(std::memory_order_relaxed), most);
  if (now <= *taken) return 0;
  return now - std::exchange(*taken, now);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Keeper>> Keeper::Create(const Spec& spec, UniqueFd* memory) {
  const uint64_t size = TotalBytes(spec.regions.size());
  HIXLD_ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("hixld-direct", size));
  HIXLD_ASSIGN_OR_RETURN(Mapping mapping, MapShared(fd.get(), 0, size));
  // The file is zeroed: the lanes are empty and the gate is open.
  auto* header = new (mapping.data()) Header{};
  header->version = kLayoutVersion;
  header->lanes = kLanes;
  header->lanes_offset = LanesOffset();
  header->regions_offset = RegionsOffset();
  header->regions = spec.regions.size();
  header->total_bytes = size;
  header->max_bytes = spec.max_bytes;
  header->max_descriptors = spec.max_descriptors;
  header->target_pid = spec.target_pid;
  header->files = spec.files;
  if (!spec.regions.empty()) {
    memcpy(mapping.data() + RegionsOffset(), spec.regions.data(),
           spec.regions.size() * sizeof(Region));
  }
  header->magic = kMagic;
  *memory = std::move(fd);
  return std::unique_ptr<Keeper>(new Keeper(std::move(mapping), spec.now_ns));
}

Keeper::Keeper(Mapping memory, int64_t now_ns)
    : memory_(std::move(memory)),
      header_(reinterpret_cast<Header*>(memory_.data())),
      lanes_(reinterpret_cast<Lane*>(memory_.data() + LanesOffset())),
      made_ns_(now_ns) {}

bool Keeper::Empty() const {
  for (uint32_t i = 0; i < kLanes; ++i) {
    if (lanes_[i].inside.load(std::memory_order_seq_cst) != 0) return false;
  }
  return true;
}

Counts Keeper::Take(int64_t now_ns) {
  const uint64_t nanos = static_cast<uint64_t>(std::max<int64_t>(now_ns - made_ns_, 0));
  const uint64_t events = nanos * kMostEventsPerNano;
  const uint64_t bytes = nanos * kMostBytesPerNano;
  Counts sum;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const Lane& lane = lanes_[i];
    Counts& taken = taken_[i];
    sum.reads += Grown(lane.reads, events, &taken.reads);
    sum.writes += Grown(lane.writes, events, &taken.writes);
    sum.descriptors_read += Grown(lane.descriptors_read, events, &taken.descriptors_read);
    sum.descriptors_written += Grown(lane.descriptors_written, events, &taken.descriptors_written);
    sum.bytes_read += Grown(lane.bytes_read, bytes, &taken.bytes_read);
    sum.bytes_written += Grown(lane.bytes_written, bytes, &taken.bytes_written);
  }
  return sum;
}

}  // namespace hixld::direct
