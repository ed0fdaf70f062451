#include "proto/ring/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "proto/base/clock.h"

namespace hixld::ring {

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, int64_t deadline_ns) {
  timespec deadline = {.tv_sec = deadline_ns / kNanosPerSecond,
                       .tv_nsec = deadline_ns % kNanosPerSecond};
  // WAIT_BITSET takes an absolute CLOCK_MONOTONIC time. Not FUTEX_PRIVATE: two processes share it.
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_BITSET, expected,
          deadline_ns == kNoDeadline ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace hixld::ring
