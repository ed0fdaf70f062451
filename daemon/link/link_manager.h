// All links of this daemon, both ways. Everything happens on the control loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "daemon/link/handshake.h"
#include "daemon/link/link.h"
#include "daemon/link/messages.h"
#include "daemon/link/transport_stack.h"
#include "transports/loop/loop.h"

namespace hixld {

struct LinkOptions {
  PeerIdentity identity;
  KeepAlive keep_alive;
  uint64_t max_links = 512;  // each way
  // An IP address on which peers' data lanes come in, and which they are told; empty: each
  // engine's own.
  std::string data_address;
  // How long a peer may take for its part of a handshake, or to say anything at all.
  int64_t handshake_timeout_ns = 5 * kNanosPerSecond;
  // A link without channels is closed after this long.
  int64_t idle_ns = 60 * kNanosPerSecond;
  // Waiting between attempts to get a lost link back while channels want it.
  int64_t reconnect_min_ns = 50 * kNanosPerMilli;
  int64_t reconnect_max_ns = 5 * kNanosPerSecond;
};

class TcpLinkManager : public LinkManager {
 public:
  // `loop`, `host` and what `transports` points to outlive it.
  static std::unique_ptr<TcpLinkManager> Create(Loop* loop, Transports transports,
                                                ChannelHost* host, LinkOptions options);
  ~TcpLinkManager() override = default;

  // Ends every link in good order and refuses new ones; `done` runs when all are fenced. Must be
  // called, and have run, before the object goes.
  virtual void Shutdown(absl::AnyInvocable<void()> done) = 0;
};

}  // namespace hixld
