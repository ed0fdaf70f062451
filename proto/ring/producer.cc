#include "proto/ring/producer.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/barrier.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/ring/futex.h"

namespace hixld::ring {
namespace {

constexpr int64_t kBriefYieldNs = 50'000;

bool Terminal(uint32_t state) { return state >= kCompleted; }

bool PowerOfTwo(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

absl::Status CheckHeader(const Header& header, size_t mapped) {
  const Geometry geometry{header.entries, header.slots, header.arena_descriptors};
  const bool good =
      header.magic == kMagic && header.version == kLayoutVersion && PowerOfTwo(geometry.entries) &&
      geometry.entries <= kMaxEntries && geometry.slots > 0 && geometry.slots <= kMaxSlots &&
      PowerOfTwo(geometry.arena_descriptors) &&
      geometry.arena_descriptors <= kMaxArenaDescriptors &&
      header.entries_offset == EntriesOffset() && header.slots_offset == SlotsOffset(geometry) &&
      header.arena_offset == ArenaOffset(geometry) && TotalBytes(geometry) <= mapped;
  if (good) return absl::OkStatus();
  return ParamInvalid(
      absl::StrCat("ring memory of ", mapped, " bytes has layout version ", header.version,
                   " that this library does not understand"),
      {.object = "ring memory", .allowed = absl::StrCat("layout version ", kLayoutVersion)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Producer>> Producer::Attach(Mapping memory, UniqueFd wake) {
  if (memory.size() < sizeof(Header)) {
    return ParamInvalid(absl::StrCat("ring memory has only ", memory.size(), " bytes"),
                        {.object = "ring memory"});
  }
  HIXLD_RETURN_IF_ERROR(
      CheckHeader(*reinterpret_cast<const Header*>(memory.data()), memory.size()));
  return std::unique_ptr<Producer>(new Producer(std::move(memory), std::move(wake)));
}

Producer::Producer(Mapping memory, UniqueFd wake)
    : memory_(std::move(memory)),
      wake_(std::move(wake)),
      header_(reinterpret_cast<Header*>(memory_.data())) {
  geometry_ = Geometry{header_->entries, header_->slots, header_->arena_descriptors};
  entries_ = reinterpret_cast<Entry*>(memory_.data() + EntriesOffset());
  slots_ = reinterpret_cast<Slot*>(memory_.data() + SlotsOffset(geometry_));
  arena_ = reinterpret_cast<Descriptor*>(memory_.data() + ArenaOffset(geometry_));
  arena_after_.resize(geometry_.entries);
  free_slots_.reserve(geometry_.slots);
  // The lowest slots are used first and again, so that few cache lines stay warm.
  for (uint32_t i = geometry_.slots; i > 0; --i) free_slots_.push_back(i - 1);
}

void Producer::SweepForgotten() {
  size_t kept = 0;
  for (const uint32_t slot : forgotten_) {
    if (!Terminal(slots_[slot].state.load(std::memory_order_acquire))) {
      forgotten_[kept++] = slot;
      continue;
    }
    slots_[slot].state.store(kFree, std::memory_order_release);
    free_slots_.push_back(slot);
  }
  forgotten_.resize(kept);
}

absl::StatusOr<uint32_t> Producer::TakeSlot() {
  MutexLock lock(&slots_mutex_);
  SweepForgotten();
  if (free_slots_.empty()) {
    return ResourceExhausted(
        absl::StrCat("all ", geometry_.slots, " transfer slots of this process are in use"),
        {.object = "transfer slots",
         .limit = absl::StrCat(geometry_.slots, " transfers"),
         .option = "rings.slots"});
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void Producer::ReclaimArena(uint32_t head) {
  while (reclaimed_head_ != head) {
    arena_head_ = arena_after_[reclaimed_head_ & (geometry_.entries - 1)];
    ++reclaimed_head_;
  }
}

absl::Status Producer::WaitForRoom(uint32_t descriptors, int64_t deadline_ns) {
  while (true) {
    const uint32_t head = header_->head.load(std::memory_order_acquire);
    // A head outside [reclaimed, tail] can only be nonsense: take it as no progress.
    if (head - reclaimed_head_ <= tail_ - reclaimed_head_) ReclaimArena(head);
    const bool entry_free = tail_ - reclaimed_head_ < geometry_.entries;
    const uint64_t used = arena_tail_ - arena_head_;
    if (entry_free && geometry_.arena_descriptors - used >= descriptors) return absl::OkStatus();
    if (abandoned_.load(std::memory_order_acquire)) {
      return absl::UnavailableError("the daemon is gone");
    }
    if (MonotonicNanos() >= deadline_ns) {
      return Timeout("no room in the submission ring before the deadline",
                     {.object = "submission ring",
                      .limit = absl::StrCat(geometry_.entries, " entries"),
                      .option = "rings.entries"});
    }
    header_->room_waiters.store(1, std::memory_order_seq_cst);
    StoreLoadBarrier();
    if (header_->head.load(std::memory_order_seq_cst) != head) continue;
    WakeDaemon();
    FutexWait(&header_->head, head, deadline_ns);
  }
}

uint32_t Producer::Part::count() const {
  return static_cast<uint32_t>(tables == nullptr ? descriptors.size() : local_blocks.size());
}

uint32_t Producer::Part::places() const {
  if (tables != nullptr) return (count() + kPairsPerDescriptor - 1) / kPairsPerDescriptor;
  return count() <= kInlineDescriptors ? 0 : count();
}

// Cuts a request into parts of at most `places` arena places.
class Producer::Cutter {
 public:
  Cutter(const Request& request, size_t places) : request_(request), places_(places) {}

  bool empty() const {
    if (request_.tables.empty()) return done_ == request_.descriptors.size();
    return table_ == request_.tables.size() || request_.local_blocks.empty();
  }

  Part Next() {
    if (request_.tables.empty()) {
      const Part part = {.descriptors = request_.descriptors.subspan(done_, places_)};
      done_ += part.descriptors.size();
      return part;
    }
    const size_t most = places_ * kPairsPerDescriptor;
    const Part part = {.tables = &request_.tables[table_],
                       .local_blocks = request_.local_blocks.subspan(done_, most),
                       .remote_blocks = request_.remote_blocks.subspan(done_, most)};
    done_ += part.local_blocks.size();
    if (done_ == request_.local_blocks.size()) {
      done_ = 0;
      ++table_;
    }
    return part;
  }

 private:
  const Request& request_;
  const size_t places_;
  size_t done_ = 0;
  size_t table_ = 0;
};

void Producer::WriteArena(const Part& part, uint32_t start) {
  if (part.tables == nullptr) {
    const uint32_t first = std::min(part.count(), geometry_.arena_descriptors - start);
    memcpy(arena_ + start, part.descriptors.data(), first * sizeof(Descriptor));
    memcpy(arena_, part.descriptors.data() + first, (part.count() - first) * sizeof(Descriptor));
    return;
  }
  auto* const pairs = reinterpret_cast<BlockPair*>(arena_);
  const uint32_t end = geometry_.arena_descriptors * kPairsPerDescriptor;
  uint32_t at = start * kPairsPerDescriptor;
  for (uint32_t i = 0; i < part.count(); ++i) {
    pairs[at] = {.local = part.local_blocks[i], .remote = part.remote_blocks[i]};
    if (++at == end) at = 0;
  }
}

absl::Status Producer::PushEntry(const Request& request, uint32_t slot, const Part& part,
                                 int64_t room_deadline_ns, bool more) {
  HIXLD_RETURN_IF_ERROR(WaitForRoom(part.places(), room_deadline_ns));
  Entry& entry = entries_[tail_ & (geometry_.entries - 1)];
  entry.engine = request.engine;
  entry.channel = request.channel;
  entry.timeout_ns = request.timeout_ns;
  entry.slot = slot;
  entry.count = part.count();
  entry.op = static_cast<uint16_t>(request.op);
  entry.arena_index = 0;
  uint16_t flags = more ? kMore : 0;
  if (request.verdict) flags |= kVerdict;
  if (part.tables != nullptr) {
    flags |= kBlocks;
    entry.tables = *part.tables;
  } else if (part.places() == 0) {
    flags |= kInline;
    std::copy(part.descriptors.begin(), part.descriptors.end(), entry.inline_descriptors);
  }
  entry.flags = flags;
  if (part.places() > 0) {
    entry.arena_index = static_cast<uint32_t>(arena_tail_ & (geometry_.arena_descriptors - 1));
    WriteArena(part, entry.arena_index);
    arena_tail_ += part.places();
  }
  arena_after_[tail_ & (geometry_.entries - 1)] = arena_tail_;
  ++tail_;
  header_->tail.store(tail_, std::memory_order_seq_cst);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Producer::Submit(const Request& request) {
  // A part never takes more than a quarter of the arena, so that the daemon can work on one
  // while the next is written.
  Cutter cutter(request, std::max<size_t>(1, geometry_.arena_descriptors / 4));
  if (cutter.empty()) {
    return ParamInvalid("a batch needs at least one descriptor", {.object = "batch"});
  }
  MutexLock lock(&mutex_);
  if (abandoned_.load(std::memory_order_acquire)) {
    return absl::UnavailableError("the daemon is gone");
  }
  HIXLD_ASSIGN_OR_RETURN(const uint32_t slot, TakeSlot());
  slots_[slot].waiters.store(0, std::memory_order_relaxed);
  slots_[slot].state.store(kSubmitted, std::memory_order_release);
  for (bool first = true; !cutter.empty(); first = false) {
    const Part part = cutter.Next();
    // Once a part is published the rest must follow: the daemon waits for it.
    const int64_t deadline_ns = first ? request.room_deadline_ns : kNoDeadline;
    const absl::Status status = PushEntry(request, slot, part, deadline_ns, !cutter.empty());
    if (!status.ok()) {
      if (first) Release(slot);
      return status;
    }
    WakeDaemon();
  }
  return slot;
}

void Producer::WakeDaemon() {
  // Pairs with the daemon's announcement: either it sees the new tail or we see that it sleeps.
  StoreLoadBarrier();
  if (header_->daemon_sleeps.load(std::memory_order_seq_cst) == 0) return;
  if (header_->daemon_sleeps.exchange(0, std::memory_order_seq_cst) == 0) return;
  const uint64_t one = 1;
  // A full counter (EAGAIN) means that it is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

SlotState Producer::State(uint32_t slot) const {
  return static_cast<SlotState>(slots_[slot].state.load(std::memory_order_acquire));
}

bool Producer::Wait(uint32_t slot, int64_t spin_ns, int64_t deadline_ns) {
  return WaitUntil(slot, kCompleted, spin_ns, deadline_ns);
}

bool Producer::WaitVerdict(uint32_t slot, int64_t spin_ns, int64_t deadline_ns) {
  return WaitUntil(slot, kRunning, spin_ns, deadline_ns);
}

bool Producer::WaitUntil(uint32_t slot, SlotState least, int64_t spin_ns, int64_t deadline_ns) {
  Slot& s = slots_[slot];
  const int64_t spin_until = spin_ns > 0 ? MonotonicNanos() + spin_ns : 0;
  for (uint32_t i = 1; spin_ns > 0; ++i) {
    if (s.state.load(std::memory_order_acquire) >= least) return true;
    SpinPause();
    // Reading the clock costs more than looking.
    if (i % 32 != 0) continue;
    const int64_t now = MonotonicNanos();
    if (now >= std::min(spin_until, deadline_ns)) break;
    // The daemon may need this core. When it comes back late, others do: who sleeps is given it
    // sooner than who yields.
    sched_yield();
    if (MonotonicNanos() - now > kBriefYieldNs) break;
  }
  while (true) {
    uint32_t state = s.state.load(std::memory_order_acquire);
    if (state >= least) return true;
    if (abandoned_.load(std::memory_order_acquire) || MonotonicNanos() >= deadline_ns) return false;
    s.waiters.store(1, std::memory_order_seq_cst);
    StoreLoadBarrier();
    state = s.state.load(std::memory_order_seq_cst);
    if (state >= least) return true;
    FutexWait(&s.state, state, deadline_ns);
  }
}

Producer::Extents Producer::ReadExtents(uint32_t slot) const {
  const Slot& s = slots_[slot];
  Extents extents;
  const uint32_t all = std::min<uint32_t>(s.text_length, kMaxExtents);
  const uint32_t local = std::min(s.local_extents, all);
  extents.local.assign(s.extents, s.extents + local);
  extents.remote.assign(s.extents + local, s.extents + all);
  // Its text takes the place of the extents.
  const uint32_t state = s.state.load(std::memory_order_acquire);
  if (state != kRunning && state != kCompleted) return {};
  return extents;
}

Producer::Result Producer::Read(uint32_t slot) const {
  const Slot& s = slots_[slot];
  Result result;
  result.state = static_cast<SlotState>(s.state.load(std::memory_order_acquire));
  result.code = s.code;
  result.bytes = s.bytes;
  result.transfer_id = s.transfer_id;
  if (result.state == kFailed || result.state == kTimedOut) {
    result.text.assign(s.text, std::min<size_t>(s.text_length, kErrorTextBytes));
  }
  return result;
}

void Producer::Release(uint32_t slot) {
  slots_[slot].state.store(kFree, std::memory_order_release);
  MutexLock lock(&slots_mutex_);
  free_slots_.push_back(slot);
}

void Producer::Forget(uint32_t slot) {
  MutexLock lock(&slots_mutex_);
  forgotten_.push_back(slot);
}

std::vector<uint32_t> Producer::Abandon() {
  abandoned_.store(true, std::memory_order_seq_cst);
  std::vector<uint32_t> lost;
  for (uint32_t i = 0; i < geometry_.slots; ++i) {
    uint32_t state = slots_[i].state.load(std::memory_order_acquire);
    if (state != kSubmitted && state != kAccepted && state != kRunning) continue;
    slots_[i].code = static_cast<uint32_t>(ApiCode::kFailed);
    constexpr char kText[] = "the daemon ended before the transfer did";
    memcpy(slots_[i].text, kText, sizeof(kText) - 1);
    slots_[i].text_length = sizeof(kText) - 1;
    slots_[i].state.store(kFailed, std::memory_order_release);
    FutexWakeAll(&slots_[i].state);
    lost.push_back(i);
  }
  FutexWakeAll(&header_->head);
  return lost;
}

}  // namespace hixld::ring
