#include "daemon/telemetry/metrics.h"

#include <prometheus/metric_family.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "daemon/telemetry/node_metrics.h"
#include "daemon/telemetry/transfer_metrics.h"

namespace hixld {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

const MetricFamily* FindFamily(const std::vector<MetricFamily>& families, const std::string& name) {
  for (const MetricFamily& family : families) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

// The metric of `name` that has all of `labels`.
ClientMetric Find(const Metrics& metrics, const std::string& name, const MetricLabels& labels) {
  const std::vector<MetricFamily> families = metrics.Collect();
  const MetricFamily* const family = FindFamily(families, name);
  INFO(name);
  REQUIRE(family != nullptr);
  for (const ClientMetric& metric : family->metric) {
    size_t matching = 0;
    for (const auto& [label, value] : labels) {
      for (const auto& have : metric.label) matching += have.name == label && have.value == value;
    }
    if (matching == labels.size()) return metric;
  }
  FAIL("no metric with these labels");
  return {};
}

TEST_CASE("the same name and labels give the same counter") {
  Metrics metrics;
  Counter* const a = metrics.AddCounter("x_total", "X.", {{"k", "a"}});
  CHECK(metrics.AddCounter("x_total", "X.", {{"k", "a"}}) == a);
  CHECK(metrics.AddCounter("x_total", "X.", {{"k", "b"}}) != a);
  a->Add();
  a->Add(41);
  CHECK(Find(metrics, "x_total", {{"k", "a"}}).counter.value == 42);
  CHECK(Find(metrics, "x_total", {{"k", "b"}}).counter.value == 0);
}

TEST_CASE("no count is lost among threads, also while somebody reads") {
  Metrics metrics;
  Counter* const counter = metrics.AddCounter("x_total", "X.");
  constexpr int kThreads = 4;
  constexpr int kAdds = 10'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([counter] {
      for (int j = 0; j < kAdds; ++j) counter->Add();
    });
  }
  while (counter->value() < kThreads * kAdds) {
    CHECK(Find(metrics, "x_total", {}).counter.value <= kThreads * kAdds);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(counter->value() == kThreads * kAdds);
}

TEST_CASE("a histogram counts each duration in the buckets that hold it") {
  Metrics metrics;
  const int64_t bounds[] = {1'000, 1'000'000};
  DurationHistogram* const histogram = metrics.AddHistogram("d_seconds", "D.", bounds);
  for (const int64_t nanos : {-5L, 999L, 1'000L, 1'001L, 1'000'001L}) histogram->Observe(nanos);
  const auto read = Find(metrics, "d_seconds", {}).histogram;
  REQUIRE(read.bucket.size() == 2);
  CHECK(read.bucket[0].upper_bound == Approx(1e-6));
  CHECK(read.bucket[0].cumulative_count == 3);
  CHECK(read.bucket[1].cumulative_count == 4);
  CHECK(read.sample_count == 5);
  CHECK(read.sample_sum == Approx(1.003001e-3));
}

TEST_CASE("a reader is asked at reading time, until its registration ends") {
  Metrics metrics;
  double value = 1;
  {
    const auto registration = metrics.AddReader({MetricKind::kGauge, "g", "G."}, [&value] {
      return std::vector<MetricSample>{{{{"k", "a"}}, value}};
    });
    CHECK(Find(metrics, "g", {{"k", "a"}}).gauge.value == 1);
    value = 7;
    CHECK(Find(metrics, "g", {{"k", "a"}}).gauge.value == 7);
  }
  CHECK(FindFamily(metrics.Collect(), "g") == nullptr);
}

TEST_CASE("a group is asked once for all of its families") {
  Metrics metrics;
  int asked = 0;
  const auto registration = metrics.AddGroup(
      {{MetricKind::kGauge, "a", "A."}, {MetricKind::kCounter, "b_total", "B."}}, [&asked] {
        ++asked;
        return std::vector<std::vector<MetricSample>>{{{{}, 1}}, {{{}, 2}}};
      });
  const std::vector<MetricFamily> families = metrics.Collect();
  CHECK(asked == 1);
  REQUIRE(families.size() == 2);
  CHECK(families[0].metric.at(0).gauge.value == 1);
  CHECK(families[1].metric.at(0).counter.value == 2);
}

TEST_CASE("a moved registration ends once") {
  Metrics metrics;
  const auto reader = [] { return std::vector<MetricSample>{{{}, 1}}; };
  Metrics::Registration a = metrics.AddReader({MetricKind::kGauge, "g", "G."}, reader);
  Metrics::Registration b = std::move(a);
  a = Metrics::Registration();
  CHECK(FindFamily(metrics.Collect(), "g") != nullptr);
  b = Metrics::Registration();
  CHECK(FindFamily(metrics.Collect(), "g") == nullptr);
}

TEST_CASE("transfers count by operation, result and transport") {
  Metrics metrics;
  TransferMetrics transfers(&metrics);
  transfers.Count({.read = true,
                   .result = TransferResult::kCompleted,
                   .transport = "tcp",
                   .bytes = 4096,
                   .descriptors = 8,
                   .pieces = 2,
                   .duration_ns = 3'000'000});
  transfers.Count(
      {.read = true, .result = TransferResult::kTimeout, .transport = "tcp", .bytes = 9});
  transfers.Count({.read = false, .result = TransferResult::kFailed, .transport = "pigeon"});

  const MetricLabels tcp_read = {{"op", "read"}, {"transport", "tcp"}};
  const auto count = [&metrics](const char* op, const char* transport, const char* result) {
    return Find(metrics, "hixld_transfers_total",
                {{"op", op}, {"transport", transport}, {"result", result}})
        .counter.value;
  };
  CHECK(count("read", "tcp", "completed") == 1);
  CHECK(count("read", "tcp", "timeout") == 1);
  CHECK(count("read", "tcp", "failed") == 0);
  CHECK(count("write", "other", "failed") == 1);
  CHECK(count("read", "local", "completed") == 0);
  CHECK(Find(metrics, "hixld_transfer_bytes_total", tcp_read).counter.value == 4096);
  CHECK(Find(metrics, "hixld_transfer_descriptors_total", tcp_read).counter.value == 8);
  CHECK(Find(metrics, "hixld_transfer_pieces_total", tcp_read).counter.value == 2);
  const auto duration = Find(metrics, "hixld_transfer_duration_seconds", tcp_read).histogram;
  CHECK(duration.sample_count == 2);
  CHECK(duration.sample_sum == Approx(0.003));
}

TEST_CASE("what the node holds comes from its readers") {
  Metrics metrics;
  {
    NodeMetrics node(
        &metrics,
        {.node = [] { return NodeCounts{.sessions = 3, .huge_page_fallbacks = 2}; },
         .lanes =
             [] {
               return std::vector<LaneCounts>{{.peer = "10.0.0.2",
                                               .transport = "tcp",
                                               .lane = "1",
                                               .up = true,
                                               .bytes_sent = 5}};
             },
         .pools = [] { return std::vector<PoolCounts>{{.pool = "host", .used_bytes = 64}}; }});
    CHECK(Find(metrics, "hixld_build_info", {}).gauge.value == 1);
    CHECK(Find(metrics, "hixld_sessions", {}).gauge.value == 3);
    CHECK(Find(metrics, "hixld_huge_page_fallbacks_total", {}).counter.value == 2);
    const MetricLabels lane = {{"peer", "10.0.0.2"}, {"lane", "1"}};
    CHECK(Find(metrics, "hixld_lane_sent_bytes_total", lane).counter.value == 5);
    CHECK(Find(metrics, "hixld_lane_up", lane).gauge.value == 1);
    CHECK(Find(metrics, "hixld_pool_used_bytes", {{"pool", "host"}}).gauge.value == 64);
  }
  CHECK(metrics.Collect().empty());
}

TEST_CASE("the process's own usage is plausible") {
  const ProcessUsage before = ReadProcessUsage();
  CHECK(before.resident_bytes > 100'000);
  CHECK(before.cpu_seconds > 0);
  CHECK(before.start_time_seconds > 1.6e9);
  CHECK(before.start_time_seconds <= static_cast<double>(time(nullptr)) + 1);
  const int extra = dup(0);
  CHECK(ReadProcessUsage().open_fds == before.open_fds + 1);
  close(extra);
}

}  // namespace
}  // namespace hixld
