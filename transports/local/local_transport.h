// Copies between two engines of one daemon: once, from mapping to mapping.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld {

struct LocalTransportOptions {
  // Transfers of at least this many bytes are split over all workers.
  uint64_t split_bytes = 1 << 20;
  // A worker copies this much before it looks at its other work again.
  uint64_t chunk_bytes = 256 << 10;
  // Staging memory for copies between two memories that are both not mapped.
  uint64_t staging_bytes = 4 << 20;
};

class LocalTransport : public TransferSink {
 public:
  // `workers` must outlive the transport, and the transport every transfer.
  static std::unique_ptr<LocalTransport> Create(WorkerSet* workers, LocalTransportOptions options);
};

}  // namespace hixld
