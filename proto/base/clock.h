// Monotonic time in nanoseconds: what every deadline in the daemon and the client is kept in.
#pragma once

#include <time.h>

#include <cstdint>

namespace hixld {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr int64_t kNanosPerSecond = 1'000'000'000;
// A deadline that never comes.
constexpr int64_t kNoDeadline = INT64_MAX;

inline int64_t MonotonicNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanosPerSecond + now.tv_nsec;
}

}  // namespace hixld
