// The gate of a direct grant: one page shared by the daemon and a client that copies by itself
// between its own memory and a peer's. The client enters before it touches the peer's memory and
// leaves after; the daemon closes the gate and waits until nobody is inside before the memory
// goes. See docs/direct-copies.md.
#pragma once

#include <atomic>
#include <cstdint>

namespace hixld::direct {

constexpr uint64_t kGateMagic = 0x4554414758494c48;
constexpr uint64_t kGateBytes = 4096;

// Kept apart: every copy writes `inside`.
struct Gate {
  uint64_t magic;
  // 0 = open. Only the daemon changes it, and a closed gate never opens again.
  std::atomic<uint32_t> closed;
  alignas(128) std::atomic<uint32_t> inside;
  // What went through, for `hixlctl` and metrics. Written by the client, so only as true as it.
  alignas(128) std::atomic<uint64_t> reads;
  std::atomic<uint64_t> writes;
  std::atomic<uint64_t> bytes_read;
  std::atomic<uint64_t> bytes_written;
  std::atomic<uint64_t> descriptors;
};
static_assert(sizeof(Gate) <= kGateBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Client: false = closed, the peer's memory may not be touched.
inline bool Enter(Gate* gate) {
  // Sequentially consistent with Close and Empty: either the daemon sees us inside, or we see that
  // it is closed.
  gate->inside.fetch_add(1, std::memory_order_seq_cst);
  if (gate->closed.load(std::memory_order_seq_cst) == 0) return true;
  gate->inside.fetch_sub(1, std::memory_order_release);
  return false;
}

inline void Leave(Gate* gate) { gate->inside.fetch_sub(1, std::memory_order_release); }

// Daemon: nobody enters any more.
inline void Close(Gate* gate) { gate->closed.store(1, std::memory_order_seq_cst); }
// Daemon, after Close: whether everybody has left.
inline bool Empty(const Gate* gate) { return gate->inside.load(std::memory_order_seq_cst) == 0; }

}  // namespace hixld::direct
