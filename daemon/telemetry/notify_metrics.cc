#include "daemon/telemetry/notify_metrics.h"

#include "proto/base/status.h"

namespace hixld {
namespace {

enum Result : size_t { kDelivered, kRefused, kTimedOut, kFailed };
constexpr const char* kResultNames[] = {"delivered", "refused", "timeout", "failed"};

Result ResultOf(const absl::Status& status) {
  if (status.ok()) return kDelivered;
  switch (ApiCodeOf(status)) {
    case ApiCode::kResourceExhausted:
      return kRefused;
    case ApiCode::kTimeout:
      return kTimedOut;
    default:
      return kFailed;
  }
}

}  // namespace

NotifyMetrics::NotifyMetrics(Metrics* metrics) {
  for (size_t result = 0; result < kResults; ++result) {
    sent_[result] = metrics->AddCounter("hixld_notifies_sent_total",
                                        "Notifies of this node's engines, by how they ended; "
                                        "refused: the receiver's queue is full.",
                                        {{"result", kResultNames[result]}});
  }
  received_ = metrics->AddCounter("hixld_notifies_received_total",
                                  "Notifies that were put into queues of this node's engines.");
}

void NotifyMetrics::Sent(const absl::Status& status) { sent_[ResultOf(status)]->Add(); }

void NotifyMetrics::Received() { received_->Add(); }

}  // namespace hixld
