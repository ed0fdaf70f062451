// What is counted for every transfer: by operation, result and transport.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "daemon/telemetry/metrics.h"

namespace hixld {

enum class TransferResult : uint8_t { kCompleted, kFailed, kTimeout };

// One finished transfer.
struct FinishedTransfer {
  bool read = true;  // else write
  TransferResult result = TransferResult::kCompleted;
  // TransferSink::transport(): "local", "tcp", "rdma", "hccs", or "direct" for what clients copy by
  // themselves; others count as "other".
  absl::string_view transport;
  uint64_t bytes = 0;
  // Blocks that the caller asked for, and contiguous copies that they were joined to.
  uint64_t descriptors = 0;
  uint64_t pieces = 0;
  // Some of its memory was not registered.
  bool relayed = false;
  int64_t duration_ns = 0;
};

class TransferMetrics {
 public:
  explicit TransferMetrics(Metrics* metrics);
  // A handful of relaxed atomic adds. Thread-safe. Bytes count for completed transfers only.
  void Count(const FinishedTransfer& transfer);
  // Transfers of "direct" that were completed; how long each took nobody knows.
  void CountDirect(bool read, uint64_t transfers, uint64_t bytes, uint64_t descriptors);

 private:
  static constexpr size_t kOps = 2;
  static constexpr size_t kResults = 3;
  static constexpr size_t kTransports = 6;
  static size_t TransportIndex(absl::string_view transport);

  struct PerTransport {
    std::array<Counter*, kResults> transfers;
    Counter* bytes;
    Counter* descriptors;
    Counter* pieces;
    Counter* relayed;
    DurationHistogram* duration;
  };
  std::array<std::array<PerTransport, kTransports>, kOps> cells_;
};

}  // namespace hixld
