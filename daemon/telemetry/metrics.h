// The daemon's metrics. Counting is one relaxed atomic add; everything else happens when somebody
// reads them. No Prometheus header is needed to count.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/mutex.h"

namespace prometheus {
struct MetricFamily;
}

namespace hixld {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Only grows. On a cache line of its own: workers count different things at the same time.
class alignas(64) Counter {
 public:
  void Add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Durations by size. Bounds are nanoseconds, ascending, at most kMaxBounds.
class alignas(64) DurationHistogram {
 public:
  static constexpr size_t kMaxBounds = 24;
  explicit DurationHistogram(absl::Span<const int64_t> bounds_ns);
  void Observe(int64_t nanos);

  struct Reading {
    std::vector<std::pair<int64_t, uint64_t>> cumulative;  // bound in ns, observations up to it
    uint64_t count = 0;
    uint64_t sum_ns = 0;
  };
  Reading Read() const;

 private:
  std::vector<int64_t> bounds_ns_;
  std::array<std::atomic<uint64_t>, kMaxBounds + 1> buckets_{};
  std::atomic<uint64_t> sum_ns_{0};
};

enum class MetricKind { kCounter, kGauge };

struct MetricFamilySpec {
  MetricKind kind = MetricKind::kGauge;
  std::string name;
  std::string help;
};

// One value that a reader gives when the metrics are read.
struct MetricSample {
  MetricLabels labels;
  double value = 0;
};
using MetricReader = std::function<std::vector<MetricSample>()>;
// The samples of several families, in the order of their registration.
using MetricGroupReader = std::function<std::vector<std::vector<MetricSample>>()>;

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A counter or histogram of family `name` ("hixld_..._total", "..._seconds"); lives as long as
  // this object. Asking again with the same name and labels gives the same one. One name has one
  // kind and one help text; breaking that is a programming error and ends the process.
  Counter* AddCounter(absl::string_view name, absl::string_view help, MetricLabels labels = {});
  DurationHistogram* AddHistogram(absl::string_view name, absl::string_view help,
                                  absl::Span<const int64_t> bounds_ns, MetricLabels labels = {});

  // Ends a reader's registration; when it has returned the reader runs no more.
  class Registration {
   public:
    Registration() = default;
    Registration(Metrics* metrics, uint64_t id) : metrics_(metrics), id_(id) {}
    Registration(Registration&& other) noexcept { *this = std::move(other); }
    Registration& operator=(Registration&& other) noexcept;
    ~Registration() { Release(); }

   private:
    void Release();
    Metrics* metrics_ = nullptr;
    uint64_t id_ = 0;
  };
  // `reader` is called once per reading of the metrics, from the reading thread, under the lock
  // of this registry: it must not register or release anything here, nor wait long.
  [[nodiscard]] Registration AddReader(MetricFamilySpec family, MetricReader reader);
  // The same for families whose values are found together.
  [[nodiscard]] Registration AddGroup(std::vector<MetricFamilySpec> families,
                                      MetricGroupReader reader);

  // Every family, for a scrape.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  enum class FamilyKind { kCounter, kGauge, kHistogram };
  struct Family {
    FamilyKind kind;
    std::string help;
    std::list<std::pair<MetricLabels, Counter>> counters;
    std::list<std::pair<MetricLabels, DurationHistogram>> histograms;
  };
  struct Group {
    std::vector<std::string> families;
    MetricGroupReader reader;
  };

  Family& FamilyOf(absl::string_view name, absl::string_view help, FamilyKind kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveGroup(uint64_t id);

  // Guards the families and readers; taken to register and to read, never to count.
  mutable Mutex mutex_;
  std::map<std::string, Family> families_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Group> groups_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_group_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hixld
