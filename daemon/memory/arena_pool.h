// Shared memory that the daemon owns and lends out in buffers: host memory, and the imitated
// memory of a sim device.
//
// A client maps a whole arena to reach its buffer. So an arena belongs to one owner (a session)
// for all its life, and its file is never used again for another: nobody can read what another
// session has left behind.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/memory/range_allocator.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"

namespace hixld {

enum class HugePageUse : uint8_t { kOff, kTry, kRequire };

// Bytes of arenas against one limit; several pools may share one.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit) : limit_(limit) {}
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
};

// Where arenas take their ids from. Pools whose arenas one client can see share a source.
using ArenaIds = std::shared_ptr<std::atomic<uint64_t>>;

// One sealed memfd, mapped. Its pages come into being when they are touched (huge ones at once).
struct Arena {
  uint64_t id = 0;
  uint64_t owner = 0;
  uint64_t size = 0;
  bool huge_pages = false;
  // Where it starts in the pool's own address space; 0 for pools without one.
  uint64_t address = 0;
  UniqueFd fd;
  Mapping mapping;
};

class ArenaPool : public std::enable_shared_from_this<ArenaPool> {
 public:
  struct Options {
    std::string name;  // in messages and as the memfd's name: "host", "sim:0"
    // An owner's arenas grow from the minimum to this, doubling; a buffer that is larger gets an
    // arena of its own.
    uint64_t min_arena_bytes = 4 << 20;
    uint64_t arena_bytes = 64 << 20;
    uint64_t max_bytes = uint64_t{8} << 30;
    std::string max_bytes_option;  // "pools.host.max_bytes"
    HugePageUse huge_pages = HugePageUse::kOff;
    // The first address of the pool's own address space; 0: it has none.
    uint64_t base_address = 0;
    ArenaIds arena_ids;  // null: the pool numbers its arenas itself
  };

  // A buffer. Freed when it is destroyed, which takes as long as the kernel needs to free its
  // pages: milliseconds per GiB.
  class Buffer {
   public:
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    const std::shared_ptr<const Arena>& arena() const { return arena_; }
    uint64_t offset() const { return offset_; }
    uint64_t length() const { return length_; }
    std::byte* data() const { return arena_->mapping.data() + offset_; }
    // In the pool's own address space.
    uint64_t address() const { return arena_->address + offset_; }

   private:
    friend class ArenaPool;
    Buffer(std::shared_ptr<ArenaPool> pool, std::shared_ptr<const Arena> arena, uint64_t offset,
           uint64_t length);
    const std::shared_ptr<ArenaPool> pool_;
    const std::shared_ptr<const Arena> arena_;
    const uint64_t offset_;
    const uint64_t length_;
  };

  struct Stats {
    uint64_t capacity_bytes = 0;  // the limit
    uint64_t arenas = 0;
    uint64_t arena_bytes = 0;
    uint64_t used_bytes = 0;
    uint64_t buffers = 0;
    uint64_t huge_page_fallbacks = 0;
    bool huge_pages = false;  // at least one arena has them
  };

  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kHugePageBytes = 2 << 20;
  static constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;

  static std::shared_ptr<ArenaPool> Create(Options options);

  // A zeroed buffer of at least `length` bytes, rounded up to whole pages. `alignment` is a power
  // of two up to 1 GiB, or 0 for a page; it holds for the offset in the arena and for address().
  // RESOURCE_EXHAUSTED names the limit and its option; PARAM_INVALID for a bad length or alignment.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(uint64_t owner, uint64_t length,
                                                   uint64_t alignment);
  Stats stats() const;
  const Options& options() const { return options_; }

  // From now on, freed memory keeps its contents. A daemon that stops calls it, so that clients
  // go on with their mappings until the next daemon takes them over.
  void KeepContents() { keep_contents_.store(true, std::memory_order_relaxed); }

 private:
  struct Slot {
    std::shared_ptr<const Arena> arena;
    RangeAllocator ranges;
    uint64_t buffers = 0;
  };
  struct Owner {
    std::map<uint64_t, Slot> slots;  // by arena id
    uint64_t next_arena_bytes = 0;
  };

  explicit ArenaPool(Options options);

  std::unique_ptr<Buffer> TakeFromArenas(uint64_t owner, uint64_t length, uint64_t alignment);
  std::unique_ptr<Buffer> TakeFrom(Slot* slot, uint64_t length, uint64_t alignment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::unique_ptr<Buffer>> TakeFromNewArena(uint64_t owner, uint64_t length,
                                                           uint64_t alignment);
  absl::StatusOr<std::shared_ptr<Arena>> MakeArena(uint64_t owner, uint64_t size);
  absl::StatusOr<UniqueFd> MakeFile(uint64_t size, bool* huge_pages);
  // Takes room for a new arena from the budget and the address space; returns its size.
  absl::StatusOr<uint64_t> Reserve(uint64_t owner, uint64_t length);
  absl::Status AssignAddress(Arena* arena);
  void Discard(const Arena& arena);
  void Clear(const Buffer& buffer);
  void Release(const Buffer& buffer);

  const Options options_;
  const ArenaIds arena_ids_;
  MemoryBudget budget_;
  std::atomic<uint64_t> fallbacks_{0};
  std::atomic<bool> keep_contents_{false};
  mutable Mutex mutex_;
  std::map<uint64_t, Owner> owners_ ABSL_GUARDED_BY(mutex_);
  // Which part of the pool's own address space is taken.
  RangeAllocator addresses_ ABSL_GUARDED_BY(mutex_);
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hixld
