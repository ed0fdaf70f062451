// Waiting on a word of shared memory that another process changes.
#pragma once

#include <atomic>
#include <cstdint>

namespace hixld::ring {

// Sleeps while `*word == expected`, until woken or until `deadline_ns` (CLOCK_MONOTONIC,
// kNoDeadline = none). May return early for no reason: callers look again.
void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, int64_t deadline_ns);
// Wakes every waiter of `word`.
void FutexWakeAll(std::atomic<uint32_t>* word);

// One step of a spin loop: eases the core's other thread.
inline void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace hixld::ring
