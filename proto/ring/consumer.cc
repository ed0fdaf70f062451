#include "proto/ring/consumer.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/barrier.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"
#include "proto/ring/futex.h"

namespace hixld::ring {
namespace {

absl::Status Nonsense(absl::string_view field, uint64_t value, absl::string_view allowed) {
  return ParamInvalid(
      absl::StrCat("submission ring: ", field, " is ", value, "; allowed: ", allowed),
      {.object = "submission ring", .allowed = std::string(allowed)});
}

// Reads shared memory that may change meanwhile, without a data race in the language's sense:
// word by word, relaxed.
void CopyShared(const void* from, void* to, size_t bytes) {
  const auto* source = static_cast<const uint64_t*>(from);
  auto* target = static_cast<uint64_t*>(to);
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) {
    target[i] = __atomic_load_n(source + i, __ATOMIC_RELAXED);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Consumer>> Consumer::Create(const Geometry& geometry) {
  const uint64_t bytes = TotalBytes(geometry);
  HIXLD_ASSIGN_OR_RETURN(UniqueFd memory_fd, CreateSealedMemfd("hixld-rings", bytes));
  HIXLD_ASSIGN_OR_RETURN(Mapping memory, MapShared(memory_fd.get(), 0, bytes));
  UniqueFd wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd.valid()) return ErrnoError(errno, "create an eventfd");
  return std::unique_ptr<Consumer>(
      new Consumer(geometry, std::move(memory_fd), std::move(memory), std::move(wake_fd)));
}

Consumer::Consumer(const Geometry& geometry, UniqueFd memory_fd, Mapping memory, UniqueFd wake_fd)
    : geometry_(geometry),
      memory_fd_(std::move(memory_fd)),
      memory_(std::move(memory)),
      wake_fd_(std::move(wake_fd)),
      header_(reinterpret_cast<Header*>(memory_.data())),
      active_(geometry.slots) {
  entries_ = reinterpret_cast<Entry*>(memory_.data() + EntriesOffset());
  slots_ = reinterpret_cast<Slot*>(memory_.data() + SlotsOffset(geometry));
  arena_ = reinterpret_cast<Descriptor*>(memory_.data() + ArenaOffset(geometry));
  header_->version = kLayoutVersion;
  header_->entries = geometry.entries;
  header_->slots = geometry.slots;
  header_->arena_descriptors = geometry.arena_descriptors;
  header_->entries_offset = EntriesOffset();
  header_->slots_offset = SlotsOffset(geometry);
  header_->arena_offset = ArenaOffset(geometry);
  header_->total_bytes = memory_.size();
  header_->daemon_sleeps.store(1, std::memory_order_relaxed);
  header_->magic = kMagic;
}

absl::Status Consumer::CheckEntry(const Entry& entry) const {
  if (entry.slot >= geometry_.slots) {
    return Nonsense("slot", entry.slot, absl::StrCat("0..", geometry_.slots - 1));
  }
  if (entry.op > static_cast<uint16_t>(Op::kWrite)) return Nonsense("op", entry.op, "0..1");
  const bool both = (entry.flags & kInline) != 0 && (entry.flags & kBlocks) != 0;
  if (both || (entry.flags & ~(kInline | kMore | kBlocks | kVerdict)) != 0) {
    return Nonsense("flags", entry.flags, "0..14 without inline and blocks together");
  }
  const uint32_t most = (entry.flags & kInline) != 0 ? kInlineDescriptors
                        : (entry.flags & kBlocks) != 0
                            ? geometry_.arena_descriptors * kPairsPerDescriptor
                            : geometry_.arena_descriptors;
  if (entry.count == 0 || entry.count > most) {
    return Nonsense("count", entry.count, absl::StrCat("1..", most));
  }
  if (entry.arena_index >= geometry_.arena_descriptors) {
    return Nonsense("arena index", entry.arena_index,
                    absl::StrCat("0..", geometry_.arena_descriptors - 1));
  }
  if (collecting_) {
    if (entry.slot != partial_.slot) {
      return Nonsense("slot of a continued batch", entry.slot, absl::StrCat(partial_.slot));
    }
  } else if (active_[entry.slot].load(std::memory_order_acquire)) {
    return Nonsense("slot", entry.slot, "a slot without a running transfer");
  }
  return absl::OkStatus();
}

void Consumer::Append(const Descriptor* descriptors, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    // The arena may change meanwhile: each word is read once.
    Descriptor copy;
    CopyShared(&descriptors[i], &copy, sizeof(copy));
    partial_.local.push_back(copy.local);
    partial_.remote.push_back(copy.remote);
    partial_.lengths.push_back(copy.length);
  }
}

void Consumer::AppendBlocks(const Entry& entry) {
  const BlockTables& tables = entry.tables;
  const auto* const pairs = reinterpret_cast<const BlockPair*>(arena_);
  const uint32_t end = geometry_.arena_descriptors * kPairsPerDescriptor;
  uint32_t at = entry.arena_index * kPairsPerDescriptor;
  for (uint32_t i = 0; i < entry.count; ++i) {
    BlockPair copy;
    CopyShared(&pairs[at], &copy, sizeof(copy));
    partial_.local.push_back(tables.local_base + copy.local * tables.local_stride);
    partial_.remote.push_back(tables.remote_base + copy.remote * tables.remote_stride);
    partial_.lengths.push_back(tables.block_bytes);
    if (++at == end) at = 0;
  }
}

void Consumer::CopyDescriptors(const Entry& entry) {
  const size_t after = partial_.size() + entry.count;
  partial_.local.reserve(after);
  partial_.remote.reserve(after);
  partial_.lengths.reserve(after);
  if ((entry.flags & kInline) != 0) return Append(entry.inline_descriptors, entry.count);
  if ((entry.flags & kBlocks) != 0) return AppendBlocks(entry);
  const uint32_t first = std::min(entry.count, geometry_.arena_descriptors - entry.arena_index);
  Append(arena_ + entry.arena_index, first);
  Append(arena_, entry.count - first);
}

void Consumer::AdvanceHead() {
  ++head_;
  header_->head.store(head_, std::memory_order_seq_cst);
  StoreLoadBarrier();
  if (header_->room_waiters.load(std::memory_order_seq_cst) == 0) return;
  header_->room_waiters.store(0, std::memory_order_seq_cst);
  FutexWakeAll(&header_->head);
}

void Consumer::Begin(const Entry& entry) {
  partial_.engine = entry.engine;
  partial_.channel = entry.channel;
  partial_.timeout_ns = entry.timeout_ns;
  partial_.slot = entry.slot;
  partial_.op = static_cast<Op>(entry.op);
  partial_.verdict = (entry.flags & kVerdict) != 0;
  partial_.local.clear();
  partial_.remote.clear();
  partial_.lengths.clear();
  collecting_ = true;
  too_long_ = false;
}

absl::StatusOr<bool> Consumer::Next(uint32_t max_descriptors, Batch* batch) {
  while (true) {
    const uint32_t tail = header_->tail.load(std::memory_order_acquire);
    if (tail == head_) return false;
    if (tail - head_ > geometry_.entries) {
      return Nonsense("tail", tail, absl::StrCat(head_, "..", head_ + geometry_.entries));
    }
    Entry entry;
    CopyShared(&entries_[head_ & (geometry_.entries - 1)], &entry, sizeof(entry));
    HIXLD_RETURN_IF_ERROR(CheckEntry(entry));
    if (!collecting_) {
      Begin(entry);
      active_[entry.slot].store(true, std::memory_order_relaxed);
      in_flight_.fetch_add(1, std::memory_order_relaxed);
      slots_[entry.slot].state.store(kAccepted, std::memory_order_release);
    }
    if (partial_.size() + entry.count > max_descriptors) too_long_ = true;
    if (!too_long_) CopyDescriptors(entry);
    AdvanceHead();
    if ((entry.flags & kMore) != 0) continue;
    collecting_ = false;
    if (too_long_) {
      Publish(partial_.slot, kFailed, static_cast<uint32_t>(ApiCode::kResourceExhausted), 0, 0,
              absl::StrCat("the batch has more than ", max_descriptors,
                           " descriptors; option limits.max_descriptors_per_transfer"));
      continue;
    }
    *batch = std::move(partial_);
    return true;
  }
}

bool Consumer::TrySleep() {
  header_->daemon_sleeps.store(1, std::memory_order_seq_cst);
  StoreLoadBarrier();
  if (header_->tail.load(std::memory_order_seq_cst) == head_) return true;
  StayAwake();
  return false;
}

void Consumer::StayAwake() { header_->daemon_sleeps.store(0, std::memory_order_seq_cst); }

void Consumer::SayRunning(uint32_t slot, absl::Span<const Extent> local,
                          absl::Span<const Extent> remote) {
  Slot& s = slots_[slot];
  local = local.subspan(0, kMaxExtents);
  remote = remote.subspan(0, kMaxExtents - local.size());
  std::copy(local.begin(), local.end(), s.extents);
  std::copy(remote.begin(), remote.end(), s.extents + local.size());
  s.local_extents = static_cast<uint32_t>(local.size());
  s.text_length = static_cast<uint32_t>(local.size() + remote.size());
  SetState(&s, kRunning);
}

void Consumer::SetState(Slot* slot, SlotState state) {
  slot->state.store(state, std::memory_order_seq_cst);
  StoreLoadBarrier();
  if (slot->waiters.load(std::memory_order_seq_cst) == 0) return;
  slot->waiters.store(0, std::memory_order_relaxed);
  FutexWakeAll(&slot->state);
}

void Consumer::Publish(uint32_t slot, SlotState state, uint32_t code, uint64_t bytes,
                       uint64_t transfer_id, absl::string_view text) {
  Slot& s = slots_[slot];
  s.code = code;
  s.bytes = bytes;
  s.transfer_id = transfer_id;
  const size_t length = std::min(text.size(), kErrorTextBytes);
  if (length > 0) memcpy(s.text, text.data(), length);
  // After SayRunning it goes on telling how many extents there are.
  if (state != kCompleted) s.text_length = static_cast<uint32_t>(length);
  // Before the state: the client may reuse the slot as soon as it sees the state.
  active_[slot].store(false, std::memory_order_release);
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  SetState(&s, state);
}

}  // namespace hixld::ring
