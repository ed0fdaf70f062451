// What is counted for every notify.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "daemon/telemetry/metrics.h"

namespace hixld {

class NotifyMetrics {
 public:
  explicit NotifyMetrics(Metrics* metrics);
  // A notify of an engine of this daemon was answered. Thread-safe, as is Received.
  void Sent(const absl::Status& status);
  // One was taken into the queue of an engine of this daemon.
  void Received();

 private:
  static constexpr size_t kResults = 4;
  std::array<Counter*, kResults> sent_;
  Counter* received_;
};

}  // namespace hixld
