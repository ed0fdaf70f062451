#include "client/bench/progress.h"

#include <cstdio>

#include "client/bench/parse.h"
#include "proto/base/clock.h"

namespace hixld::bench {
namespace {

constexpr int64_t kInterval = 5 * kNanosPerSecond;

}  // namespace

Progress::Progress(uint64_t cases, bool quiet)
    : cases_(cases), quiet_(quiet), started_(MonotonicNanos()), spoke_(started_) {}

void Progress::Step() {
  ++done_;
  const int64_t now = MonotonicNanos();
  if (quiet_ || done_ == cases_ || now - spoke_ < kInterval) return;
  spoke_ = now;
  const int64_t left =
      (now - started_) / static_cast<int64_t>(done_) * static_cast<int64_t>(cases_ - done_);
  std::fprintf(stderr, "hixl-bench: %lu of %lu cases, about %s left\n",
               static_cast<unsigned long>(done_), static_cast<unsigned long>(cases_),
               FormatDuration(left).c_str());
}

}  // namespace hixld::bench
