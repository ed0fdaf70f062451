// How far a sweep is, on standard error.
#pragma once

#include <cstdint>
#include <string>

namespace hixld::bench {

// Speaks only when a sweep lasts, and not every time it is told.
class Progress {
 public:
  Progress(uint64_t cases, bool quiet);
  // One more case is done.
  void Step();

 private:
  const uint64_t cases_;
  const bool quiet_;
  const int64_t started_;
  int64_t spoke_;
  uint64_t done_ = 0;
};

}  // namespace hixld::bench
