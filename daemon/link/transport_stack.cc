#include "daemon/link/transport_stack.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hixld {
namespace {

// A callback that runs `done` when its last copy has run or gone.
absl::AnyInvocable<void()> Share(const std::shared_ptr<void>& last) {
  return [last] {};
}

std::shared_ptr<void> WhenAllRan(absl::AnyInvocable<void()> done) {
  auto shared = std::make_shared<absl::AnyInvocable<void()>>(std::move(done));
  return std::shared_ptr<void>(nullptr, [shared](void*) { (*shared)(); });
}

std::vector<LaneStats> Joined(std::vector<LaneStats> first, const std::vector<LaneStats>& rest) {
  for (const LaneStats& lane : rest) {
    first.push_back(lane);
    first.back().index = static_cast<uint32_t>(first.size() - 1);
  }
  return first;
}

}  // namespace

InitiatorStack::InitiatorStack(const Transports& transports, const Endpoint& lanes_to,
                               const Endpoint& peer, LaneIdentity identity, bool peer_has_rdma,
                               NamedPath::Send send)
    : tcp_path_(kTcp, send), rdma_path_(kRdma, send), no_rdma_(transports.no_rdma) {
  tcp_ = transports.tcp->Connect(lanes_to, std::move(identity), &tcp_path_);
  if (transports.rdma == nullptr) return;
  if (!peer_has_rdma) {
    no_rdma_ = "the peer offers no RDMA (its rdma.enabled is off, or it has no usable port)";
    return;
  }
  rdma_ = transports.rdma->Connect(
      peer, transports.require_rdma ? nullptr : std::shared_ptr<TransferSink>(tcp_), &rdma_path_);
}

absl::string_view InitiatorStack::transport() const { return rdma_ != nullptr ? kRdma : kTcp; }

TransferSink& InitiatorStack::sink() {
  if (rdma_ != nullptr) return *rdma_;
  return *tcp_;
}

void InitiatorStack::OnControlMessage(absl::string_view transport, absl::string_view payload) {
  if (transport == kTcp) return tcp_->OnControlMessage(payload);
  // A peer that talks of a transport that was not agreed on is not heard.
  if (transport == kRdma && rdma_ != nullptr) rdma_->OnControlMessage(payload);
}

void InitiatorStack::Close(const absl::Status& reason, int64_t fenced_at_ns) {
  if (rdma_ != nullptr) rdma_->Close(reason, fenced_at_ns);
  tcp_->Close(reason, fenced_at_ns);
}

std::vector<LaneStats> InitiatorStack::Lanes() const {
  if (rdma_ == nullptr) return tcp_->Lanes();
  return Joined(rdma_->Lanes(), tcp_->Lanes());
}

std::string InitiatorStack::Detail() const {
  if (rdma_ != nullptr) return rdma_->Trouble();
  return no_rdma_.empty() ? "" : absl::StrCat("no RDMA: ", no_rdma_);
}

TargetStack::TargetStack(const Transports& transports, LaneIdentity identity,
                         TargetResolver* resolver, NamedPath::Send send)
    : tcp_path_(kTcp, send),
      rdma_path_(kRdma, send),
      tcp_(transports.tcp->Serve(std::move(identity), resolver, &tcp_path_)) {
  if (transports.rdma != nullptr) rdma_ = transports.rdma->Serve(resolver, &rdma_path_);
}

void TargetStack::OnControlMessage(absl::string_view transport, absl::string_view payload) {
  if (transport == kTcp) return tcp_->OnControlMessage(payload);
  if (transport == kRdma && rdma_ != nullptr) rdma_->OnControlMessage(payload);
}

void TargetStack::Close(const absl::Status& reason, absl::AnyInvocable<void()> closed) {
  const std::shared_ptr<void> all = WhenAllRan(std::move(closed));
  if (rdma_ != nullptr) rdma_->Close(reason, Share(all));
  tcp_->Close(reason, Share(all));
}

void TargetStack::FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) {
  const std::shared_ptr<void> all = WhenAllRan(std::move(fenced));
  if (rdma_ != nullptr) rdma_->FenceChannel(channel, Share(all));
  tcp_->FenceChannel(channel, Share(all));
}

std::vector<LaneStats> TargetStack::Lanes() const {
  if (rdma_ == nullptr) return tcp_->Lanes();
  return Joined(rdma_->Lanes(), tcp_->Lanes());
}

absl::string_view TargetStack::transport() const {
  return rdma_ != nullptr && !rdma_->Lanes().empty() ? kRdma : kTcp;
}

}  // namespace hixld
