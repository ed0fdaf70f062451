// Layout of a gate, the shared memory between one copying client and the daemon (version 1).
//
//   header | lanes | regions
//
// The daemon grants a client a channel's target memory; the client copies by itself, but only
// while it is inside the gate, and the daemon closes the gate before the memory goes. The daemon
// writes `state`, `generation` and, once, all that is fixed; the client writes the lanes. Nothing
// that the client can write is used by the daemon for anything but waiting and counting. See
// docs/direct-copies.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hixld::direct {

constexpr uint64_t kMagic = 0x455441474c584948;  // "HIXLGATE" in memory order
constexpr uint32_t kLayoutVersion = 1;
// Keeps what different cores write apart; 128 covers adjacent-line prefetch and aarch64 parts
// with 128-byte lines.
constexpr size_t kCacheLine = 128;
// Threads of the client spread over so many lanes.
constexpr uint32_t kLanes = 16;

enum State : uint32_t {
  kOpen = 0,
  kClosed = 1,  // for ever: a new grant comes with a new gate
};

// How the client reaches a region.
enum class RegionKind : uint32_t {
  kFile = 0,     // at `file_offset` in the memfd number `file`, which the daemon hands over
  kProcess = 1,  // plain memory of the target's process: process_vm_readv and writev
  kHere = 2,     // plain memory of the client itself: as kProcess, with its own pid
};

struct Region {
  uint64_t address;  // where the target sees it
  uint64_t length;
  uint64_t file_offset;
  uint32_t file;
  RegionKind kind;
};
static_assert(sizeof(Region) == 32);

// What a thread of the client touches during a copy, on lines of its own.
struct alignas(kCacheLine) Lane {
  // Threads that copy now. Sequentially consistent, like `state`: whoever goes in raises it and
  // then looks at `state`; the daemon closes and then looks at it. One of them sees the other.
  std::atomic<uint32_t> inside;
  uint32_t reserved;
  // Totals of what was copied; they only grow.
  std::atomic<uint64_t> reads;
  std::atomic<uint64_t> writes;
  std::atomic<uint64_t> bytes_read;
  std::atomic<uint64_t> bytes_written;
  std::atomic<uint64_t> descriptors_read;
  std::atomic<uint64_t> descriptors_written;
};
static_assert(sizeof(Lane) == kCacheLine);

struct alignas(kCacheLine) Header {
  // Written once by the daemon, before the client gets the descriptor.
  uint64_t magic;
  uint32_t version;
  uint32_t lanes;
  uint64_t lanes_offset;
  uint64_t regions_offset;
  uint64_t regions;
  uint64_t total_bytes;
  // A batch of more bytes or descriptors goes to the daemon.
  uint64_t max_bytes;
  uint64_t max_descriptors;
  int32_t target_pid;  // of the kProcess regions; 0 when there are none
  uint32_t files;

  alignas(kCacheLine) std::atomic<uint32_t> state;  // State
  // Moves on when the target has registered memory that is not in this gate's table.
  std::atomic<uint32_t> generation;
};
static_assert(sizeof(Header) == 2 * kCacheLine);

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t LanesOffset() { return sizeof(Header); }
constexpr uint64_t RegionsOffset() { return LanesOffset() + kLanes * sizeof(Lane); }
constexpr uint64_t TotalBytes(uint64_t regions) {
  return (RegionsOffset() + regions * sizeof(Region) + 4095) / 4096 * 4096;
}

}  // namespace hixld::direct
