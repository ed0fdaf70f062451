// The daemon as one object: makes the rooms, wires them, and takes them down in order. It can also
// run inside a test process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/config.h"

namespace hixld {

struct AppOptions {
  Config config;
  // Absolute; where config.socket.path is empty, the default has been put here already.
  std::string socket_path;
  // Contents of the cluster key file; empty: none.
  std::string cluster_key;
  // Started by a client library for its user: ends after the last client.
  bool private_daemon = false;
  // How long a private daemon waits for its first client, and for the next one after the last.
  int64_t first_client_ns = 10'000'000'000;
  int64_t last_client_grace_ns = 1'500'000'000;
  // A private daemon has nothing left to do. Called once, on any thread.
  std::function<void()> on_unused;
};

class App {
 public:
  // Serves when it returns. kAlreadyExists, "already running, pid N", when another daemon has the
  // socket; PARAM_INVALID when the configuration cannot be carried out.
  static absl::StatusOr<std::unique_ptr<App>> Start(AppOptions options);
  virtual ~App() = default;
  // Ends every session, fences what is in flight, says goodbye to peers, removes the sockets.
  // Blocks, at most about `grace_ns` longer than fencing takes.
  virtual void Stop(const std::string& reason, int64_t grace_ns) = 0;
};

}  // namespace hixld
