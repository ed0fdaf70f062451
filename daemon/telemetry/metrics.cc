#include "daemon/telemetry/metrics.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"

namespace hixld {
namespace {

double Seconds(uint64_t nanos) { return static_cast<double>(nanos) / kNanosPerSecond; }

prometheus::ClientMetric WithLabels(const MetricLabels& labels) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  return metric;
}

prometheus::ClientMetric HistogramMetric(const MetricLabels& labels,
                                         const DurationHistogram& histogram) {
  prometheus::ClientMetric metric = WithLabels(labels);
  const DurationHistogram::Reading reading = histogram.Read();
  metric.histogram.sample_count = reading.count;
  metric.histogram.sample_sum = Seconds(reading.sum_ns);
  for (const auto& [bound_ns, count] : reading.cumulative) {
    metric.histogram.bucket.push_back({count, Seconds(static_cast<uint64_t>(bound_ns))});
  }
  return metric;
}

}  // namespace

DurationHistogram::DurationHistogram(absl::Span<const int64_t> bounds_ns)
    : bounds_ns_(bounds_ns.begin(), bounds_ns.end()) {
  if (bounds_ns_.size() > kMaxBounds || !std::is_sorted(bounds_ns_.begin(), bounds_ns_.end())) {
    LogError("histogram bounds are unsorted or too many", {{"bounds", bounds_ns_.size()}});
    std::abort();
  }
}

void DurationHistogram::Observe(int64_t nanos) {
  nanos = std::max<int64_t>(nanos, 0);
  const auto bound = std::lower_bound(bounds_ns_.begin(), bounds_ns_.end(), nanos);
  buckets_[static_cast<size_t>(bound - bounds_ns_.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<uint64_t>(nanos), std::memory_order_relaxed);
}

DurationHistogram::Reading DurationHistogram::Read() const {
  Reading reading;
  for (size_t i = 0; i < bounds_ns_.size(); ++i) {
    reading.count += buckets_[i].load(std::memory_order_relaxed);
    reading.cumulative.emplace_back(bounds_ns_[i], reading.count);
  }
  reading.count += buckets_[bounds_ns_.size()].load(std::memory_order_relaxed);
  reading.sum_ns = sum_ns_.load(std::memory_order_relaxed);
  return reading;
}

Metrics::Metrics() = default;
Metrics::~Metrics() = default;

Metrics::Family& Metrics::FamilyOf(absl::string_view name, absl::string_view help,
                                   FamilyKind kind) {
  const auto [entry, added] = families_.try_emplace(std::string(name));
  Family& family = entry->second;
  if (added) {
    family.kind = kind;
    family.help = std::string(help);
  }
  if (family.kind != kind || family.help != help) {
    LogError("metric has two kinds or two help texts", {{"metric", name}});
    std::abort();
  }
  return family;
}

Counter* Metrics::AddCounter(absl::string_view name, absl::string_view help, MetricLabels labels) {
  MutexLock lock(&mutex_);
  Family& family = FamilyOf(name, help, FamilyKind::kCounter);
  for (auto& [known, counter] : family.counters) {
    if (known == labels) return &counter;
  }
  return &family.counters
              .emplace_back(std::piecewise_construct, std::forward_as_tuple(std::move(labels)),
                            std::forward_as_tuple())
              .second;
}

DurationHistogram* Metrics::AddHistogram(absl::string_view name, absl::string_view help,
                                         absl::Span<const int64_t> bounds_ns, MetricLabels labels) {
  MutexLock lock(&mutex_);
  Family& family = FamilyOf(name, help, FamilyKind::kHistogram);
  for (auto& [known, histogram] : family.histograms) {
    if (known == labels) return &histogram;
  }
  return &family.histograms
              .emplace_back(std::piecewise_construct, std::forward_as_tuple(std::move(labels)),
                            std::forward_as_tuple(bounds_ns))
              .second;
}

Metrics::Registration Metrics::AddReader(MetricFamilySpec family, MetricReader reader) {
  return AddGroup({std::move(family)}, [reader = std::move(reader)] {
    return std::vector<std::vector<MetricSample>>{reader()};
  });
}

Metrics::Registration Metrics::AddGroup(std::vector<MetricFamilySpec> families,
                                        MetricGroupReader reader) {
  MutexLock lock(&mutex_);
  Group& group = groups_[++last_group_];
  for (const MetricFamilySpec& spec : families) {
    FamilyOf(spec.name, spec.help,
             spec.kind == MetricKind::kCounter ? FamilyKind::kCounter : FamilyKind::kGauge);
    group.families.push_back(spec.name);
  }
  group.reader = std::move(reader);
  return Registration(this, last_group_);
}

void Metrics::RemoveGroup(uint64_t id) {
  MutexLock lock(&mutex_);
  groups_.erase(id);
}

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  MutexLock lock(&mutex_);
  std::map<std::string, std::vector<MetricSample>> read;
  for (const auto& [id, group] : groups_) {
    std::vector<std::vector<MetricSample>> samples = group.reader();
    samples.resize(group.families.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      auto& all = read[group.families[i]];
      std::move(samples[i].begin(), samples[i].end(), std::back_inserter(all));
    }
  }
  std::vector<prometheus::MetricFamily> result;
  for (const auto& [name, family] : families_) {
    prometheus::MetricFamily out{name, family.help, prometheus::MetricType::Counter, {}};
    if (family.kind == FamilyKind::kGauge) out.type = prometheus::MetricType::Gauge;
    if (family.kind == FamilyKind::kHistogram) out.type = prometheus::MetricType::Histogram;
    for (const auto& [labels, counter] : family.counters) {
      out.metric.push_back(WithLabels(labels));
      out.metric.back().counter.value = static_cast<double>(counter.value());
    }
    for (const auto& [labels, histogram] : family.histograms) {
      out.metric.push_back(HistogramMetric(labels, histogram));
    }
    for (const MetricSample& sample : read[name]) {
      out.metric.push_back(WithLabels(sample.labels));
      out.metric.back().counter.value = sample.value;
      out.metric.back().gauge.value = sample.value;
    }
    if (!out.metric.empty()) result.push_back(std::move(out));
  }
  return result;
}

Metrics::Registration& Metrics::Registration::operator=(Registration&& other) noexcept {
  if (this != &other) {
    Release();
    metrics_ = std::exchange(other.metrics_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void Metrics::Registration::Release() {
  if (metrics_ != nullptr) metrics_->RemoveGroup(id_);
  metrics_ = nullptr;
}

}  // namespace hixld
