#include "daemon/link/incoming_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {

using hixl::wire::v1::PeerMessage;

// What an engine holds of one inbound channel; the link may be gone by then.
class IncomingLink::Handle : public InboundHandle {
 public:
  Handle(Loop* loop, std::weak_ptr<IncomingLink> link, uint64_t channel, std::string transport)
      : loop_(loop), link_(std::move(link)), channel_(channel), transport_(std::move(transport)) {}

  uint64_t channel_id() const override { return channel_; }
  absl::string_view transport() const override { return transport_; }
  void Fence(absl::AnyInvocable<void()> fenced) override {
    loop_->Dispatch([link = link_, channel = channel_, fenced = std::move(fenced)]() mutable {
      auto self = link.lock();
      if (self == nullptr) return fenced();
      self->Fence(channel, std::move(fenced));
    });
  }
  void RegionsGone() override {
    loop_->Dispatch([link = link_, channel = channel_] {
      if (auto self = link.lock()) self->TellRegionsGone(channel);
    });
  }
  void Close(std::string reason) override {
    loop_->Dispatch([link = link_, channel = channel_, reason = std::move(reason)] {
      if (auto self = link.lock()) self->Forget(channel, reason);
    });
  }

 private:
  Loop* const loop_;
  const std::weak_ptr<IncomingLink> link_;
  const uint64_t channel_;
  const std::string transport_;
};

IncomingLink::IncomingLink(Loop* loop, ChannelHost* host, std::string peer_node,
                           std::shared_ptr<ControlConnection> connection, KeepAlive keep_alive)
    : loop_(loop),
      host_(host),
      peer_node_(std::move(peer_node)),
      connection_(std::move(connection)),
      keep_alive_(keep_alive),
      started_ns_(MonotonicNanos()),
      published_(std::make_shared<const ChannelMap>()),
      pong_sent_ns_(started_ns_),
      lease_end_ns_(started_ns_ + keep_alive.timeout_ns + keep_alive.interval_ns),
      last_heard_ns_(started_ns_) {}

IncomingLink::~IncomingLink() = default;

void IncomingLink::Start(std::unique_ptr<TargetStack> target,
                         absl::AnyInvocable<void()> on_closed) {
  target_ = std::move(target);
  on_closed_.push_back(std::move(on_closed));
  const std::weak_ptr<IncomingLink> weak = weak_from_this();
  connection_->SetHandler({.on_message =
                               [weak](PeerMessage message) {
                                 if (auto self = weak.lock()) self->OnMessage(std::move(message));
                               },
                           .on_end =
                               [weak](const absl::Status& status, ConnectionEnd) {
                                 if (auto self = weak.lock()) self->Close(status, [] {});
                               }});
  CheckLease();
}

void IncomingLink::OnMessage(PeerMessage message) {
  last_heard_ns_ = MonotonicNanos();
  switch (message.body_case()) {
    case PeerMessage::kPing:
      return OnPing(message.ping());
    case PeerMessage::kOpenChannel:
      return OnOpenChannel(message.request_id(), message.open_channel());
    case PeerMessage::kCloseChannel:
      return CloseChannel(message.close_channel().channel_id());
    case PeerMessage::kListRegions:
      return OnListRegions(message.request_id(), message.list_regions());
    case PeerMessage::kOpenRelay:
      return OnOpenRelay(message.request_id(), message.open_relay());
    case PeerMessage::kCloseRelay:
      return OnCloseRelay(message.close_relay());
    case PeerMessage::kNotify:
      return OnNotify(message.request_id(), std::move(*message.mutable_notify()));
    case PeerMessage::kTransportControl:
      return target_->OnControlMessage(message.transport_control().transport(),
                                       message.transport_control().payload());
    case PeerMessage::kGoodbye:
      return Close(absl::UnavailableError(
                       absl::StrCat("the peer said goodbye: ", message.goodbye().reason())),
                   [] {});
    default:
      return Close(
          ParamInvalid(absl::StrCat("the peer sent message ", static_cast<int>(message.body_case()),
                                    ", which an initiator never sends"),
                       {.object = "peer message"}),
          [] {});
  }
}

void IncomingLink::OnPing(const hixl::wire::v1::Ping& ping) {
  if (ping.sequence() != pings_ + 1) {
    return Close(
        ParamInvalid(absl::StrCat("the peer sent ping ", ping.sequence(), " after ", pings_),
                     {.object = "ping"}),
        [] {});
  }
  pings_ = ping.sequence();
  // Ping n + 1 proves that pong n was heard; the lease counts from when that one was sent.
  lease_end_ns_.store(pong_sent_ns_ + keep_alive_.timeout_ns + keep_alive_.interval_ns,
                      std::memory_order_relaxed);
  pong_sent_ns_ = MonotonicNanos();
  PeerMessage message;
  message.mutable_pong()->set_sequence(pings_);
  connection_->Send(message);
}

void IncomingLink::CheckLease() {
  if (closing_) return;
  const int64_t lease_end_ns = lease_end_ns_.load(std::memory_order_relaxed);
  if (MonotonicNanos() >= lease_end_ns) {
    return Close(
        Failed(absl::StrCat("nothing was heard from node ", absl::BytesToHexString(peer_node_),
                            " for ", keep_alive_.timeout_ns / kNanosPerMilli, " ms")),
        [] {});
  }
  loop_->AddTimer(lease_end_ns, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->CheckLease();
  });
}

void IncomingLink::OnOpenChannel(uint64_t request_id, const hixl::wire::v1::OpenChannel& open) {
  if (channels_.size() >= kMaxChannels) {
    connection_->Send(ErrorMessage(
        request_id,
        ResourceExhausted(absl::StrCat("the link has ", channels_.size(), " channels"),
                          {.object = "link", .limit = absl::StrCat(kMaxChannels, " channels")})));
    return;
  }
  const uint64_t id = next_channel_++;
  InboundRequest request;
  request.initiator_engine = open.initiator_engine();
  request.target_engine = open.target_engine();
  request.peer_node = absl::BytesToHexString(peer_node_);
  request.peer_address = connection_->peer().ToString();
  absl::StatusOr<EndpointSet> endpoints = FromProto(open.endpoints());
  if (!endpoints.ok()) {
    connection_->Send(ErrorMessage(request_id, endpoints.status()));
    return;
  }
  request.endpoints = *std::move(endpoints);
  auto channel = host_->AcceptChannel(
      request,
      std::make_shared<Handle>(loop_, weak_from_this(), id, std::string(target_->transport())));
  if (!channel.ok()) {
    connection_->Send(ErrorMessage(request_id, channel.status()));
    return;
  }
  const auto regions = (*channel)->Regions();
  const EndpointSet ours = (*channel)->Endpoints();
  channels_.emplace(id, std::move(*channel));
  Publish();
  listed_.insert(id);
  SendRegions(request_id, id, *regions, &ours,
              [this](const PeerMessage& message) { connection_->Send(message); });
}

void IncomingLink::OnListRegions(uint64_t request_id, const hixl::wire::v1::ListRegions& list) {
  const auto found = channels_.find(list.channel_id());
  if (found == channels_.end()) {
    connection_->Send(ErrorMessage(
        request_id, NotConnected(absl::StrCat("channel ", list.channel_id(), " is closed"))));
    return;
  }
  listed_.insert(list.channel_id());
  SendRegions(request_id, list.channel_id(), *found->second->Regions(), /*opened=*/nullptr,
              [this](const PeerMessage& message) { connection_->Send(message); });
}

void IncomingLink::TellRegionsGone(uint64_t channel) {
  // Once is enough until the initiator has asked again.
  if (listed_.erase(channel) == 0 || closing_) return;
  PeerMessage message;
  message.mutable_region_list()->set_channel_id(channel);
  connection_->Send(message);
}

void IncomingLink::OnOpenRelay(uint64_t request_id, const hixl::wire::v1::OpenRelay& open) {
  const auto found = channels_.find(open.channel_id());
  std::vector<AddressRange> ranges;
  const int count = std::min(open.addresses_size(), open.lengths_size());
  for (int i = 0; i < count; ++i) ranges.push_back({open.addresses(i), open.lengths(i)});
  absl::StatusOr<uint64_t> id =
      found == channels_.end()
          ? NotConnected(absl::StrCat("channel ", open.channel_id(), " is closed"))
          : found->second->OpenRelay(std::move(ranges));
  if (!id.ok()) return connection_->Send(ErrorMessage(request_id, id.status()));
  PeerMessage message;
  message.set_request_id(request_id);
  message.mutable_relay_opened()->set_channel_id(open.channel_id());
  message.mutable_relay_opened()->set_relay_id(*id);
  connection_->Send(message);
}

void IncomingLink::OnCloseRelay(const hixl::wire::v1::CloseRelay& close) {
  const auto found = channels_.find(close.channel_id());
  if (found != channels_.end()) found->second->CloseRelay(close.relay_id());
}

void IncomingLink::OnNotify(uint64_t request_id, hixl::wire::v1::Notify notify) {
  const auto found = channels_.find(notify.channel_id());
  absl::Status taken =
      found == channels_.end()
          ? NotConnected(absl::StrCat("channel ", notify.channel_id(), " is closed"))
          : found->second->OnNotify(std::move(*notify.mutable_name()),
                                    std::move(*notify.mutable_message()));
  if (!taken.ok()) return connection_->Send(ErrorMessage(request_id, taken));
  PeerMessage message;
  message.set_request_id(request_id);
  message.mutable_notify_taken();
  connection_->Send(message);
}

void IncomingLink::CloseChannel(uint64_t channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return;
  auto inbound = std::move(found->second);
  channels_.erase(found);
  listed_.erase(channel);
  Publish();
  Fence(channel, [inbound] { inbound->OnClosed("the initiator closed it"); });
}

void IncomingLink::Forget(uint64_t channel, const std::string& reason) {
  listed_.erase(channel);
  if (channels_.erase(channel) == 0 || closing_) return;
  Publish();
  // Told when fenced: the initiator may then end what it had in flight.
  Fence(channel, [self = shared_from_this(), channel, reason] {
    PeerMessage message;
    message.mutable_channel_closed()->set_channel_id(channel);
    message.mutable_channel_closed()->set_reason(reason);
    self->connection_->Send(message);
  });
}

void IncomingLink::Fence(uint64_t channel, absl::AnyInvocable<void()> fenced) {
  if (closed_) return fenced();
  if (closing_) {
    on_closed_.push_back(std::move(fenced));
    return;
  }
  target_->FenceChannel(channel, std::move(fenced));
}

void IncomingLink::Publish() {
  std::atomic_store_explicit(&published_, std::make_shared<const ChannelMap>(channels_),
                             std::memory_order_release);
}

bool IncomingLink::MayLand() const {
  return MonotonicNanos() < lease_end_ns_.load(std::memory_order_relaxed);
}

absl::Status IncomingLink::Resolve(uint64_t channel, uint64_t address, uint64_t length,
                                   std::vector<Part>* parts) {
  if (!MayLand()) {
    return NotConnected("nothing was heard from the initiator for too long");
  }
  const auto channels = std::atomic_load_explicit(&published_, std::memory_order_acquire);
  const auto found = channels->find(channel);
  if (found == channels->end()) {
    return NotConnected(absl::StrCat("channel ", channel, " is closed"),
                        {.object = absl::StrCat("channel ", channel)});
  }
  return found->second->Resolve(address, length, parts);
}

void IncomingLink::Close(const absl::Status& reason, absl::AnyInvocable<void()> closed) {
  if (closed_) return closed();
  on_closed_.push_back(std::move(closed));
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  LogInfo("peer link closed", {{"peer", connection_->peer().ToString()},
                               {"node", absl::BytesToHexString(peer_node_)},
                               {"direction", "in"},
                               {"reason", reason}});
  connection_->StopReading();
  std::atomic_store_explicit(&published_, std::make_shared<const ChannelMap>(),
                             std::memory_order_release);
  target_->Close(reason,
                 [self = shared_from_this()] { self->loop_->Post([self] { self->Closed(); }); });
}

void IncomingLink::Closed() {
  closed_ = true;
  PeerMessage goodbye;
  goodbye.mutable_goodbye()->set_reason(std::string(reason_.message()));
  connection_->Send(goodbye);
  connection_->CloseFlushed();
  ChannelMap channels;
  channels.swap(channels_);
  for (const auto& [id, channel] : channels) channel->OnClosed(reason_.message());
  auto callbacks = std::exchange(on_closed_, {});
  for (auto& callback : callbacks) callback();
}

LinkDescription IncomingLink::Describe() const {
  LinkDescription description;
  description.peer_node = absl::BytesToHexString(peer_node_);
  description.peer_address = connection_->peer().ToString();
  description.transport = target_ != nullptr ? std::string(target_->transport()) : "";
  description.state = closing_ ? "down" : "up";
  description.initiator = false;
  description.channels = channels_.size();
  description.since_ns = started_ns_;
  description.last_heard_ns = last_heard_ns_;
  if (target_ != nullptr && !closing_) description.lanes = target_->Lanes();
  if (closing_) description.detail = std::string(reason_.message());
  return description;
}

}  // namespace hixld
