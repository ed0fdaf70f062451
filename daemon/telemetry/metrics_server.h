// The HTTP endpoint from which Prometheus reads the metrics.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "config/config.h"
#include "daemon/telemetry/metrics.h"

namespace hixld {

class MetricsServer {
 public:
  // Serves `metrics` under /metrics at telemetry.metrics_address until destroyed; `metrics` must
  // live as long. The result is null when the address is empty. An address that cannot be taken
  // is PARAM_INVALID with one line that names the key, where it was set, and the reason.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const Config& config,
                                                              const Metrics* metrics);
  ~MetricsServer();

  // The port, also where the configured one was 0.
  uint16_t port() const { return port_; }

 private:
  struct Server;
  explicit MetricsServer(std::unique_ptr<Server> server, uint16_t port);
  std::unique_ptr<Server> server_;
  uint16_t port_;
};

}  // namespace hixld
