// Lanes of one link: opened, completed, broken, closed at both ends, opened again.
#include "transports/rdma/initiator_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

using hixl::wire::v1::RdmaLaneOpened;
using hixl::wire::v1::RdmaMessage;
using hixl::wire::v1::RdmaOffer;

constexpr int kMaxPorts = 64;
constexpr int kMaxGids = 64;

// The peer's ports, as far as they make sense.
std::vector<UsablePort> ParsePorts(const RdmaOffer& offer) {
  std::vector<UsablePort> ports;
  for (const auto& message : offer.ports()) {
    if (ports.size() >= kMaxPorts || !IsMtu(message.mtu())) continue;
    UsablePort port{message.name(),
                    message.device(),
                    static_cast<uint8_t>(message.port()),
                    message.mtu(),
                    static_cast<uint16_t>(message.lid()),
                    {}};
    for (const auto& gid : message.gids()) {
      GidEntry entry;
      if (port.gids.size() >= kMaxGids || gid.gid().size() != entry.gid.size()) continue;
      std::copy(gid.gid().begin(), gid.gid().end(), entry.gid.begin());
      if (IsUnusable(entry.gid) || gid.type() > static_cast<uint32_t>(GidType::kRoceV2)) continue;
      entry.index = gid.index();
      entry.type = static_cast<GidType>(gid.type());
      entry.prefix_bits = std::min<uint32_t>(gid.prefix_bits(), 128);
      port.gids.push_back(entry);
    }
    if (!port.gids.empty()) ports.push_back(std::move(port));
  }
  return ports;
}

std::string MtuNote(uint32_t here, uint32_t there) {
  if (here == there) return "";
  return absl::StrCat(", with packets of ", std::min(here, there), " bytes: the MTU (rdma.mtu) is ",
                      here, " here and ", there, " at the peer");
}

}  // namespace

InitiatorCore::InitiatorCore(std::shared_ptr<Context> context, std::string peer, Gid route_source,
                             RdmaClass treatment, std::shared_ptr<TransferSink> fallback,
                             ControlPath* control)
    : context_(std::move(context)),
      peer_(std::move(peer)),
      route_source_(route_source),
      treatment_(treatment),
      control_(control),
      fallback_(std::move(fallback)),
      has_fallback_(fallback_ != nullptr),
      queue_({.message_bytes = context_->options().message_bytes}) {
  lanes_.resize(std::clamp<uint32_t>(context_->options().lanes, 1, kMaxLanes));
}

void InitiatorCore::Start() {
  context_->AddListener(weak_from_this());
  context_->control().Post([self = shared_from_this()] {
    RdmaMessage message;
    message.mutable_offer_request();
    self->Send(message);
    self->NoteLanes();
  });
}

std::shared_ptr<TransferSink> InitiatorCore::Fallback() {
  MutexLock lock(&control_mutex_);
  return fallback_;
}

void InitiatorCore::LetGo() {
  std::shared_ptr<TransferSink> fallback;
  MutexLock lock(&control_mutex_);
  control_ = nullptr;
  fallback.swap(fallback_);
}

void InitiatorCore::Send(const RdmaMessage& message) {
  MutexLock lock(&control_mutex_);
  if (control_ != nullptr) control_->SendToPeer(message.SerializeAsString());
}

void InitiatorCore::OnControlMessage(absl::string_view payload) {
  auto message = std::make_shared<RdmaMessage>();
  if (!message->ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    context_->Report(
        {RdmaEvent::Severity::kWarning, "", 0, "a peer sent an RDMA message that cannot be read"});
    return;
  }
  // At once: every moment of use of such a key breaks a lane. Answers that were sent before and are
  // handled after it do not count (KeyWaiters::outdated).
  if (message->body_case() == RdmaMessage::kKeysRevoked) {
    return OnKeysRevoked(message->keys_revoked().channel());
  }
  context_->control().Post([self = shared_from_this(), message] { self->Handle(*message); });
}

void InitiatorCore::Handle(const RdmaMessage& message) {
  switch (message.body_case()) {
    case RdmaMessage::kOffer:
      return OnOffer(message.offer());
    case RdmaMessage::kLaneOpened:
      return OnLaneOpened(message.lane_opened());
    case RdmaMessage::kLaneClosed:
      return OnLaneClosed(message.lane_closed().lane(), message.lane_closed().attempt());
    case RdmaMessage::kLaneBroken:
      return OnLaneBroken(message.lane_broken());
    case RdmaMessage::kKeyReply:
      return OnKeyReply(message.key_reply());
    default:
      // Not for an initiator, or from a later version.
      return;
  }
}

void InitiatorCore::OnOffer(const RdmaOffer& offer) {
  remote_ports_ = ParsePorts(offer);
  std::string text = offer.SerializeAsString();
  const bool news = text != offer_;
  offer_ = std::move(text);
  if (remote_ports_.empty()) {
    {
      MutexLock lock(&mutex_);
      trouble_ = absl::StrCat("the peer has no RDMA port",
                              offer.error().empty() ? "" : absl::StrCat(": ", offer.error()));
    }
    OnGiveUp();
    return;
  }
  if (news) OpenDownLanes();
}

// Something has changed for the better, perhaps: no pause.
void InitiatorCore::OpenDownLanes() {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].state != LaneState::kDown) continue;
    context_->control().CancelTimer(lanes_[i].timer);
    lanes_[i].failures = 0;
    OpenLane(i);
  }
}

absl::StatusOr<std::vector<PortPair>> InitiatorCore::Ways(std::vector<UsablePort>* local) {
  HIXLD_ASSIGN_OR_RETURN(*local, context_->Ports());
  return PairPorts(*local, remote_ports_, route_source_);
}

void InitiatorCore::OpenLane(uint32_t index) {
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok() || lanes_[index].state != LaneState::kDown) return;
  }
  const absl::Status opened = TryOpenLane(index);
  if (opened.ok()) return;
  FailOpening(index, opened);
  // Where there was no way to begin with, there is nothing to wait for.
  const bool others = std::any_of(lanes_.begin(), lanes_.end(), [](const LaneSlot& slot) {
    return slot.state != LaneState::kDown;
  });
  if (!ever_up_ && !others) OnGiveUp();
}

absl::Status InitiatorCore::TryOpenLane(uint32_t index) {
  LaneSlot& slot = lanes_[index];
  std::vector<UsablePort> local;
  HIXLD_ASSIGN_OR_RETURN(const std::vector<PortPair> ways, Ways(&local));
  const PortPair& way = ways[index % ways.size()];
  const UsablePort& from = local[way.local];
  const UsablePort& to = remote_ports_[way.remote];
  Device& device = *context_->devices()[from.device_number];
  const DeviceLimits& limits = device.verbs->limits();
  const uint32_t depth = std::min(context_->options().queue_depth, limits.max_send_depth);
  HIXLD_ASSIGN_OR_RETURN(auto completions,
                         context_->Completions(device, context_->workers().Next(), depth));
  auto made = device.verbs->CreateQueuePair({.domain = device.local_domain.get(),
                                             .completions = completions->verbs(),
                                             .send_depth = depth,
                                             .inline_bytes = context_->options().inline_bytes});
  const LaneEnd end{from.port, way.local_gid, from.lid, from.mtu};
  absl::Status ready = made.ok() ? ToInit(**made, end, 0) : made.status();
  if (!ready.ok()) {
    completions->Unreserve(depth);
    return ready;
  }
  RdmaMessage message;
  {
    MutexLock lock(&mutex_);
    slot.state = LaneState::kOpening;
    slot.attempt = next_attempt_++;
    slot.queue_pair = *std::move(made);
    slot.completions = std::move(completions);
    slot.depth = depth;
    slot.sequence = RandomSequence();
    slot.device = from.device_number;
    slot.remote_device = to.device_number;
    slot.end = end;
    slot.local_name = absl::StrCat(from.Name(), " ", GidText(way.local_gid.gid));
    slot.remote_name = absl::StrCat(to.device, " ", GidText(way.remote_gid.gid));
    auto* open = message.mutable_open_lane();
    open->set_lane(index);
    open->set_attempt(slot.attempt);
    open->set_device(to.device_number);
    open->set_port(to.port);
    open->set_gid_index(way.remote_gid.index);
    open->set_traffic_class(treatment_.traffic_class);
    open->set_service_level(treatment_.service_level);
    *open->mutable_queue_pair() =
        Describe(end, slot.queue_pair->number(), slot.sequence, limits.read_depth_out);
  }
  slot.timer = context_->control().AddTimer(
      MonotonicNanos() + context_->options().open_timeout_ns,
      [self = shared_from_this(), index, attempt = slot.attempt] {
        LaneSlot& late = self->lanes_[index];
        if (late.state != LaneState::kOpening || late.attempt != attempt) return;
        self->FailOpening(index, Timeout("the peer did not answer the opening of a lane"));
      });
  Send(message);
  return absl::OkStatus();
}

void InitiatorCore::OnLaneOpened(const RdmaLaneOpened& message) {
  const uint32_t index = message.lane();
  if (index >= lanes_.size()) return;
  LaneSlot& slot = lanes_[index];
  if (slot.state != LaneState::kOpening || slot.attempt != message.attempt()) return;
  context_->control().CancelTimer(slot.timer);
  const absl::Status up = Complete(slot, index, message);
  if (!up.ok()) return FailOpening(index, up);
  std::shared_ptr<SendLane> lane;
  bool closed = false;
  {
    MutexLock lock(&mutex_);
    closed = !closed_.ok();
    lane = slot.lane;
  }
  if (closed) return lane->Break(NotConnected("the link is being closed"));
  lane->Start();
}

void InitiatorCore::OnProven(SendLane& lane) {
  context_->control().Post([self = shared_from_this(), index = lane.options().index,
                            attempt = lane.options().attempt] { self->OnLaneUp(index, attempt); });
}

void InitiatorCore::OnLaneUp(uint32_t index, uint64_t attempt) {
  LaneSlot& slot = lanes_[index];
  if (slot.state != LaneState::kProving || slot.attempt != attempt) return;
  {
    MutexLock lock(&mutex_);
    slot.state = LaneState::kUp;
  }
  ever_up_ = true;
  NoteLanes();
  context_->Report({RdmaEvent::Severity::kInfo, context_->devices()[slot.device]->name,
                    slot.end.port,
                    absl::StrCat("lane ", index, " ", slot.local_name, " -> ", slot.remote_name,
                                 " is up", MtuNote(slot.end.mtu, slot.peer_mtu))});
  // It may have looked for work, and found none, before it could be woken for more.
  slot.lane->Kick();
}

absl::Status InitiatorCore::Complete(LaneSlot& slot, uint32_t index,
                                     const RdmaLaneOpened& message) {
  if (!message.error().empty()) return Failed(absl::StrCat("the peer: ", message.error()));
  HIXLD_ASSIGN_OR_RETURN(const PeerEnd peer, ParsePeerEnd(message.queue_pair()));
  const RdmaOptions& options = context_->options();
  const uint32_t read_depth =
      std::min(context_->devices()[slot.device]->verbs->limits().read_depth_out, peer.read_depth);
  HIXLD_RETURN_IF_ERROR(ToReadyToReceive(*slot.queue_pair, slot.end, peer, treatment_, 1));
  HIXLD_RETURN_IF_ERROR(ToReadyToSend(*slot.queue_pair, options, slot.sequence, read_depth));
  context_->LaneBegins();
  slot.peer_mtu = peer.mtu;
  MutexLock lock(&mutex_);
  slot.lane =
      std::make_shared<SendLane>(SendLane::Options{.index = index,
                                                   .attempt = slot.attempt,
                                                   .device = slot.device,
                                                   .remote_device = slot.remote_device,
                                                   .depth = slot.depth,
                                                   .inflight_bytes = options.inflight_bytes},
                                 std::move(slot.queue_pair), std::move(slot.completions),
                                 shared_from_this(), &context_->control());
  slot.state = LaneState::kProving;
  if (slot.attempt > lanes_.size()) ++slot.reopened;
  return absl::OkStatus();
}

void InitiatorCore::FailOpening(uint32_t index, const absl::Status& why) {
  LaneSlot& slot = lanes_[index];
  context_->control().CancelTimer(slot.timer);
  const bool asked = slot.state == LaneState::kOpening;
  std::unique_ptr<VerbsQueuePair> queue_pair;
  {
    MutexLock lock(&mutex_);
    queue_pair = std::move(slot.queue_pair);
    if (slot.completions != nullptr) slot.completions->Unreserve(slot.depth);
    slot.completions.reset();
    slot.trouble = std::string(why.message());
    trouble_ = slot.trouble;
    slot.state = asked ? LaneState::kClosing : LaneState::kDown;
  }
  queue_pair.reset();
  if (asked) return CloseTargetEnd(index);
  RetryLater(index);
}

// The target's queue pair may still take packets that are on their way: it must go before the
// lane's WRITEs are certain not to land.
void InitiatorCore::CloseTargetEnd(uint32_t index) {
  LaneSlot& slot = lanes_[index];
  int64_t fenced_at_ns = 0;
  bool closed = false;
  {
    MutexLock lock(&mutex_);
    closed = !closed_.ok();
    fenced_at_ns = fenced_at_ns_;
  }
  NoteLanes();
  if (closed) {
    // Nobody answers any more; the target drops the link at its lease's end.
    context_->control().AddTimer(fenced_at_ns,
                                 [self = shared_from_this(), index] { self->ReleaseLimbo(index); });
    return;
  }
  RdmaMessage message;
  message.mutable_close_lane()->set_lane(index);
  message.mutable_close_lane()->set_attempt(slot.attempt);
  Send(message);
}

void InitiatorCore::OnLaneClosed(uint32_t index, uint64_t attempt) {
  if (index >= lanes_.size()) return;
  LaneSlot& slot = lanes_[index];
  if (slot.state != LaneState::kClosing || slot.attempt != attempt) return;
  ReleaseLimbo(index);
  RetryLater(index);
}

void InitiatorCore::ReleaseLimbo(uint32_t index) {
  Outcome outcome;
  {
    MutexLock lock(&mutex_);
    LaneSlot& slot = lanes_[index];
    slot.state = LaneState::kDown;
    for (const Work& work : std::exchange(slot.limbo, {})) GiveBack(work, index, &outcome);
  }
  Carry(std::move(outcome));
}

void InitiatorCore::RetryLater(uint32_t index) {
  LaneSlot& slot = lanes_[index];
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return;
  }
  const RdmaOptions& options = context_->options();
  const int64_t pause = std::min(options.reconnect_max_ns,
                                 options.reconnect_min_ns << std::min<uint32_t>(slot.failures, 16));
  ++slot.failures;
  NoteLanes();
  slot.timer =
      context_->control().AddTimer(MonotonicNanos() + pause, [self = shared_from_this(), index] {
        // The peer's ports may have changed meanwhile.
        RdmaMessage message;
        message.mutable_offer_request();
        self->Send(message);
        self->OpenLane(index);
      });
}

void InitiatorCore::OnLaneBroken(const hixl::wire::v1::RdmaLaneBroken& message) {
  if (message.lane() >= lanes_.size()) return;
  LaneSlot& slot = lanes_[message.lane()];
  if (slot.attempt != message.attempt() || slot.lane == nullptr) return;
  slot.lane->Break(Failed(absl::StrCat("the peer: ", message.reason())));
}

void InitiatorCore::OnPortDown(uint32_t device, uint32_t port, const std::string& why) {
  for (LaneSlot& slot : lanes_) {
    if (slot.lane == nullptr || slot.device != device) continue;
    if (port == 0 || slot.end.port == port) slot.lane->Break(Failed(why));
  }
}

void InitiatorCore::OnPortsChanged() {
  if (remote_ports_.empty()) return;
  OpenDownLanes();
  std::vector<UsablePort> local;
  const auto ways = Ways(&local);
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    LaneSlot& slot = lanes_[i];
    if (slot.state == LaneState::kUp && ways.ok()) {
      // A lane that had moved because its own port was down goes back.
      const UsablePort& own = local[(*ways)[i % ways->size()].local];
      if (own.device_number != slot.device || own.port != slot.end.port) {
        slot.lane->Break(Failed(absl::StrCat("moves back to ", own.Name())));
      }
    }
  }
}

void InitiatorCore::OnQueuePairFailed(uint32_t device, uint32_t number, const std::string& why) {
  for (LaneSlot& slot : lanes_) {
    if (slot.lane != nullptr && slot.device == device && slot.lane->queue_pair_number() == number) {
      slot.lane->Break(Failed(why));
    }
  }
}

uint32_t InitiatorCore::UpLanes() const {
  return static_cast<uint32_t>(std::count_if(
      lanes_.begin(), lanes_.end(), [](const auto& slot) { return slot.state == LaneState::kUp; }));
}

// Without a lane for too long, transfers do not wait any more; with one, they do again.
void InitiatorCore::NoteLanes() {
  bool back = false;
  {
    MutexLock lock(&mutex_);
    if (UpLanes() > 0) {
      back = !given_up_.ok();
      given_up_ = absl::OkStatus();
      away_.store(false, std::memory_order_relaxed);
      trouble_.clear();
    } else if (give_up_timer_ != 0 || !given_up_.ok() || !closed_.ok()) {
      return;
    }
  }
  context_->control().CancelTimer(std::exchange(give_up_timer_, 0));
  if (back)
    context_->Report({RdmaEvent::Severity::kInfo, "", 0,
                      absl::StrCat("transfers to ", peer_, " use RDMA again")});
  {
    MutexLock lock(&mutex_);
    if (UpLanes() > 0) return;
  }
  give_up_timer_ = context_->control().AddTimer(MonotonicNanos() + context_->options().give_up_ns,
                                                [self = shared_from_this()] { self->OnGiveUp(); });
}

void InitiatorCore::OnGiveUp() {
  context_->control().CancelTimer(std::exchange(give_up_timer_, 0));
  Outcome outcome;
  std::string why;
  {
    MutexLock lock(&mutex_);
    if (UpLanes() > 0 || !closed_.ok() || !given_up_.ok()) return;
    why = absl::StrCat("no RDMA lane to ", peer_, trouble_.empty() ? "" : ": ", trouble_);
    given_up_ = Failed(why, {.option = "node.transports"});
    away_.store(true, std::memory_order_relaxed);
    std::vector<Job*> waiting;
    for (const auto& [transfer, job] : jobs_) waiting.push_back(job.get());
    for (Job* job : waiting) MoveElsewhere(job, given_up_, &outcome);
  }
  context_->Report({RdmaEvent::Severity::kWarning, "", 0,
                    absl::StrCat(why, has_fallback_ ? "; transfers go over TCP" : "")});
  Carry(std::move(outcome));
}

void InitiatorCore::Close(absl::Status reason, int64_t fenced_at_ns) {
  Outcome outcome;
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return;
    closed_ = reason.ok() ? NotConnected("the link is being closed") : reason;
    fenced_at_ns_ = fenced_at_ns;
    asked_.clear();
    std::vector<Job*> all;
    for (const auto& [transfer, job] : jobs_) all.push_back(job.get());
    for (Job* job : all) {
      job->elsewhere = false;
      EndJob(job, closed_, &outcome);
    }
  }
  Carry(std::move(outcome));
  context_->control().Post([self = shared_from_this()] {
    InitiatorCore& core = *self;
    Loop& control = core.context_->control();
    control.CancelTimer(std::exchange(core.give_up_timer_, 0));
    control.CancelTimer(std::exchange(core.deadline_timer_, 0));
    for (uint32_t i = 0; i < core.lanes_.size(); ++i) {
      LaneSlot& slot = core.lanes_[i];
      control.CancelTimer(slot.timer);
      if (slot.state == LaneState::kOpening) core.FailOpening(i, NotConnected("closed"));
      if (slot.state == LaneState::kClosing) core.CloseTargetEnd(i);
      if (slot.lane != nullptr) slot.lane->Break(NotConnected("the link is being closed"));
    }
  });
}

const char* InitiatorCore::StateText(LaneState state) {
  switch (state) {
    case LaneState::kUp:
      return "up";
    case LaneState::kOpening:
    case LaneState::kProving:
      return "connecting";
    default:
      return "down";
  }
}

std::vector<LaneStats> InitiatorCore::Lanes() const {
  MutexLock lock(&mutex_);
  std::vector<LaneStats> all;
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    const LaneSlot& slot = lanes_[i];
    LaneStats& stats = all.emplace_back();
    stats.index = i;
    stats.local_address = slot.local_name;
    stats.remote_address = slot.remote_name;
    stats.state = StateText(slot.state);
    stats.error = slot.trouble;
    stats.bytes_sent = slot.bytes_sent + (slot.lane ? slot.lane->bytes_sent() : 0);
    stats.bytes_received = slot.bytes_received + (slot.lane ? slot.lane->bytes_received() : 0);
    stats.reconnects = slot.reopened;
  }
  return all;
}

std::string InitiatorCore::Trouble() const {
  MutexLock lock(&mutex_);
  if (!given_up_.ok()) return std::string(given_up_.message());
  return trouble_.empty() ? key_trouble_ : trouble_;
}

}  // namespace hixld::rdma
