// Carries out the batches that sessions put into their shared-memory rings.
#pragma once

#include "daemon/engine/engine_registry.h"
#include "daemon/ring/ring_server.h"

namespace hixld {

class EngineRingHandler : public RingHandler {
 public:
  // `engines` outlives it.
  explicit EngineRingHandler(EngineRegistry* engines) : engines_(engines) {}
  void Run(uint64_t session_id, ring::Consumer::Batch batch, Accepted accepted,
           TransferDone done) override;

 private:
  EngineRegistry* const engines_;
};

}  // namespace hixld
