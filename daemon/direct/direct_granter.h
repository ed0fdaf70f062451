// The door through which sessions ask for grants of direct copies.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/direct/direct_gate.h"
#include "proto/base/fd.h"

namespace hixld {

struct DirectGrant {
  std::shared_ptr<DirectGate> gate;
  // The gate's descriptor, for the client.
  UniqueFd memory;
  // Keeps the gate's target_pidfd.
  std::shared_ptr<const void> pin;
};

// Thread-safe.
class DirectGranter {
 public:
  virtual ~DirectGranter() = default;
  // Batches of more bytes are not for the client to copy.
  virtual uint64_t max_bytes() const = 0;
  // Lets the client of `session_id`, watched as `copier`, reach the memory of the engine that the
  // channel of its engine leads to. UNSUPPORTED when that will never be possible on this channel:
  // it leads to another daemon or to another user's engine. An earlier grant of the channel is
  // taken back.
  virtual absl::StatusOr<DirectGrant> Grant(uint64_t session_id, uint64_t engine_handle,
                                            uint64_t channel_id,
                                            std::shared_ptr<DirectCopier> copier) = 0;
};

}  // namespace hixld
