// Descriptors that a daemon keeps for those whom it serves already: whoever is new is refused
// before the last one is gone, since not every library that it uses survives that.
#pragma once

#include <sys/resource.h>

#include <algorithm>

namespace hixld {

constexpr int kReservedDescriptors = 64;

// Whether `fd`, the newest descriptor of this process, is one of the last. The kernel gives the
// lowest free number, so this tells how many are in use without counting them.
inline bool IsReservedDescriptor(int fd) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return false;
  const rlim_t reserve = std::min<rlim_t>(kReservedDescriptors, files.rlim_cur / 4);
  return static_cast<rlim_t>(fd) >= files.rlim_cur - reserve;
}

}  // namespace hixld
