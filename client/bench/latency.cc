#include "client/bench/latency.h"

#include <algorithm>
#include <cmath>

namespace hixld::bench {

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  total_ += other.total_;
  max_ = std::max(max_, other.max_);
}

double LatencyHistogram::Value(size_t bucket) {
  if (bucket < 2 * kSub) return static_cast<double>(bucket);
  const size_t shift = bucket / kSub - 1;
  const uint64_t low = static_cast<uint64_t>(bucket - kSub * shift) << shift;
  return static_cast<double>(low) + static_cast<double>((uint64_t{1} << shift) - 1) / 2;
}

double LatencyHistogram::Quantile(double fraction) const {
  if (total_ == 0) return 0;
  const uint64_t wanted =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(std::clamp(fraction, 0.0, 1.0) *
                                                            static_cast<double>(total_))));
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= wanted) return std::min(Value(i), static_cast<double>(max_));
  }
  return static_cast<double>(max_);
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace hixld::bench
