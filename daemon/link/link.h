// Links between daemons, as the engine room sees them.
//
// A link is directional: the daemon that connects is its initiator and starts transfers, the one
// that accepts is its target. There is one link per peer node, shared by all engines; channels are
// the cheap part. Implemented by link_manager.h; tests of the engine room bring their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/memory/region.h"
#include "daemon/memory/uncovered.h"
#include "proto/base/endpoint.h"
#include "transports/transport.h"

namespace hixld {

// The protocol endpoints of an engine whose product's limits count here (contract 3.4); without
// any, everything goes.
struct EndpointSet {
  std::string product;
  // Engines with the same one are in one super pod.
  std::string net_instance;
  std::vector<std::string> endpoints;  // "hccs:device", ...
  bool empty() const { return endpoints.empty(); }
};

// The initiator's end of a channel to an engine of another daemon. Thread-safe. Letting go of it
// closes the channel.
class RemoteChannel {
 public:
  virtual ~RemoteChannel() = default;
  virtual absl::string_view transport() const = 0;
  // The target engine's, as it was when the channel opened.
  virtual EndpointSet PeerEndpoints() const { return {}; }
  // False once the link is lost or the target has closed the channel; never true again.
  virtual bool open() const = 0;
  // The target engine's regions as last fetched; they have no access.
  virtual std::shared_ptr<const RegionSnapshot> Regions() const = 0;
  // Some of these are known to be gone.
  virtual bool RegionsOutdated() const { return false; }
  // Fetches them again. TIMEOUT when no answer comes before `deadline_ns` (CLOCK_MONOTONIC).
  virtual void RefreshRegions(int64_t deadline_ns, absl::AnyInvocable<void(absl::Status)> done) = 0;
  // As TransferSink; sets the job's channel and keeps the link alive as long as the job.
  virtual void Submit(std::shared_ptr<TransferJob> job) = 0;
  virtual void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) = 0;
  // Asks the target to let this channel's transfers at memory that its engine has not registered
  // (contract 1.11), until CloseRelay. Answers with the grant's id.
  virtual void OpenRelay(std::vector<AddressRange> ranges, int64_t deadline_ns,
                         absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) = 0;
  // The transfers that needed the grant have ended.
  virtual void CloseRelay(uint64_t id) = 0;
  // Puts a notify into the target engine's queue; OK when it is there. TIMEOUT when no answer comes
  // before `deadline_ns`, FAILED when the link is lost: it may then be there or not. In order.
  virtual void Notify(std::string name, std::string message, int64_t deadline_ns,
                      absl::AnyInvocable<void(absl::Status)> done) = 0;
  // Tells the target; its transfers must have ended. Idempotent.
  virtual void Close() = 0;
};

// The target's end of a channel, made by the engine room for a link that asks.
class InboundChannel {
 public:
  virtual ~InboundChannel() = default;
  // See TargetResolver. Lock-free; called on the data workers.
  virtual absl::Status Resolve(uint64_t address, uint64_t length,
                               std::vector<TargetResolver::Part>* parts) = 0;
  virtual std::shared_ptr<const RegionSnapshot> Regions() = 0;
  // What the initiator is told about this engine.
  virtual EndpointSet Endpoints() { return {}; }
  // See RemoteChannel. FAILED where the engine relays nothing.
  virtual absl::StatusOr<uint64_t> OpenRelay(std::vector<AddressRange> ranges) = 0;
  virtual void CloseRelay(uint64_t id) = 0;
  // A notify of the initiator; what is returned is what it is answered.
  virtual absl::Status OnNotify(std::string name, std::string message) = 0;
  // The initiator closed the channel or its link is gone, and no byte for it can land any more.
  virtual void OnClosed(absl::string_view reason) = 0;
};

// What the engine room may do with an inbound channel; outlives its link safely.
class InboundHandle {
 public:
  virtual ~InboundHandle() = default;
  virtual uint64_t channel_id() const = 0;
  virtual absl::string_view transport() const = 0;
  // `fenced` runs when no byte that the engine's regions of before this call allowed can land any
  // more: a range taken out of the tables is then free.
  virtual void Fence(absl::AnyInvocable<void()> fenced) = 0;
  // Tells the initiator that the engine has deregistered memory since it was told the regions.
  virtual void RegionsGone() {}
  // Tells the initiator that the channel is closed and forgets it; OnClosed does not follow.
  virtual void Close(std::string reason) = 0;
};

struct InboundRequest {
  std::string initiator_engine;
  std::string target_engine;
  std::string peer_node;  // hex
  std::string peer_address;
  EndpointSet endpoints;  // of the initiator
};

// The engine room, as links see it. Thread-safe, never blocks.
class ChannelHost {
 public:
  virtual ~ChannelHost() = default;
  // FAILED when no such engine listens here, RESOURCE_EXHAUSTED when it has too many channels,
  // PARAM_INVALID when the two have no protocol in common.
  virtual absl::StatusOr<std::shared_ptr<InboundChannel>> AcceptChannel(
      const InboundRequest& request, std::shared_ptr<InboundHandle> handle) = 0;
};

// An engine's listening socket. Links accepted through it live on when it closes.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  virtual uint16_t port() const = 0;
  // `closed` runs when the port is free again. Idempotent; also done by the destructor.
  virtual void Close(absl::AnyInvocable<void()> closed) = 0;
};

struct LinkDescription {
  std::string peer_node;  // hex
  std::string peer_address;
  std::string transport;
  std::string state;  // "up", "connecting", "down"
  bool initiator = false;
  uint64_t channels = 0;
  int64_t since_ns = 0;
  int64_t last_heard_ns = 0;
  std::vector<LaneStats> lanes;
  std::string detail;
};

class LinkManager {
 public:
  virtual ~LinkManager() = default;

  struct ChannelRequest {
    Endpoint endpoint;
    std::string initiator_engine;
    std::string target_engine;
    EndpointSet endpoints;  // of the initiator
    // The initiator's options RdmaTrafficClass and RdmaServiceLevel; unset: as the node is
    // configured (rdma.traffic_class, rdma.service_level).
    std::optional<uint8_t> traffic_class;
    std::optional<uint8_t> service_level;
    int64_t deadline_ns = 0;
    // Called at most once, when the open channel stops being open without Close.
    absl::AnyInvocable<void(absl::Status)> on_broken;
    // Called whenever RegionsOutdated becomes true; may be null.
    std::function<void()> on_outdated;
  };
  using ChannelDone = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<RemoteChannel>>)>;
  // Opens a channel, over the link to the peer's node if there is one, else over a new one.
  // FAILED when the peer refuses or knows no such engine, TIMEOUT at the deadline.
  virtual void OpenChannel(ChannelRequest request, ChannelDone done) = 0;

  // Listens at exactly `endpoint`, or on a free port of its address when it has none. FAILED when
  // the port is taken, and beyond loopback without a cluster key or explicit permission.
  virtual absl::StatusOr<std::unique_ptr<EngineListener>> Listen(const Endpoint& endpoint) = 0;

  virtual void List(absl::AnyInvocable<void(std::vector<LinkDescription>)> done) = 0;
};

}  // namespace hixld
