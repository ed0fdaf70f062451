#include "transports/rdma/target_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"
#include "transports/rdma/job_queue.h"

namespace hixld::rdma {
namespace {

using hixl::wire::v1::RdmaKeyReply;
using hixl::wire::v1::RdmaKeyRequest;
using hixl::wire::v1::RdmaMessage;
using hixl::wire::v1::RdmaOpenLane;

// Of one link; an initiator asks once per transfer at most.
constexpr uint32_t kMaxKeyRequests = 65'536;

// What the initiator's packets carry; the answers to its READs carry the same.
absl::StatusOr<RdmaClass> ParseClass(const RdmaOpenLane& message) {
  if (message.traffic_class() > 255 || message.service_level() > 15) {
    return ParamInvalid(absl::StrCat("traffic class ", message.traffic_class(), " and level ",
                                     message.service_level()),
                        {.allowed = "0..255 and 0..15"});
  }
  return RdmaClass{static_cast<uint8_t>(message.traffic_class()),
                   static_cast<uint8_t>(message.service_level())};
}

uint64_t PieceBytes(const Context& context) {
  uint64_t bytes = context.options().registration_bytes;
  for (const auto& device : context.devices()) {
    bytes = std::min(bytes, device->verbs->limits().max_mr_size);
  }
  return bytes & ~4095ULL;
}

}  // namespace

TargetCore::TargetCore(std::shared_ptr<Context> context, TargetResolver* resolver,
                       ControlPath* control)
    : context_(std::move(context)),
      control_(control),
      keys_(
          resolver,
          [this](uint32_t device) -> std::shared_ptr<VerbsDomain> {
            MutexLock lock(&mutex_);
            const auto at = domains_.find(device);
            return at == domains_.end() ? nullptr : at->second;
          },
          context_->counters(), PieceBytes(*context_)) {}

void TargetCore::Start() { context_->AddListener(weak_from_this()); }

void TargetCore::LetGo() {
  MutexLock lock(&control_mutex_);
  control_ = nullptr;
}

void TargetCore::Send(const RdmaMessage& message) {
  MutexLock lock(&control_mutex_);
  if (control_ != nullptr) control_->SendToPeer(message.SerializeAsString());
}

void TargetCore::OnControlMessage(absl::string_view payload) {
  auto message = std::make_shared<RdmaMessage>();
  if (!message->ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    context_->Report(
        {RdmaEvent::Severity::kWarning, "", 0, "a peer sent an RDMA message that cannot be read"});
    return;
  }
  if (message->body_case() != RdmaMessage::kKeyRequest) {
    context_->control().Post([self = shared_from_this(), message] { self->Handle(*message); });
    return;
  }
  if (key_requests_.fetch_add(1, std::memory_order_relaxed) >= kMaxKeyRequests) {
    key_requests_.fetch_sub(1, std::memory_order_relaxed);
    return RefuseKeys(message->key_request().request());
  }
  // Registering may block for long, so it has a thread of its own.
  context_->registrar().Post([self = shared_from_this(), message] {
    self->Handle(*message);
    self->key_requests_.fetch_sub(1, std::memory_order_relaxed);
  });
}

void TargetCore::RefuseKeys(uint64_t request) {
  const absl::Status status =
      ResourceExhausted("too many requests for keys wait",
                        {.limit = absl::StrCat(kMaxKeyRequests, " requests of one link")});
  RdmaMessage message;
  auto* reply = message.mutable_key_reply();
  reply->set_request(request);
  reply->set_error(std::string(status.message()));
  reply->set_error_detail(SerializeErrorDetail(status));
  reply->set_try_elsewhere(true);
  Send(message);
}

void TargetCore::Handle(const RdmaMessage& message) {
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
  }
  switch (message.body_case()) {
    case RdmaMessage::kOfferRequest:
      return SendOffer();
    case RdmaMessage::kOpenLane:
      return OnOpenLane(message.open_lane());
    case RdmaMessage::kCloseLane:
      return OnCloseLane(message.close_lane().lane(), message.close_lane().attempt());
    case RdmaMessage::kKeyRequest:
      return OnKeyRequest(message.key_request());
    default:
      // Not for a target, or from a later version.
      return;
  }
}

void TargetCore::SendOffer() {
  RdmaMessage message;
  auto* offer = message.mutable_offer();
  const auto ports = context_->Ports();
  if (!ports.ok()) offer->set_error(std::string(ports.status().message()));
  for (const UsablePort& port : ports.ok() ? *ports : std::vector<UsablePort>()) {
    auto* out = offer->add_ports();
    out->set_device(port.device_number);
    out->set_port(port.port);
    out->set_name(port.device);
    out->set_mtu(port.mtu);
    out->set_lid(port.lid);
    for (const GidEntry& gid : port.gids) {
      auto* entry = out->add_gids();
      entry->set_index(gid.index);
      entry->set_gid(gid.gid.data(), gid.gid.size());
      entry->set_type(static_cast<uint32_t>(gid.type));
      entry->set_prefix_bits(gid.prefix_bits);
    }
  }
  Send(message);
}

absl::StatusOr<std::shared_ptr<VerbsDomain>> TargetCore::DomainFor(uint32_t device) {
  {
    MutexLock lock(&mutex_);
    const auto known = domains_.find(device);
    if (known != domains_.end()) return known->second;
  }
  HIXLD_ASSIGN_OR_RETURN(std::shared_ptr<VerbsDomain> made,
                         context_->devices()[device]->verbs->CreateDomain());
  MutexLock lock(&mutex_);
  return domains_.emplace(device, std::move(made)).first->second;
}

void TargetCore::OnOpenLane(const RdmaOpenLane& message) {
  RdmaMessage answer;
  auto* opened = answer.mutable_lane_opened();
  opened->set_lane(message.lane());
  opened->set_attempt(message.attempt());
  Lane lane;
  lane.attempt = message.attempt();
  absl::Status status;
  if (message.lane() >= kMaxLanes) {
    status = ParamInvalid(absl::StrCat("lane ", message.lane()),
                          {.allowed = absl::StrCat("0..", kMaxLanes - 1)});
  } else {
    // One queue pair per lane: an earlier attempt's is over.
    EndLane(message.lane());
    status = Open(message, &lane, opened->mutable_queue_pair());
  }
  if (status.ok()) {
    MutexLock lock(&mutex_);
    lanes_[message.lane()] = std::move(lane);
  } else {
    opened->set_error(std::string(status.message()));
  }
  Send(answer);
}

absl::Status TargetCore::Open(const RdmaOpenLane& message, Lane* lane,
                              hixl::wire::v1::RdmaQueuePair* own) {
  HIXLD_ASSIGN_OR_RETURN(const std::vector<UsablePort> ports, context_->Ports());
  const auto port = std::find_if(ports.begin(), ports.end(), [&](const UsablePort& candidate) {
    return candidate.device_number == message.device() && candidate.port == message.port();
  });
  if (port == ports.end()) {
    return Failed(absl::StrCat("port ", message.port(), " of device ", message.device(),
                               " is not usable now"));
  }
  const auto gid = std::find_if(port->gids.begin(), port->gids.end(), [&](const GidEntry& entry) {
    return entry.index == message.gid_index();
  });
  if (gid == port->gids.end()) {
    return Failed(absl::StrCat(port->Name(), " has no usable GID ", message.gid_index()));
  }
  HIXLD_ASSIGN_OR_RETURN(const PeerEnd peer, ParsePeerEnd(message.queue_pair()));
  HIXLD_ASSIGN_OR_RETURN(const RdmaClass treatment, ParseClass(message));
  Device& device = *context_->devices()[port->device_number];
  lane->device = device.number;
  lane->end = {port->port, *gid, port->lid, port->mtu};
  lane->local_name = absl::StrCat(port->Name(), " ", GidText(gid->gid));
  lane->remote_name = GidText(peer.gid);
  HIXLD_ASSIGN_OR_RETURN(lane->domain, DomainFor(device.number));
  HIXLD_ASSIGN_OR_RETURN(
      lane->queue_pair,
      device.verbs->CreateQueuePair(
          {.domain = lane->domain.get(), .completions = device.silent.get(), .send_depth = 1}));
  HIXLD_RETURN_IF_ERROR(
      ToInit(*lane->queue_pair, lane->end, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE));
  const uint32_t read_depth = std::min(device.verbs->limits().read_depth_in, peer.read_depth);
  HIXLD_RETURN_IF_ERROR(
      ToReadyToReceive(*lane->queue_pair, lane->end, peer, treatment, read_depth));
  const uint32_t sequence = RandomSequence();
  // Some devices answer only once they could send themselves.
  HIXLD_RETURN_IF_ERROR(ToReadyToSend(*lane->queue_pair, context_->options(), sequence, 1));
  *own = Describe(lane->end, lane->queue_pair->number(), sequence, read_depth);
  return absl::OkStatus();
}

void TargetCore::EndLane(uint32_t index) {
  Lane gone;
  MutexLock lock(&mutex_);
  const auto at = lanes_.find(index);
  if (at == lanes_.end()) return;
  gone = std::move(at->second);
  lanes_.erase(at);
  // `gone` ends after the lock is free.
}

void TargetCore::OnCloseLane(uint32_t index, uint64_t attempt) {
  if (index >= kMaxLanes) return;
  EndLane(index);
  RdmaMessage answer;
  answer.mutable_lane_closed()->set_lane(index);
  answer.mutable_lane_closed()->set_attempt(attempt);
  Send(answer);
}

void TargetCore::OnKeyRequest(const RdmaKeyRequest& request) {
  keys_.Answer(request, [this](const RdmaKeyReply& reply) {
    RdmaMessage message;
    *message.mutable_key_reply() = reply;
    Send(message);
  });
}

void TargetCore::FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) {
  context_->control().Post(
      [self = shared_from_this(), channel, fenced = std::move(fenced)]() mutable {
        if (self->keys_.Fence(channel)) {
          RdmaMessage message;
          message.mutable_keys_revoked()->set_channel(channel);
          self->Send(message);
        }
        fenced();
      });
}

void TargetCore::Close(absl::AnyInvocable<void()> closed) {
  context_->control().Post([self = shared_from_this(), closed = std::move(closed)]() mutable {
    std::map<uint32_t, Lane> lanes;
    {
      MutexLock lock(&self->mutex_);
      self->closed_ = true;
      lanes.swap(self->lanes_);
    }
    lanes.clear();
    self->keys_.Close();
    // The resolver is not asked any more once what the registrar was doing is over.
    self->context_->registrar().Post([self, closed = std::move(closed)]() mutable {
      {
        MutexLock lock(&self->mutex_);
        self->domains_.clear();
      }
      closed();
    });
  });
}

void TargetCore::ReportBroken(uint32_t index, uint64_t attempt, const std::string& why) {
  RdmaMessage message;
  auto* broken = message.mutable_lane_broken();
  broken->set_lane(index);
  broken->set_attempt(attempt);
  broken->set_reason(why);
  Send(message);
}

void TargetCore::OnPortDown(uint32_t device, uint32_t port, const std::string& why) {
  std::vector<std::pair<uint32_t, uint64_t>> broken;
  {
    MutexLock lock(&mutex_);
    for (const auto& [index, lane] : lanes_) {
      if (lane.device == device && (port == 0 || lane.end.port == port)) {
        broken.emplace_back(index, lane.attempt);
      }
    }
  }
  for (const auto& [index, attempt] : broken) ReportBroken(index, attempt, why);
}

void TargetCore::OnPortsChanged() {
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
  }
  SendOffer();
}

void TargetCore::OnQueuePairFailed(uint32_t device, uint32_t number, const std::string& why) {
  std::vector<std::pair<uint32_t, uint64_t>> broken;
  {
    MutexLock lock(&mutex_);
    for (const auto& [index, lane] : lanes_) {
      if (lane.device == device && lane.queue_pair->number() == number) {
        broken.emplace_back(index, lane.attempt);
      }
    }
  }
  for (const auto& [index, attempt] : broken) ReportBroken(index, attempt, why);
}

std::vector<LaneStats> TargetCore::Lanes() const {
  MutexLock lock(&mutex_);
  std::vector<LaneStats> all;
  for (const auto& [index, lane] : lanes_) {
    LaneStats& stats = all.emplace_back();
    stats.index = index;
    stats.local_address = lane.local_name;
    stats.remote_address = lane.remote_name;
    // Nobody here sees what goes over it: that is the point.
    stats.state = "up";
  }
  return all;
}

}  // namespace hixld::rdma
