// Layout of the shared-memory rings between one client process and the daemon (version 3).
//
//   header | submission entries | slots | descriptor arena
//
// The client writes entries and advances `tail`; the daemon copies them out, then advances `head`.
// Every transfer has a slot, in which the daemon publishes how it stands: asking for a status is
// a load. Either side may find nonsense written by the other: the daemon checks copies and trusts
// nothing here, the client only loses its own transfers. See docs/ring-protocol.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hixld::ring {

constexpr uint64_t kMagic = 0x474e49524c584948;  // "HIXLRING" in memory order
constexpr uint32_t kLayoutVersion = 3;
// Keeps what different cores write apart; 128 covers adjacent-line prefetch and aarch64 parts
// with 128-byte lines.
constexpr size_t kCacheLine = 128;
constexpr uint32_t kInlineDescriptors = 3;
constexpr size_t kErrorTextBytes = 464;

// One contiguous copy: `length` bytes between the client's `local` and the peer's `remote`
// address.
struct Descriptor {
  uint64_t local;
  uint64_t remote;
  uint64_t length;
};
static_assert(sizeof(Descriptor) == 24);

// Blocks of one size at equal distances on both sides, as a paged KV cache has them: pair (l, r)
// copies `block_bytes` between local_base + l * local_stride and remote_base + r * remote_stride.
// The sums wrap at 2^64; like every address they are checked against the regions.
struct BlockTables {
  uint64_t local_base;
  uint64_t local_stride;
  uint64_t remote_base;
  uint64_t remote_stride;
  uint64_t block_bytes;
};

struct BlockPair {
  uint32_t local;
  uint32_t remote;
};
static_assert(sizeof(BlockPair) == 8);
// The arena holds pairs in the places of descriptors.
constexpr uint32_t kPairsPerDescriptor = sizeof(Descriptor) / sizeof(BlockPair);

enum class Op : uint16_t { kRead = 0, kWrite = 1 };

enum EntryFlags : uint16_t {
  kInline = 1,   // the descriptors are in the entry, `count` <= kInlineDescriptors
  kMore = 2,     // the batch goes on in the next entry
  kBlocks = 4,   // `tables` is set and the arena holds `count` pairs; never together with kInline
  kVerdict = 8,  // the daemon says when the transfer has been accepted (kRunning)
};

// 128 bytes each, so that entries start on lines of their own.
struct Entry {
  uint64_t engine;      // engine handle of OpenEngine
  uint64_t channel;     // channel id of Connect
  uint64_t timeout_ns;  // from acceptance; 0 = none
  uint32_t slot;
  uint32_t count;        // descriptors, or pairs of blocks, of this entry
  uint32_t arena_index;  // of the first one; they wrap at the arena's end
  uint16_t op;
  uint16_t flags;
  union {
    Descriptor inline_descriptors[kInlineDescriptors];
    BlockTables tables;
  };
  uint64_t reserved[2];
};
static_assert(sizeof(Entry) == 128);

enum SlotState : uint32_t {
  kFree = 0,       // the client may use it
  kSubmitted = 1,  // written by the client before it publishes the entry
  kAccepted = 2,   // the daemon has copied the entry; after its death these are the lost ones
  kRunning = 3,    // with kVerdict: every range is registered, and `extents` says where; also lost
  kCompleted = 4,
  kFailed = 5,
  kTimedOut = 6,
};

// Registered memory around ranges of a transfer.
struct Extent {
  uint64_t begin;
  uint64_t end;
};
constexpr size_t kMaxExtents = kErrorTextBytes / sizeof(Extent);

struct alignas(kCacheLine) Slot {
  std::atomic<uint32_t> state;    // SlotState; also the futex word of a waiting client thread
  std::atomic<uint32_t> waiters;  // not 0: wake the futex on a terminal state
  uint32_t code;                  // API result code of a failure, valid after the state
  uint32_t text_length;           // with kRunning: how many `extents` there are
  uint64_t bytes;                 // moved
  uint64_t transfer_id;           // the daemon's name for it, in logs and `hixlctl transfers`
  uint32_t local_extents;  // with kRunning: so many are of the client's engine, then the peer's
  uint8_t reserved[12];
  union {
    char text[kErrorTextBytes];
    Extent extents[kMaxExtents];
  };
};
static_assert(sizeof(Slot) == 512);

struct alignas(kCacheLine) Header {
  // Written once by the daemon, before the client gets the descriptor.
  uint64_t magic;
  uint32_t version;
  uint32_t entries;  // power of two
  uint32_t slots;
  uint32_t arena_descriptors;  // power of two
  uint64_t entries_offset;
  uint64_t slots_offset;
  uint64_t arena_offset;
  uint64_t total_bytes;
  // Moves on whenever memory that some transfer may name is registered no more.
  std::atomic<uint32_t> regions_gone;

  // Written by the client.
  alignas(kCacheLine) std::atomic<uint32_t> tail;
  // Not 0: a client thread waits for room; the daemon wakes the futex on `head`.
  std::atomic<uint32_t> room_waiters;

  // Written by the daemon.
  alignas(kCacheLine) std::atomic<uint32_t> head;

  // 1: the daemon sleeps; who turns it into 0 writes the eventfd.
  alignas(kCacheLine) std::atomic<uint32_t> daemon_sleeps;
};
static_assert(sizeof(Header) == 512);

static_assert(std::atomic<uint32_t>::is_always_lock_free);

struct Geometry {
  uint32_t entries = 1024;
  uint32_t slots = 4096;
  uint32_t arena_descriptors = 65536;
};

constexpr uint32_t kMaxEntries = 65536;
constexpr uint32_t kMaxSlots = 65536;
constexpr uint32_t kMaxArenaDescriptors = 1U << 20;

constexpr uint64_t EntriesOffset() { return sizeof(Header); }
constexpr uint64_t SlotsOffset(const Geometry& g) {
  return EntriesOffset() + uint64_t{g.entries} * sizeof(Entry);
}
constexpr uint64_t ArenaOffset(const Geometry& g) {
  return SlotsOffset(g) + uint64_t{g.slots} * sizeof(Slot);
}
constexpr uint64_t TotalBytes(const Geometry& g) {
  const uint64_t bytes = ArenaOffset(g) + uint64_t{g.arena_descriptors} * sizeof(Descriptor);
  return (bytes + 4095) / 4096 * 4096;
}

}  // namespace hixld::ring
