// RDMA as the configuration wants it, if this node can.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "config/config.h"
#include "transports/loop/loop.h"
#include "transports/rdma/rdma_transport.h"

namespace hixld {

struct Rdma {
  // Null where RDMA is not used.
  std::unique_ptr<RdmaTransport> transport;
  // Why it is not, where the configuration names devices or interfaces, or a device cannot be used.
  std::string why_not;
};

RdmaClass RdmaClassOf(const Config& config);

// The reason why RDMA is not used is logged once; it is an error only where node.transports has
// nothing else.
absl::StatusOr<Rdma> StartRdma(const Config& config, WorkerSet* workers);

}  // namespace hixld
