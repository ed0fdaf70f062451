// What carries the transfers of one link: RDMA, TCP, or RDMA with TCP for what it cannot do.
//
// A node prefers transports in the order of node.transports; the target's Welcome says which ones
// it serves. Each transport's two ends talk over the link's control connection under a name of
// their own. Engines that want another traffic class or service level than the node's get RDMA
// lanes of their own, under the name "rdma:CLASS:LEVEL". Lives on the control loop, except where a
// comment says otherwise.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/endpoint.h"
#include "transports/rdma/rdma_transport.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/transport.h"

namespace hixld {

inline constexpr char kTcp[] = "tcp";
inline constexpr char kRdma[] = "rdma";

// The transports of this daemon; they outlive every link.
struct Transports {
  // Never null: lanes also come in over it.
  TcpTransport* tcp = nullptr;
  // Null where RDMA is not used.
  RdmaTransport* rdma = nullptr;
  // Why it is not, where the configuration asks for it; empty where nobody does.
  std::string no_rdma;
  // What lanes of engines without a wish of their own get.
  RdmaClass rdma_class;
  // node.transports: the preferred first.
  std::vector<std::string> order = {kRdma, kTcp};

  // Those that other nodes may use towards this one.
  std::vector<std::string> Served() const;
};

// One transport's end of the control connection.
class NamedPath : public ControlPath {
 public:
  // Thread-safe.
  using Send = std::function<void(const std::string& transport, std::string payload)>;
  NamedPath(std::string name, Send send) : name_(std::move(name)), send_(std::move(send)) {}
  void SendToPeer(std::string payload) override { send_(name_, std::move(payload)); }

 private:
  const std::string name_;
  const Send send_;
};

// Lanes of different treatment on one link; what wants more shares the node's own.
constexpr size_t kMaxRdmaClasses = 8;

// The initiator's end.
class InitiatorStack {
 public:
  struct Peer {
    Endpoint address;
    Endpoint lanes_to;
    LaneIdentity identity;
    std::vector<std::string> served;  // as its Welcome says
  };
  // FAILED when the two nodes have no transport in common; names both sides and node.transports.
  static absl::StatusOr<std::unique_ptr<InitiatorStack>> Connect(const Transports& transports,
                                                                 Peer peer, NamedPath::Send send);

  // The node's own (rdma.traffic_class, rdma.service_level).
  const RdmaClass& rdma_class() const { return transports_.rdma_class; }
  // Where a channel's transfers go; nullptr: as the node is configured. Valid as long as the stack.
  TransferSink* Sink(const RdmaClass* treatment);
  void OnControlMessage(const std::string& transport, absl::string_view payload);
  // See InitiatorLink. Also on the thread that lets go of the link's last job.
  void Close(const absl::Status& reason, int64_t fenced_at_ns);
  // "rdma" or "tcp": where transfers of engines without a wish go now.
  absl::string_view transport() const;
  std::vector<LaneStats> Lanes() const;
  // Why not RDMA, where one might expect it; empty otherwise.
  std::string Detail() const;

 private:
  // RDMA lanes of one treatment.
  struct RdmaSet {
    explicit RdmaSet(NamedPath path_in) : path(std::move(path_in)) {}
    NamedPath path;
    std::unique_ptr<RdmaInitiatorLink> link;
  };

  InitiatorStack(const Transports& transports, Peer peer, NamedPath::Send send, bool use_rdma,
                 bool use_tcp);
  RdmaSet& AddSet(const std::string& name, const RdmaClass& treatment);

  const Transports transports_;
  const Endpoint peer_;
  const NamedPath::Send send_;
  NamedPath tcp_path_;
  std::string no_rdma_;
  std::shared_ptr<InitiatorLink> tcp_;                    // null: not used
  std::map<std::string, std::unique_ptr<RdmaSet>> rdma_;  // by name; empty: not used
};

// The target's end.
class TargetStack {
 public:
  // `resolver` must outlive it until it is closed.
  TargetStack(const Transports& transports, LaneIdentity identity, TargetResolver* resolver,
              NamedPath::Send send);

  void OnControlMessage(const std::string& transport, absl::string_view payload);
  // `closed` runs when no byte that came over any of them can land any more.
  void Close(const absl::Status& reason, absl::AnyInvocable<void()> closed);
  void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced);
  // What the initiator uses: "rdma" once it has opened lanes.
  absl::string_view transport() const;
  std::vector<LaneStats> Lanes() const;

 private:
  struct RdmaSet {
    explicit RdmaSet(NamedPath path_in) : path(std::move(path_in)) {}
    NamedPath path;
    std::unique_ptr<TargetLink> link;
  };

  RdmaTransport* const rdma_transport_;  // null: not served
  TargetResolver* const resolver_;
  const NamedPath::Send send_;
  NamedPath tcp_path_;
  std::unique_ptr<TargetLink> tcp_;                       // null: not served
  std::map<std::string, std::unique_ptr<RdmaSet>> rdma_;  // by name
  bool closed_ = false;
};

}  // namespace hixld
