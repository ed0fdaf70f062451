// How long operations took: a histogram with a fixed relative error, and medians.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hixld::bench {

// Durations in nanoseconds. Below 256 ns exact; above, buckets are 1/128 of their value wide, so
// that a quantile is off by less than 0.8 %. Adding touches one counter and allocates nothing.
// Not thread-safe: one per thread, merged at the end.
class LatencyHistogram {
 public:
  void Add(int64_t nanos) {
    const uint64_t value = nanos < 0 ? 0 : static_cast<uint64_t>(nanos);
    ++counts_[Bucket(value)];
    ++total_;
    if (value > max_) max_ = value;
  }
  void Merge(const LatencyHistogram& other);
  // The smallest duration that at least `fraction` (0..1) of all do not exceed; 0 when empty.
  double Quantile(double fraction) const;
  uint64_t count() const { return total_; }
  // Exact.
  uint64_t max() const { return max_; }

 private:
  static constexpr int kSubBits = 7;
  static constexpr size_t kSub = size_t{1} << kSubBits;

  static size_t Bucket(uint64_t value) {
    if (value < 2 * kSub) return value;
    const int shift = 63 - __builtin_clzll(value) - kSubBits;
    return kSub * static_cast<size_t>(shift) + (value >> shift);
  }
  // The middle of a bucket.
  static double Value(size_t bucket);

  std::array<uint64_t, kSub*(64 - kSubBits + 1)> counts_ = {};
  uint64_t total_ = 0;
  uint64_t max_ = 0;
};

// The middle value; of an even number the mean of the middle two; 0 of none.
double Median(std::vector<double> values);

}  // namespace hixld::bench
