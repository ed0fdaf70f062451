#include "daemon/memory/arena_pool.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// The pool's own address space: far more than any device has, so that addresses never run out
// before memory does, and so that the spaces of two pools can lie 2^48 apart.
constexpr uint64_t kAddressSpaceBytes = uint64_t{1} << 48;

uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool PowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

bool MemoryBudget::Take(uint64_t bytes) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

ArenaPool::Buffer::Buffer(std::shared_ptr<ArenaPool> pool, std::shared_ptr<const Arena> arena,
                          uint64_t offset, uint64_t length)
    : pool_(std::move(pool)), arena_(std::move(arena)), offset_(offset), length_(length) {}

ArenaPool::Buffer::~Buffer() { pool_->Release(*this); }

std::shared_ptr<ArenaPool> ArenaPool::Create(Options options) {
  return std::shared_ptr<ArenaPool>(new ArenaPool(std::move(options)));
}

ArenaPool::ArenaPool(Options options)
    : options_(std::move(options)),
      arena_ids_(options_.arena_ids != nullptr ? options_.arena_ids
                                               : std::make_shared<std::atomic<uint64_t>>(1)),
      budget_(options_.max_bytes),
      addresses_(kAddressSpaceBytes) {}

absl::StatusOr<std::unique_ptr<ArenaPool::Buffer>> ArenaPool::Allocate(uint64_t owner,
                                                                       uint64_t length,
                                                                       uint64_t alignment) {
  if (length == 0) {
    return ParamInvalid(absl::StrCat(options_.name, " buffer of 0 bytes"),
                        {.object = "buffer length", .allowed = "> 0"});
  }
  if (alignment != 0 && (!PowerOfTwo(alignment) || alignment > kMaxAlignment)) {
    return ParamInvalid(absl::StrCat(options_.name, " buffer with alignment ", alignment),
                        {.object = "buffer alignment",
                         .allowed = absl::StrCat("0, or a power of two up to ", kMaxAlignment)});
  }
  if (length > options_.max_bytes) {
    return ResourceExhausted(
        absl::StrCat(options_.name, " buffer of ", length, " bytes is larger than the pool"),
        {.object = absl::StrCat("pool ", options_.name),
         .limit = absl::StrCat(options_.max_bytes, " bytes"),
         .option = options_.max_bytes_option});
  }
  const uint64_t rounded = RoundUp(length, kPageBytes);
  const uint64_t aligned = std::max(alignment, kPageBytes);
  std::unique_ptr<Buffer> buffer = TakeFromArenas(owner, rounded, aligned);
  if (buffer != nullptr) return buffer;
  return TakeFromNewArena(owner, rounded, aligned);
}

std::unique_ptr<ArenaPool::Buffer> ArenaPool::TakeFromArenas(uint64_t owner, uint64_t length,
                                                             uint64_t alignment) {
  MutexLock lock(&mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return nullptr;
  for (auto& [id, slot] : found->second.slots) {
    std::unique_ptr<Buffer> buffer = TakeFrom(&slot, length, alignment);
    if (buffer != nullptr) return buffer;
  }
  return nullptr;
}

std::unique_ptr<ArenaPool::Buffer> ArenaPool::TakeFrom(Slot* slot, uint64_t length,
                                                       uint64_t alignment) {
  const std::optional<uint64_t> offset = slot->ranges.Allocate(length, alignment);
  if (!offset.has_value()) return nullptr;
  ++slot->buffers;
  used_bytes_ += length;
  return std::unique_ptr<Buffer>(new Buffer(shared_from_this(), slot->arena, *offset, length));
}

absl::StatusOr<std::unique_ptr<ArenaPool::Buffer>> ArenaPool::TakeFromNewArena(uint64_t owner,
                                                                               uint64_t length,
                                                                               uint64_t alignment) {
  HIXLD_ASSIGN_OR_RETURN(const uint64_t size, Reserve(owner, length));
  absl::StatusOr<std::shared_ptr<Arena>> arena = MakeArena(owner, size);
  if (!arena.ok()) budget_.Give(size);
  MutexLock lock(&mutex_);
  if (!arena.ok()) {
    const auto found = owners_.find(owner);
    if (found != owners_.end() && found->second.slots.empty()) owners_.erase(found);
    return arena.status();
  }
  const uint64_t id = (*arena)->id;
  Slot slot{.arena = *std::move(arena), .ranges = RangeAllocator(size), .buffers = 0};
  auto [it, added] = owners_[owner].slots.emplace(id, std::move(slot));
  // An arena starts at a multiple of every allowed alignment, so that this cannot fail.
  return TakeFrom(&it->second, length, alignment);
}

absl::StatusOr<uint64_t> ArenaPool::Reserve(uint64_t owner, uint64_t length) {
  const uint64_t unit = options_.huge_pages == HugePageUse::kOff ? kPageBytes : kHugePageBytes;
  const uint64_t exact = RoundUp(length, unit);
  uint64_t preferred = exact;
  {
    MutexLock lock(&mutex_);
    uint64_t& next = owners_[owner].next_arena_bytes;
    if (next == 0) next = RoundUp(std::min(options_.min_arena_bytes, options_.arena_bytes), unit);
    if (exact <= options_.arena_bytes) {
      preferred = std::max(exact, next);
      next = std::min(next * 2, RoundUp(options_.arena_bytes, unit));
    }
  }
  if (budget_.Take(preferred)) return preferred;
  if (preferred > exact && budget_.Take(exact)) return exact;
  return ResourceExhausted(
      absl::StrCat("pool ", options_.name, " has no room for ", length,
                   " bytes more: ", budget_.used(), " of ", budget_.limit(), " are taken"),
      {.object = absl::StrCat("pool ", options_.name),
       .limit = absl::StrCat(budget_.limit(), " bytes"),
       .option = options_.max_bytes_option});
}

absl::StatusOr<UniqueFd> ArenaPool::MakeFile(uint64_t size, bool* huge_pages) {
  const std::string name = absl::StrCat("hixld-", options_.name);
  if (*huge_pages) {
    absl::StatusOr<UniqueFd> file = CreateSealedMemfd(name, size, /*huge_pages=*/true);
    if (file.ok() || options_.huge_pages == HugePageUse::kRequire) return file;
    fallbacks_.fetch_add(1, std::memory_order_relaxed);
    *huge_pages = false;
  }
  return CreateSealedMemfd(name, size, /*huge_pages=*/false);
}

absl::Status ArenaPool::AssignAddress(Arena* arena) {
  if (options_.base_address == 0) return absl::OkStatus();
  MutexLock lock(&mutex_);
  const std::optional<uint64_t> offset = addresses_.Allocate(arena->size, kMaxAlignment);
  if (!offset.has_value()) return Failed(absl::StrCat("pool ", options_.name, " has no addresses"));
  arena->address = options_.base_address + *offset;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Arena>> ArenaPool::MakeArena(uint64_t owner, uint64_t size) {
  auto arena = std::make_shared<Arena>();
  arena->id = arena_ids_->fetch_add(1, std::memory_order_relaxed);
  arena->owner = owner;
  arena->size = size;
  arena->huge_pages = options_.huge_pages != HugePageUse::kOff;
  HIXLD_ASSIGN_OR_RETURN(arena->fd, MakeFile(size, &arena->huge_pages));
  HIXLD_ASSIGN_OR_RETURN(arena->mapping, MapShared(arena->fd.get(), 0, size));
  HIXLD_RETURN_IF_ERROR(AssignAddress(arena.get()));
  return arena;
}

// Whoever kept a descriptor or mapping of a dead arena finds zeros in it, and the memory is the
// machine's again although the file lives on.
void ArenaPool::Discard(const Arena& arena) {
  if (keep_contents_.load(std::memory_order_relaxed)) return;
  fallocate(arena.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
            static_cast<off_t>(arena.size));
}

// The next buffer at this place starts with zeros, and its pages are free until then. Huge pages
// stay: a hole would give their reservation back, and touching it could then raise SIGBUS.
void ArenaPool::Clear(const Buffer& buffer) {
  const Arena& arena = *buffer.arena();
  if (!arena.huge_pages &&
      fallocate(arena.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(buffer.offset()), static_cast<off_t>(buffer.length())) == 0) {
    return;
  }
  memset(buffer.data(), 0, buffer.length());
}

void ArenaPool::Release(const Buffer& buffer) {
  const Arena& arena = *buffer.arena();
  bool last;
  {
    MutexLock lock(&mutex_);
    Owner& owner = owners_.at(arena.owner);
    Slot& slot = owner.slots.at(arena.id);
    used_bytes_ -= buffer.length();
    last = --slot.buffers == 0;
    if (last) {
      owner.slots.erase(arena.id);
      if (owner.slots.empty()) owners_.erase(arena.owner);
      if (arena.address != 0) {
        addresses_.Free(arena.address - options_.base_address, arena.size);
      }
    }
  }
  if (last) {
    Discard(arena);
    budget_.Give(arena.size);
    return;
  }
  // Nobody else can be given this place meanwhile: it is free only after the second lock.
  Clear(buffer);
  MutexLock lock(&mutex_);
  const auto owner = owners_.find(arena.owner);
  if (owner == owners_.end()) return;
  const auto slot = owner->second.slots.find(arena.id);
  if (slot != owner->second.slots.end()) slot->second.ranges.Free(buffer.offset(), buffer.length());
}

ArenaPool::Stats ArenaPool::stats() const {
  Stats stats;
  stats.capacity_bytes = options_.max_bytes;
  stats.huge_page_fallbacks = fallbacks_.load(std::memory_order_relaxed);
  stats.arena_bytes = budget_.used();
  MutexLock lock(&mutex_);
  stats.used_bytes = used_bytes_;
  for (const auto& [id, owner] : owners_) {
    stats.arenas += owner.slots.size();
    for (const auto& [arena_id, slot] : owner.slots) {
      stats.buffers += slot.buffers;
      stats.huge_pages |= slot.arena->huge_pages;
    }
  }
  return stats;
}

}  // namespace hixld
