// The gRPC baseline: a unary echo on a unix socket, server and client in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/bench/round.h"

namespace hixld::bench {

class GrpcEcho {
 public:
  // Starts the server.
  static absl::StatusOr<std::unique_ptr<GrpcEcho>> Create();
  ~GrpcEcho();

  // One mover per thread; each transfer is a call with `payload_bytes`, as many as the descriptors
  // of a batch take.
  std::vector<std::unique_ptr<Mover>> Movers(uint64_t threads, uint64_t payload_bytes);

 private:
  class State;
  explicit GrpcEcho(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hixld::bench
