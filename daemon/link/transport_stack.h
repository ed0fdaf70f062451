// What carries the transfers of a link: TCP always, and RDMA before it where both daemons have it.
//
// The stack is what a link sees as its transport. Each transport's two ends talk over the link's
// control connection under their own name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/endpoint.h"
#include "transports/rdma/rdma_transport.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/transport.h"

namespace hixld {

inline constexpr absl::string_view kTcp = "tcp";
inline constexpr absl::string_view kRdma = "rdma";

// The transports of this daemon; they outlive every link.
struct Transports {
  TcpTransport* tcp = nullptr;
  // Null where RDMA is off or cannot be used; then `no_rdma` says why (empty: it is off).
  RdmaTransport* rdma = nullptr;
  std::string no_rdma;
  // A link without RDMA is refused.
  bool require_rdma = false;
};

// One transport's end of the control connection. `send` must outlive the stack's transports.
class NamedPath : public ControlPath {
 public:
  using Send = std::function<void(absl::string_view transport, std::string payload)>;
  NamedPath(absl::string_view name, Send send) : name_(name), send_(std::move(send)) {}
  void SendToPeer(std::string payload) override { send_(name_, std::move(payload)); }

 private:
  const absl::string_view name_;
  const Send send_;
};

class InitiatorStack {
 public:
  // `peer_has_rdma` as its Welcome says.
  InitiatorStack(const Transports& transports, const Endpoint& lanes_to, const Endpoint& peer,
                 LaneIdentity identity, bool peer_has_rdma, NamedPath::Send send);

  // "rdma" or "tcp": what transfers prefer.
  absl::string_view transport() const;
  TransferSink& sink();
  void OnControlMessage(absl::string_view transport, absl::string_view payload);
  void Close(const absl::Status& reason, int64_t fenced_at_ns);
  std::vector<LaneStats> Lanes() const;
  // Why not RDMA, where one might expect it; empty otherwise.
  std::string Detail() const;

 private:
  NamedPath tcp_path_;
  NamedPath rdma_path_;
  std::string no_rdma_;
  std::shared_ptr<InitiatorLink> tcp_;
  std::unique_ptr<RdmaInitiatorLink> rdma_;
};

class TargetStack {
 public:
  TargetStack(const Transports& transports, LaneIdentity identity, TargetResolver* resolver,
              NamedPath::Send send);

  void OnControlMessage(absl::string_view transport, absl::string_view payload);
  // `closed` runs when no byte that came over any of them can land any more.
  void Close(const absl::Status& reason, absl::AnyInvocable<void()> closed);
  void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced);
  std::vector<LaneStats> Lanes() const;
  // What the initiator prefers to use: "rdma" once it has opened lanes.
  absl::string_view transport() const;

 private:
  NamedPath tcp_path_;
  NamedPath rdma_path_;
  std::unique_ptr<TargetLink> tcp_;
  std::unique_ptr<TargetLink> rdma_;
};

}  // namespace hixld
