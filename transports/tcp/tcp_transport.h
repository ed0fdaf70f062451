// Links over TCP: a bounded set of lanes per link, striped.
//
// The daemon's link room makes the control connection and proves who is there; the transport then
// connects its lanes to the same address, and each lane proves with the link's secret which link
// it belongs to (proto/wire/frame.h, docs/wire-format.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld {

struct TcpOptions {
  uint32_t lanes = 2;
  uint64_t stripe_bytes = 1 << 20;
  // Stripes in flight per lane before an answer must come.
  uint32_t window_stripes = 8;
  int64_t connect_timeout_ns = kNanosPerSecond;
  int64_t reconnect_min_ns = 50 * kNanosPerMilli;
  int64_t reconnect_max_ns = 5 * kNanosPerSecond;
  // A lane on which nothing moves for this long although it should is dead (TCP_USER_TIMEOUT too).
  int64_t stall_timeout_ns = 5 * kNanosPerSecond;
  // 0 = the kernel's own sizing.
  uint32_t socket_buffer_bytes = 0;
  // Of the lanes' sockets; empty: the kernel's default, and reno on loopback.
  std::string congestion_control;
  // WRITEs take blocks of at least this many bytes from the pages of the memory itself, without a
  // copy, where the peer is not on loopback and the memory is a file's. 0 = never.
  uint64_t zero_copy_bytes = 0;
  // Staging memory per worker for memory that is not mapped.
  uint64_t staging_bytes = 8 << 20;
  // Transfers waiting on one link; more are RESOURCE_EXHAUSTED.
  uint32_t max_queued_transfers = 65536;
  // Interfaces whose addresses the lanes use in turn; empty = the route's choice.
  std::vector<std::string> interfaces;
};

struct LaneIdentity {
  uint64_t link_id = 0;
  std::string secret;  // 32 bytes
};

class TcpTransport {
 public:
  // Of all links since the start.
  struct Counters {
    uint64_t malformed_frames = 0;     // each closed its lane
    uint64_t refused_lanes = 0;        // no valid hello in time, or too many at once
    uint64_t cancelled_transfers = 0;  // ended early: cancelled, timed out, failed, link closed
    uint64_t resent_stripes = 0;       // their lane died before the answer
  };

  // `workers` must outlive it.
  static std::unique_ptr<TcpTransport> Create(WorkerSet* workers, TcpOptions options);
  virtual ~TcpTransport() = default;

  // Starts connecting `options.lanes` lanes to `peer`; transfers may be submitted at once and wait
  // for the first lane. `control` must outlive the link. Close the link before it is destroyed;
  // transfers that still wait for their fence then end on their own.
  virtual std::unique_ptr<InitiatorLink> Connect(const Endpoint& peer, LaneIdentity identity,
                                                 ControlPath* control) = 0;

  // The target's end: its lanes come in through AcceptLane. Destroy it only after `closed` of
  // Close has run: until then lanes may call the resolver.
  virtual std::unique_ptr<TargetLink> Serve(LaneIdentity identity, TargetResolver* resolver,
                                            ControlPath* control) = 0;

  // A connection whose first bytes are a lane's hello: `socket` is non-blocking and nothing has
  // been read from it (the caller has only peeked). The lane's proof is checked here; a wrong one
  // closes the socket.
  virtual void AcceptLane(UniqueFd socket) = 0;

  virtual Counters counters() const = 0;
};

}  // namespace hixld
