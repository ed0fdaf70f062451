#include "daemon/telemetry/transfer_metrics.h"

#include "proto/base/clock.h"

namespace hixld {
namespace {

constexpr const char* kOpNames[] = {"read", "write"};
constexpr const char* kResultNames[] = {"completed", "failed", "timeout"};
constexpr const char* kTransportNames[] = {"local", "direct", "tcp", "rdma", "hccs", "other"};

constexpr int64_t kMicro = 1000;
constexpr int64_t kDurationBounds[] = {
    5 * kMicro,           10 * kMicro,          20 * kMicro,          50 * kMicro,
    100 * kMicro,         200 * kMicro,         500 * kMicro,         1 * kNanosPerMilli,
    2 * kNanosPerMilli,   5 * kNanosPerMilli,   10 * kNanosPerMilli,  20 * kNanosPerMilli,
    50 * kNanosPerMilli,  100 * kNanosPerMilli, 200 * kNanosPerMilli, 500 * kNanosPerMilli,
    1 * kNanosPerSecond,  2 * kNanosPerSecond,  5 * kNanosPerSecond,  10 * kNanosPerSecond,
    30 * kNanosPerSecond, 60 * kNanosPerSecond,
};

}  // namespace

TransferMetrics::TransferMetrics(Metrics* metrics) {
  for (size_t op = 0; op < kOps; ++op) {
    for (size_t transport = 0; transport < kTransports; ++transport) {
      const MetricLabels labels = {{"op", kOpNames[op]}, {"transport", kTransportNames[transport]}};
      PerTransport& cell = cells_[op][transport];
      for (size_t result = 0; result < kResults; ++result) {
        MetricLabels with_result = labels;
        with_result.emplace_back("result", kResultNames[result]);
        cell.transfers[result] = metrics->AddCounter(
            "hixld_transfers_total", "Transfers that ended, by how they ended.", with_result);
      }
      cell.bytes = metrics->AddCounter("hixld_transfer_bytes_total",
                                       "Bytes of completed transfers.", labels);
      cell.descriptors = metrics->AddCounter("hixld_transfer_descriptors_total",
                                             "Blocks that transfers asked for.", labels);
      cell.pieces = metrics->AddCounter(
          "hixld_transfer_pieces_total",
          "Contiguous copies that the blocks were joined to; descriptors per piece is the merge "
          "ratio.",
          labels);
      cell.relayed = metrics->AddCounter("hixld_relayed_transfers_total",
                                         "Transfers with memory that is not registered.", labels);
      cell.duration = metrics->AddHistogram(
          "hixld_transfer_duration_seconds",
          "From acceptance to the end of a transfer, however it ended.", kDurationBounds, labels);
    }
  }
}

size_t TransferMetrics::TransportIndex(absl::string_view transport) {
  for (size_t i = 0; i + 1 < kTransports; ++i) {
    if (transport == kTransportNames[i]) return i;
  }
  return kTransports - 1;
}

void TransferMetrics::Count(const FinishedTransfer& transfer) {
  const PerTransport& cell = cells_[transfer.read ? 0 : 1][TransportIndex(transfer.transport)];
  cell.transfers[static_cast<size_t>(transfer.result)]->Add();
  if (transfer.result == TransferResult::kCompleted) cell.bytes->Add(transfer.bytes);
  cell.descriptors->Add(transfer.descriptors);
  cell.pieces->Add(transfer.pieces);
  if (transfer.relayed) cell.relayed->Add();
  cell.duration->Observe(transfer.duration_ns);
}

void TransferMetrics::CountDirect(bool read, uint64_t transfers, uint64_t bytes,
                                  uint64_t descriptors) {
  const PerTransport& cell = cells_[read ? 0 : 1][TransportIndex("direct")];
  cell.transfers[static_cast<size_t>(TransferResult::kCompleted)]->Add(transfers);
  cell.bytes->Add(bytes);
  cell.descriptors->Add(descriptors);
  cell.pieces->Add(descriptors);
}

}  // namespace hixld
