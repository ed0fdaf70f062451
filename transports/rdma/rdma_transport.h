// Links over RDMA verbs (RoCE or InfiniBand), reliable connected queue pairs as lanes.
//
// Mapped memory on both ends is read and written in place. What RDMA cannot reach, and all
// transfers while there is no lane, go over the link's fall-back, where it has one.
// How it works, and why COMPLETED means that the bytes are there: docs/rdma.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/endpoint.h"
#include "transports/loop/loop.h"
#include "transports/rdma/options.h"
#include "transports/transport.h"

namespace hixld {

namespace rdma {
class Verbs;
}

class RdmaInitiatorLink : public InitiatorLink {
 public:
  // Why transfers go over the fall-back or wait; empty while all is well.
  virtual std::string Trouble() const = 0;
};

class RdmaTransport {
 public:
  // Opens the devices that the options allow. An error tells why RDMA cannot be used on this node
  // and names the option that changes it; the caller decides whether that matters. NOT_FOUND where
  // there is no device, UNSUPPORTED without libibverbs.
  // `workers` must outlive the transport. `verbs` is for tests; null = libibverbs.
  static absl::StatusOr<std::unique_ptr<RdmaTransport>> Create(WorkerSet* workers,
                                                               RdmaOptions options,
                                                               std::unique_ptr<rdma::Verbs> verbs);
  static absl::StatusOr<std::unique_ptr<RdmaTransport>> Create(WorkerSet* workers,
                                                               RdmaOptions options);
  // Its links must be closed and gone.
  virtual ~RdmaTransport() = default;

  // Starts opening lanes to the daemon at the other end of `control`; transfers may be submitted at
  // once and wait for the first lane. `peer` is where it was reached (for choosing the port by
  // route). `control` must outlive the link. `fallback` may be null. Two links to one peer may
  // differ in `treatment`; each has its own lanes and its own `control`.
  virtual std::unique_ptr<RdmaInitiatorLink> Connect(const Endpoint& peer, RdmaClass treatment,
                                                     std::shared_ptr<TransferSink> fallback,
                                                     ControlPath* control) = 0;

  // The target's end. `resolver` and `control` must outlive it until it is closed.
  virtual std::unique_ptr<TargetLink> Serve(TargetResolver* resolver, ControlPath* control) = 0;

  struct Port {
    std::string name;  // "rxe0 port 1"
    uint32_t mtu = 0;
    std::vector<std::string> gids;  // the best first
  };
  // The ports that can be used now, or why there is none.
  virtual absl::StatusOr<std::vector<Port>> Ports() const = 0;

  struct Stats {
    // For our own requests and for peers, of all devices.
    uint64_t registrations = 0;
    uint64_t registered_bytes = 0;
    uint64_t registrations_made = 0;  // since the start
    uint64_t registrations_failed = 0;
  };
  virtual Stats stats() const = 0;
};

}  // namespace hixld
