#include "client/bench/latency.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "client/bench/plan.h"

namespace hixld::bench {
namespace {

TEST_CASE("small durations are exact") {
  auto histogram = std::make_unique<LatencyHistogram>();
  for (int64_t i = 1; i <= 100; ++i) histogram->Add(i);
  CHECK(histogram->Quantile(0.5) == 50);
  CHECK(histogram->Quantile(0.99) == 99);
  CHECK(histogram->Quantile(0) == 1);
  CHECK(histogram->Quantile(1) == 100);
  CHECK(histogram->max() == 100);
}

TEST_CASE("quantiles of any durations are within 0.8 %") {
  auto histogram = std::make_unique<LatencyHistogram>();
  std::vector<uint64_t> values;
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(random.Next() >> (4 + random.Below(56)));
    histogram->Add(static_cast<int64_t>(values.back()));
  }
  std::sort(values.begin(), values.end());
  for (const double fraction : {0.01, 0.25, 0.5, 0.9, 0.99, 0.999}) {
    const auto exact = static_cast<double>(
        values[static_cast<size_t>(fraction * static_cast<double>(values.size())) - 1]);
    INFO(fraction);
    CHECK(histogram->Quantile(fraction) == Approx(exact).epsilon(0.008));
  }
  CHECK(histogram->max() == values.back());
}

TEST_CASE("the ends of the range") {
  auto histogram = std::make_unique<LatencyHistogram>();
  CHECK(histogram->Quantile(0.5) == 0);
  histogram->Add(-5);
  CHECK(histogram->Quantile(1) == 0);
  histogram->Add(INT64_MAX);
  CHECK(histogram->Quantile(1) == Approx(static_cast<double>(INT64_MAX)).epsilon(0.008));
}

TEST_CASE("merging adds up") {
  auto one = std::make_unique<LatencyHistogram>();
  auto two = std::make_unique<LatencyHistogram>();
  one->Add(10);
  two->Add(20);
  two->Add(30);
  one->Merge(*two);
  CHECK(one->count() == 3);
  CHECK(one->Quantile(0.5) == 20);
  CHECK(one->max() == 30);
}

TEST_CASE("the median of few") {
  CHECK(Median({}) == 0);
  CHECK(Median({3}) == 3);
  CHECK(Median({3, 1, 2}) == 2);
  CHECK(Median({4, 1, 3, 2}) == 2.5);
}

}  // namespace
}  // namespace hixld::bench
