#include "daemon/link/outgoing_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// What says "lost" to the link's other users must not say "try elsewhere" to those who may have
// been heard.
absl::Status FailedWhenLost(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ? Failed(status.message()) : status;
}

}  // namespace

using hixl::wire::v1::PeerMessage;

// A channel of this link. Holds the link; the link holds it weakly.
class OutgoingLink::RemoteChannelImpl : public RemoteChannel,
                                        public std::enable_shared_from_this<RemoteChannelImpl> {
 public:
  RemoteChannelImpl(std::shared_ptr<OutgoingLink> link, uint64_t id, TransferSink* sink,
                    std::shared_ptr<const RegionSnapshot> regions, EndpointSet peer_endpoints,
                    absl::AnyInvocable<void(absl::Status)> on_broken,
                    std::function<void()> on_outdated)
      : link_(std::move(link)),
        id_(id),
        sink_(sink),
        peer_endpoints_(std::move(peer_endpoints)),
        regions_(std::move(regions)),
        on_broken_(std::move(on_broken)),
        on_outdated_(std::move(on_outdated)) {
    link_->held_.fetch_add(1, std::memory_order_relaxed);
  }
  ~RemoteChannelImpl() override {
    link_->held_.fetch_sub(1, std::memory_order_relaxed);
    Close();
  }

  absl::string_view transport() const override { return sink_->transport(); }
  EndpointSet PeerEndpoints() const override { return peer_endpoints_; }
  bool open() const override { return open_.load(std::memory_order_acquire); }

  std::shared_ptr<const RegionSnapshot> Regions() const override {
    MutexLock lock(&mutex_);
    return regions_;
  }

  bool RegionsOutdated() const override { return outdated_.load(std::memory_order_acquire); }

  void RefreshRegions(int64_t deadline_ns, absl::AnyInvocable<void(absl::Status)> done) override {
    link_->loop_->Dispatch(
        [self = shared_from_this(), deadline_ns, done = std::move(done)]() mutable {
          self->link_->Refresh(
              self->id_, deadline_ns,
              [self, done = std::move(done)](
                  absl::StatusOr<std::shared_ptr<const RegionSnapshot>> regions) mutable {
                if (!regions.ok()) return done(regions.status());
                self->SetRegions(std::move(*regions));
                done(absl::OkStatus());
              });
        });
  }

  void Submit(std::shared_ptr<TransferJob> job) override {
    job->channel = id_;
    job->pins.push_back(link_);
    sink_->Submit(std::move(job));
  }

  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    sink_->Cancel(job, std::move(reason));
  }

  void OpenRelay(std::vector<AddressRange> ranges, int64_t deadline_ns,
                 absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) override {
    link_->loop_->Dispatch([self = shared_from_this(), ranges = std::move(ranges), deadline_ns,
                            done = std::move(done)]() mutable {
      if (!self->open()) return done(Failed("the channel was closed before the transfer began"));
      self->link_->OpenRelay(self->id_, ranges, deadline_ns, std::move(done));
    });
  }

  void CloseRelay(uint64_t id) override {
    link_->loop_->Dispatch([link = link_, channel = id_, id] { link->CloseRelay(channel, id); });
  }

  void Notify(std::string name, std::string message, int64_t deadline_ns,
              absl::AnyInvocable<void(absl::Status)> done) override {
    link_->loop_->Dispatch([self = shared_from_this(), name = std::move(name),
                            message = std::move(message), deadline_ns,
                            done = std::move(done)]() mutable {
      if (!self->open()) return done(Failed("the channel was closed before the notify was sent"));
      self->link_->Notify(self->id_, std::move(name), std::move(message), deadline_ns,
                          std::move(done));
    });
  }

  void Close() override {
    if (!open_.exchange(false, std::memory_order_acq_rel)) return;
    link_->loop_->Dispatch([link = link_, id = id_] { link->CloseChannel(id); });
  }

  // On the loop: the link or the target ended it.
  void Break(const absl::Status& reason) {
    if (!open_.exchange(false, std::memory_order_acq_rel)) return;
    if (on_broken_) std::exchange(on_broken_, nullptr)(reason);
  }
  // On the loop: some regions are gone.
  void Outdate() {
    outdated_.store(true, std::memory_order_release);
    if (on_outdated_) on_outdated_();
  }

 private:
  // What the target says after this list comes after it.
  void SetRegions(std::shared_ptr<const RegionSnapshot> regions) {
    outdated_.store(false, std::memory_order_release);
    MutexLock lock(&mutex_);
    regions_.swap(regions);
  }

  const std::shared_ptr<OutgoingLink> link_;
  const uint64_t id_;
  TransferSink* const sink_;  // the link's
  const EndpointSet peer_endpoints_;
  std::atomic<bool> open_{true};
  mutable Mutex mutex_;
  std::shared_ptr<const RegionSnapshot> regions_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> outdated_{false};
  absl::AnyInvocable<void(absl::Status)> on_broken_;  // loop only
  const std::function<void()> on_outdated_;
};

OutgoingLink::OutgoingLink(Loop* loop, std::string peer_node, const Endpoint& peer,
                           std::shared_ptr<ControlConnection> connection, Options options)
    : loop_(loop),
      peer_node_(std::move(peer_node)),
      peer_(peer),
      connection_(std::move(connection)),
      options_(options),
      started_ns_(MonotonicNanos()),
      last_pong_ns_(started_ns_),
      last_heard_ns_(started_ns_),
      check_at_ns_(started_ns_),
      idle_since_ns_(started_ns_) {}

OutgoingLink::~OutgoingLink() {
  // A link that was reset and whose probe has not answered when the loop ends.
  if (initiator_ != nullptr) EndTransfers(LeaseEnd());
}

void OutgoingLink::Start(std::unique_ptr<InitiatorStack> initiator,
                         absl::AnyInvocable<void(const absl::Status&)> on_lost,
                         absl::AnyInvocable<void(ProbeDone)> probe) {
  initiator_ = std::move(initiator);
  on_lost_ = std::move(on_lost);
  probe_ = std::move(probe);
  const std::weak_ptr<OutgoingLink> weak = weak_from_this();
  connection_->SetHandler({.on_message =
                               [weak](PeerMessage message) {
                                 if (auto self = weak.lock()) self->OnMessage(std::move(message));
                               },
                           .on_end =
                               [weak](const absl::Status& status, ConnectionEnd end) {
                                 if (auto self = weak.lock()) self->OnEnd(status, end);
                               }});
  LogInfo("peer link up", {{"peer", peer_.ToString()},
                           {"node", absl::BytesToHexString(peer_node_)},
                           {"direction", "out"},
                           {"transport", initiator_->transport()}});
  const std::string detail = initiator_->Detail();
  if (!detail.empty()) {
    LogWarn("peer link over TCP", {{"peer", peer_.ToString()}, {"reason", detail}});
  }
  SendPing();
  CheckSilence();
  CheckIdle();
}

void OutgoingLink::OnMessage(PeerMessage message) {
  last_heard_ns_ = MonotonicNanos();
  switch (message.body_case()) {
    case PeerMessage::kPong:
      return OnPong(message.pong());
    case PeerMessage::kChannelOpened:
      return OnChannelOpened(message.request_id(), message.channel_opened());
    case PeerMessage::kRegionList:
      return OnRegionList(message.request_id(), message.region_list());
    case PeerMessage::kChannelClosed:
      return OnChannelClosed(message.channel_closed());
    case PeerMessage::kRelayOpened:
      return OnRelayOpened(message.request_id(), message.relay_opened());
    case PeerMessage::kNotifyTaken:
      return Answer(message.request_id(), std::shared_ptr<const RegionSnapshot>());
    case PeerMessage::kError:
      return Answer(message.request_id(), StatusOf(message.error()));
    case PeerMessage::kTransportControl:
      return initiator_->OnControlMessage(message.transport_control().transport(),
                                          message.transport_control().payload());
    case PeerMessage::kGoodbye:
      // The target says it only when no byte can land any more.
      return OnEnd(absl::UnavailableError(
                       absl::StrCat("the peer said goodbye: ", message.goodbye().reason())),
                   ConnectionEnd::kEof);
    default:
      return OnEnd(
          ParamInvalid(absl::StrCat("the peer sent message ", static_cast<int>(message.body_case()),
                                    ", which a target never sends"),
                       {.object = "peer message"}),
          ConnectionEnd::kProtocol);
  }
}

void OutgoingLink::SendPing() {
  if (lost_) return;
  ping_sent_ns_ = MonotonicNanos();
  PeerMessage message;
  message.mutable_ping()->set_sequence(++pings_);
  connection_->Send(message);
}

void OutgoingLink::OnPong(const hixl::wire::v1::Pong& pong) {
  if (pong.sequence() != pings_) {
    return OnEnd(ParamInvalid(absl::StrCat("the peer answered ping ", pong.sequence(), " while ",
                                           pings_, " was out"),
                              {.object = "pong"}),
                 ConnectionEnd::kProtocol);
  }
  last_pong_ns_ = last_heard_ns_;
  // The next one may go only now: each ping proves that the pong before it was heard.
  loop_->AddTimer(ping_sent_ns_ + options_.keep_alive.interval_ns, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->SendPing();
  });
}

void OutgoingLink::CheckSilence() {
  if (lost_) return;
  int64_t dead_at_ns = last_heard_ns_ + options_.keep_alive.timeout_ns;
  const int64_t now = MonotonicNanos();
  if (now >= check_at_ns_ + options_.keep_alive.interval_ns) {
    // It is this loop that was held up: what the peer has said may still wait to be read.
    dead_at_ns = std::max(dead_at_ns, now + options_.keep_alive.interval_ns);
  }
  if (now >= dead_at_ns) {
    return OnEnd(Failed(absl::StrCat("nothing was heard from ", peer_.ToString(), " for ",
                                     options_.keep_alive.timeout_ns / kNanosPerMilli,
                                     " ms (tcp.keepalive_timeout)"),
                        {.object = absl::StrCat("node ", peer_.ToString()),
                         .option = "tcp.keepalive_timeout"}),
                 ConnectionEnd::kError);
  }
  check_at_ns_ = dead_at_ns;
  loop_->AddTimer(dead_at_ns, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->CheckSilence();
  });
}

void OutgoingLink::CheckIdle() {
  if (lost_) return;
  const int64_t now = MonotonicNanos();
  if (!channels_.empty() || !requests_.empty()) idle_since_ns_ = now;
  if (now >= idle_since_ns_ + options_.idle_ns) {
    return Close(absl::UnavailableError("no channel uses the link"));
  }
  loop_->AddTimer(idle_since_ns_ + options_.idle_ns, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->CheckIdle();
  });
}

absl::Status OutgoingLink::RoomForRequest() const {
  if (lost_) return Failed(absl::StrCat("the link to ", peer_.ToString(), " is lost"));
  if (requests_.size() < kMaxRequests) return absl::OkStatus();
  return ResourceExhausted(
      absl::StrCat(requests_.size(), " requests wait for answers of ", peer_.ToString()),
      {.object = absl::StrCat("node ", peer_.ToString()),
       .limit = absl::StrCat(kMaxRequests, " requests of one link")});
}

TransferSink* OutgoingLink::SinkFor(const LinkManager::ChannelRequest& request) {
  if (!request.traffic_class && !request.service_level) return initiator_->Sink(nullptr);
  RdmaClass treatment = initiator_->rdma_class();
  treatment.traffic_class = request.traffic_class.value_or(treatment.traffic_class);
  treatment.service_level = request.service_level.value_or(treatment.service_level);
  return initiator_->Sink(&treatment);
}

uint64_t OutgoingLink::AddRequest(int64_t deadline_ns, const std::string& what, Request request) {
  const uint64_t id = next_request_++;
  request.timer = loop_->AddTimer(deadline_ns, [weak = weak_from_this(), id, what] {
    if (auto self = weak.lock()) self->Answer(id, Timeout(absl::StrCat(what, " timed out")));
  });
  requests_.emplace(id, std::move(request));
  return id;
}

void OutgoingLink::Answer(uint64_t id,
                          absl::StatusOr<std::shared_ptr<const RegionSnapshot>> result) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request request = std::move(found->second);
  requests_.erase(found);
  loop_->CancelTimer(request.timer);
  request.done(std::move(result), request);
}

void OutgoingLink::OpenChannel(std::shared_ptr<LinkManager::ChannelRequest> request,
                               LinkManager::ChannelDone done) {
  if (lost_) return done(absl::UnavailableError("the link is lost"));
  if (absl::Status room = RoomForRequest(); !room.ok()) return done(std::move(room));
  PeerMessage message;
  message.mutable_open_channel()->set_initiator_engine(request->initiator_engine);
  message.mutable_open_channel()->set_target_engine(request->target_engine);
  if (!request->endpoints.empty()) {
    ToProto(request->endpoints, message.mutable_open_channel()->mutable_endpoints());
  }
  Request waiting;
  const std::string what = absl::StrCat("connecting to engine ", request->target_engine);
  const int64_t deadline_ns = request->deadline_ns;
  waiting.done = [self = shared_from_this(), request = std::move(request), done = std::move(done)](
                     absl::StatusOr<std::shared_ptr<const RegionSnapshot>> regions,
                     Request& answered) mutable {
    const uint64_t channel = answered.channel;
    if (!regions.ok()) {
      if (channel != 0) self->CloseChannel(channel);
      return done(regions.status());
    }
    auto opened = std::make_shared<RemoteChannelImpl>(
        self, channel, self->SinkFor(*request), std::move(*regions), std::move(answered.endpoints),
        std::move(request->on_broken), std::move(request->on_outdated));
    self->channels_.emplace(channel, opened);
    done(std::move(opened));
  };
  message.set_request_id(AddRequest(deadline_ns, what, std::move(waiting)));
  connection_->Send(message);
}

void OutgoingLink::OnChannelOpened(uint64_t request_id,
                                   const hixl::wire::v1::ChannelOpened& opened) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end()) {
    // Nobody waits for it any more.
    return CloseChannel(opened.channel_id());
  }
  found->second.channel = opened.channel_id();
  absl::StatusOr<EndpointSet> endpoints = FromProto(opened.endpoints());
  if (!endpoints.ok()) return Answer(request_id, endpoints.status());
  found->second.endpoints = *std::move(endpoints);
  const absl::Status status = found->second.regions.Add(opened.regions());
  if (!status.ok()) return Answer(request_id, status);
  if (opened.more()) return;
  Answer(request_id, found->second.regions.Take(opened.regions_version()));
}

void OutgoingLink::OnRegionList(uint64_t request_id, const hixl::wire::v1::RegionList& list) {
  if (request_id == 0) {
    const auto channel = channels_.find(list.channel_id());
    const auto open = channel == channels_.end() ? nullptr : channel->second.lock();
    if (open != nullptr) open->Outdate();
    return;
  }
  const auto found = requests_.find(request_id);
  if (found == requests_.end()) return;
  const absl::Status status = found->second.regions.Add(list.regions());
  if (!status.ok()) return Answer(request_id, status);
  if (list.more()) return;
  Answer(request_id, found->second.regions.Take(list.version()));
}

void OutgoingLink::OnChannelClosed(const hixl::wire::v1::ChannelClosed& closed) {
  const auto found = channels_.find(closed.channel_id());
  if (found == channels_.end()) return;
  const auto channel = found->second.lock();
  channels_.erase(found);
  if (channel == nullptr) return;
  channel->Break(Failed(absl::StrCat("the peer closed the channel: ", closed.reason())));
}

void OutgoingLink::Refresh(
    uint64_t channel, int64_t deadline_ns,
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<const RegionSnapshot>>)> done) {
  if (absl::Status room = RoomForRequest(); !room.ok()) return done(std::move(room));
  PeerMessage message;
  message.mutable_list_regions()->set_channel_id(channel);
  Request waiting;
  waiting.done = [done = std::move(done)](
                     absl::StatusOr<std::shared_ptr<const RegionSnapshot>> regions,
                     Request&) mutable { done(std::move(regions)); };
  message.set_request_id(
      AddRequest(deadline_ns, "fetching the peer's regions", std::move(waiting)));
  connection_->Send(message);
}

void OutgoingLink::OnRelayOpened(uint64_t request_id, const hixl::wire::v1::RelayOpened& opened) {
  const auto found = requests_.find(request_id);
  // Nobody waits for it any more.
  if (found == requests_.end()) return CloseRelay(opened.channel_id(), opened.relay_id());
  found->second.channel = opened.relay_id();
  Answer(request_id, std::shared_ptr<const RegionSnapshot>());
}

void OutgoingLink::OpenRelay(uint64_t channel, const std::vector<AddressRange>& ranges,
                             int64_t deadline_ns,
                             absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) {
  if (absl::Status room = RoomForRequest(); !room.ok()) return done(std::move(room));
  if (ranges.size() > RelayGrants::kMaxRanges) {
    return done(ResourceExhausted(
        absl::StrCat("the batch names ", ranges.size(),
                     " separate ranges that its remote side has not registered"),
        {.object = "batch", .limit = absl::StrCat(RelayGrants::kMaxRanges, " ranges")}));
  }
  PeerMessage message;
  message.mutable_open_relay()->set_channel_id(channel);
  for (const AddressRange& range : ranges) {
    message.mutable_open_relay()->add_addresses(range.address);
    message.mutable_open_relay()->add_lengths(range.length);
  }
  Request waiting;
  waiting.done = [done = std::move(done)](
                     absl::StatusOr<std::shared_ptr<const RegionSnapshot>> answer,
                     Request& answered) mutable {
    if (answer.ok()) return done(answered.channel);
    done(FailedWhenLost(answer.status()));
  };
  message.set_request_id(
      AddRequest(deadline_ns, "asking for unregistered memory of the peer", std::move(waiting)));
  connection_->Send(message);
}

void OutgoingLink::CloseRelay(uint64_t channel, uint64_t relay) {
  if (lost_) return;
  PeerMessage message;
  message.mutable_close_relay()->set_channel_id(channel);
  message.mutable_close_relay()->set_relay_id(relay);
  connection_->Send(message);
}

void OutgoingLink::Notify(uint64_t channel, std::string name, std::string text, int64_t deadline_ns,
                          absl::AnyInvocable<void(absl::Status)> done) {
  if (absl::Status room = RoomForRequest(); !room.ok()) return done(std::move(room));
  PeerMessage message;
  message.mutable_notify()->set_channel_id(channel);
  message.mutable_notify()->set_name(std::move(name));
  message.mutable_notify()->set_message(std::move(text));
  Request waiting;
  waiting.done = [done = std::move(done)](
                     absl::StatusOr<std::shared_ptr<const RegionSnapshot>> taken,
                     Request&) mutable { done(FailedWhenLost(taken.status())); };
  message.set_request_id(AddRequest(deadline_ns, "a notify", std::move(waiting)));
  connection_->Send(message);
}

void OutgoingLink::CloseChannel(uint64_t channel) {
  channels_.erase(channel);
  idle_since_ns_ = MonotonicNanos();
  if (lost_) return;
  PeerMessage message;
  message.mutable_close_channel()->set_channel_id(channel);
  connection_->Send(message);
}

void OutgoingLink::OnEnd(const absl::Status& status, ConnectionEnd end) {
  if (lost_) return;
  connection_->Close();
  Lose(Failed(absl::StrCat("the link to ", peer_.ToString(), " is lost: ", status.message()),
              {.object = absl::StrCat("node ", peer_.ToString())}));
  if (end == ConnectionEnd::kEof) return EndTransfers(MonotonicNanos());
  const int64_t lease_end_ns = LeaseEnd();
  if (end != ConnectionEnd::kReset) return EndTransfers(lease_end_ns);
  // A dying process resets its connections, but so may others: whoever answers at its address now
  // tells. Without an answer the lease decides.
  const auto self = shared_from_this();
  const auto timer = loop_->AddTimer(lease_end_ns, [self] { self->EndTransfers(0); });
  probe_([self, timer, lease_end_ns](ProbeResult result) {
    if (result != ProbeResult::kGone && MonotonicNanos() < lease_end_ns) return;
    self->loop_->CancelTimer(timer);
    self->EndTransfers(MonotonicNanos());
  });
}

void OutgoingLink::Lose(const absl::Status& status) {
  const auto self = shared_from_this();
  lost_ = true;
  reason_ = status;
  LogInfo("peer link closed", {{"peer", peer_.ToString()},
                               {"node", absl::BytesToHexString(peer_node_)},
                               {"direction", "out"},
                               {"reason", status}});
  auto requests = std::exchange(requests_, {});
  for (auto& [id, request] : requests) {
    loop_->CancelTimer(request.timer);
    request.channel = 0;
    request.done(absl::UnavailableError(status.message()), request);
  }
  auto channels = std::exchange(channels_, {});
  if (on_lost_) std::exchange(on_lost_, nullptr)(status);
  for (const auto& [id, weak] : channels) {
    if (auto channel = weak.lock()) channel->Break(status);
  }
}

void OutgoingLink::EndTransfers(int64_t fenced_at_ns) {
  if (std::exchange(ended_, true)) return;
  initiator_->Close(reason_, fenced_at_ns);
}

void OutgoingLink::Close(const absl::Status& reason) {
  if (lost_) return;
  PeerMessage goodbye;
  goodbye.mutable_goodbye()->set_reason(std::string(reason.message()));
  connection_->Send(goodbye);
  connection_->CloseFlushed();
  Lose(reason);
  EndTransfers(LeaseEnd());
}

LinkDescription OutgoingLink::Describe() const {
  LinkDescription description;
  description.peer_node = absl::BytesToHexString(peer_node_);
  description.peer_address = peer_.ToString();
  description.transport = std::string(initiator_->transport());
  description.state = lost_ ? "down" : "up";
  description.initiator = true;
  description.channels = channels_.size();
  description.since_ns = started_ns_;
  description.last_heard_ns = last_heard_ns_;
  description.lanes = initiator_->Lanes();
  description.detail = lost_ ? std::string(reason_.message()) : initiator_->Detail();
  return description;
}

}  // namespace hixld
