// The gRPC server on a unix socket: services, health and reflection.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace grpc {
class Service;
}

namespace hixld {

class Loop;

struct RpcServerOptions {
  std::string path;  // at most 107 bytes less 9
  mode_t mode = 0660;
  gid_t group = static_cast<gid_t>(-1);  // -1: the process's own
  uint64_t max_message_bytes = 32 << 20;
  uint64_t max_memory_bytes = 512 << 20;  // of all calls together
};

class RpcServer {
 public:
  // Listens and serves. A stale socket at `path` is replaced: whoever calls this holds the lock
  // that proves that no other daemon lives there. Connections are accepted on `loop`, which
  // outlives it: gRPC's own listener stops for good the first time that it finds no descriptor.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      Loop* loop, RpcServerOptions options, std::vector<std::unique_ptr<grpc::Service>> services);
  virtual ~RpcServer() = default;

  // Health goes to NOT_SERVING, then the server refuses new calls; running ones have `grace_ns` to
  // end and are cancelled after that. Blocks until all have ended.
  virtual void Stop(int64_t grace_ns) = 0;
};

}  // namespace hixld
