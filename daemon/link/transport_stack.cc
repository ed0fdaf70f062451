#include "daemon/link/transport_stack.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/telemetry/log.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// No name of a set of lanes is longer.
constexpr size_t kMaxNameBytes = 32;

bool Has(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A callback that runs `done` when its last copy has run or gone.
std::shared_ptr<void> WhenAllRan(absl::AnyInvocable<void()> done) {
  auto shared = std::make_shared<absl::AnyInvocable<void()>>(std::move(done));
  return {nullptr, [shared](void*) { (*shared)(); }};
}

void Append(std::vector<LaneStats> lanes, const char* transport, std::vector<LaneStats>* all) {
  for (LaneStats& lane : lanes) {
    lane.transport = transport;
    lane.index = static_cast<uint32_t>(all->size());
    all->push_back(std::move(lane));
  }
}

bool IsRdmaName(const std::string& name) {
  return name == kRdma ||
         (name.size() <= kMaxNameBytes && absl::StartsWith(name, absl::StrCat(kRdma, ":")));
}

}  // namespace

std::vector<std::string> Transports::Served() const {
  std::vector<std::string> served;
  for (const std::string& name : order) {
    if (name != kRdma || rdma != nullptr) served.push_back(name);
  }
  return served;
}

absl::StatusOr<std::unique_ptr<InitiatorStack>> InitiatorStack::Connect(
    const Transports& transports, Peer peer, NamedPath::Send send) {
  std::vector<std::string> common;
  for (const std::string& name : transports.Served()) {
    if (Has(peer.served, name)) common.push_back(name);
  }
  if (common.empty()) {
    return Failed(
        absl::StrCat("no transport in common with ", peer.address.ToString(), ": this node uses ",
                     absl::StrJoin(transports.order, ", "), " (node.transports), the peer serves ",
                     absl::StrJoin(peer.served, ", "),
                     transports.no_rdma.empty() ? "" : "; no RDMA here: ", transports.no_rdma),
        {.object = absl::StrCat("node ", peer.address.ToString()), .option = "node.transports"});
  }
  const bool use_rdma = common.front() == kRdma;
  return std::unique_ptr<InitiatorStack>(new InitiatorStack(
      transports, std::move(peer), std::move(send), use_rdma, Has(common, kTcp)));
}

InitiatorStack::InitiatorStack(const Transports& transports, Peer peer, NamedPath::Send send,
                               bool use_rdma, bool use_tcp)
    : transports_(transports), peer_(peer.address), send_(send), tcp_path_(kTcp, send) {
  if (use_tcp) {
    tcp_ = transports.tcp->Connect(peer.lanes_to, std::move(peer.identity), &tcp_path_);
  }
  if (use_rdma) {
    AddSet(kRdma, transports.rdma_class);
  } else if (transports.order.front() == kRdma) {
    const bool offered = Has(peer.served, kRdma);
    no_rdma_ = transports.no_rdma;
    if (no_rdma_.empty() && transports.rdma == nullptr && offered) {
      no_rdma_ = "this node has no RDMA device, the peer has";
    }
    if (transports.rdma != nullptr && !offered) {
      no_rdma_ =
          "the peer serves no RDMA: it has no usable port, or its node.transports has no rdma";
    }
  }
}

InitiatorStack::RdmaSet& InitiatorStack::AddSet(const std::string& name,
                                                const RdmaClass& treatment) {
  auto& set = rdma_[name];
  set = std::make_unique<RdmaSet>(NamedPath(name, send_));
  set->link = transports_.rdma->Connect(peer_, treatment, tcp_, &set->path);
  return *set;
}

TransferSink* InitiatorStack::Sink(const RdmaClass* treatment) {
  if (rdma_.empty()) return tcp_.get();
  if (treatment == nullptr || *treatment == transports_.rdma_class) {
    return rdma_.at(kRdma)->link.get();
  }
  const std::string name = absl::StrCat(kRdma, ":", static_cast<uint32_t>(treatment->traffic_class),
                                        ":", static_cast<uint32_t>(treatment->service_level));
  const auto known = rdma_.find(name);
  if (known != rdma_.end()) return known->second->link.get();
  if (rdma_.size() >= kMaxRdmaClasses) {
    LogWarn("too many RDMA traffic classes",
            {{"peer", peer_.ToString()}, {"refused", name}, {"limit", kMaxRdmaClasses}});
    return rdma_.at(kRdma)->link.get();
  }
  return AddSet(name, *treatment).link.get();
}

void InitiatorStack::OnControlMessage(const std::string& transport, absl::string_view payload) {
  if (transport == kTcp && tcp_ != nullptr) return tcp_->OnControlMessage(payload);
  // A peer that talks of a transport that was not agreed on is not heard.
  const auto set = rdma_.find(transport);
  if (set != rdma_.end()) set->second->link->OnControlMessage(payload);
}

void InitiatorStack::Close(const absl::Status& reason, int64_t fenced_at_ns) {
  for (const auto& [name, set] : rdma_) set->link->Close(reason, fenced_at_ns);
  if (tcp_ != nullptr) tcp_->Close(reason, fenced_at_ns);
}

absl::string_view InitiatorStack::transport() const {
  return rdma_.empty() ? absl::string_view(kTcp) : rdma_.at(kRdma)->link->transport();
}

std::vector<LaneStats> InitiatorStack::Lanes() const {
  std::vector<LaneStats> all;
  for (const auto& [name, set] : rdma_) Append(set->link->Lanes(), kRdma, &all);
  if (tcp_ != nullptr) Append(tcp_->Lanes(), kTcp, &all);
  return all;
}

std::string InitiatorStack::Detail() const {
  for (const auto& [name, set] : rdma_) {
    std::string trouble = set->link->Trouble();
    if (!trouble.empty()) return trouble;
  }
  return no_rdma_.empty() ? "" : absl::StrCat("no RDMA: ", no_rdma_);
}

TargetStack::TargetStack(const Transports& transports, LaneIdentity identity,
                         TargetResolver* resolver, NamedPath::Send send)
    : rdma_transport_(Has(transports.Served(), kRdma) ? transports.rdma : nullptr),
      resolver_(resolver),
      send_(send),
      tcp_path_(kTcp, send) {
  if (Has(transports.order, kTcp)) {
    tcp_ = transports.tcp->Serve(std::move(identity), resolver, &tcp_path_);
  }
}

void TargetStack::OnControlMessage(const std::string& transport, absl::string_view payload) {
  if (transport == kTcp && tcp_ != nullptr) return tcp_->OnControlMessage(payload);
  if (rdma_transport_ == nullptr || closed_ || !IsRdmaName(transport)) return;
  auto set = rdma_.find(transport);
  if (set == rdma_.end()) {
    if (rdma_.size() >= kMaxRdmaClasses) return;
    set = rdma_.emplace(transport, std::make_unique<RdmaSet>(NamedPath(transport, send_))).first;
    set->second->link = rdma_transport_->Serve(resolver_, &set->second->path);
  }
  set->second->link->OnControlMessage(payload);
}

void TargetStack::Close(const absl::Status& reason, absl::AnyInvocable<void()> closed) {
  closed_ = true;
  std::shared_ptr<void> all = WhenAllRan(std::move(closed));
  for (const auto& [name, set] : rdma_) set->link->Close(reason, [all] {});
  if (tcp_ != nullptr) tcp_->Close(reason, [all] {});
}

void TargetStack::FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) {
  std::shared_ptr<void> all = WhenAllRan(std::move(fenced));
  for (const auto& [name, set] : rdma_) set->link->FenceChannel(channel, [all] {});
  if (tcp_ != nullptr) tcp_->FenceChannel(channel, [all] {});
}

std::vector<LaneStats> TargetStack::Lanes() const {
  std::vector<LaneStats> all;
  for (const auto& [name, set] : rdma_) Append(set->link->Lanes(), kRdma, &all);
  if (tcp_ != nullptr) Append(tcp_->Lanes(), kTcp, &all);
  return all;
}

absl::string_view TargetStack::transport() const {
  for (const auto& [name, set] : rdma_) {
    if (!set->link->Lanes().empty()) return kRdma;
  }
  return tcp_ != nullptr ? kTcp : kRdma;
}

}  // namespace hixld
