// Bringing a reliable connected queue pair up, and what its two ends tell each other for that.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/wire/rdma.pb.h"
#include "transports/rdma/options.h"
#include "transports/rdma/selection.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma {

// One end of a lane.
struct LaneEnd {
  uint8_t port = 1;
  GidEntry gid;
  uint16_t lid = 0;
  uint32_t mtu = 1024;
};

// What the other end said, checked.
struct PeerEnd {
  uint32_t number = 0;
  uint32_t sequence = 0;
  Gid gid = {};
  uint16_t lid = 0;
  uint32_t mtu = 1024;
  uint32_t read_depth = 1;
};

hixl::wire::v1::RdmaQueuePair Describe(const LaneEnd& end, uint32_t number, uint32_t sequence,
                                       uint32_t read_depth);
// Refuses numbers beyond 24 bits, addresses that nobody has, and unknown MTUs.
absl::StatusOr<PeerEnd> ParsePeerEnd(const hixl::wire::v1::RdmaQueuePair& message);

// A random first packet number (24 bits).
uint32_t RandomSequence();

// RESET -> INIT. `remote_access` is a set of IBV_ACCESS_REMOTE_*.
absl::Status ToInit(VerbsQueuePair& queue_pair, const LaneEnd& end, int remote_access);
// INIT -> RTR: ready to receive. `read_depth` is how many READs it serves at once.
absl::Status ToReadyToReceive(VerbsQueuePair& queue_pair, const LaneEnd& end, const PeerEnd& peer,
                              const RdmaClass& treatment, uint32_t read_depth);
// RTR -> RTS: ready to send. `read_depth` is how many READs it may have under way.
absl::Status ToReadyToSend(VerbsQueuePair& queue_pair, const RdmaOptions& options,
                           uint32_t sequence, uint32_t read_depth);

}  // namespace hixld::rdma
