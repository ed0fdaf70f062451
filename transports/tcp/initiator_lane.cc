#include "transports/tcp/initiator_lane.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/wire/peer.pb.h"
#include "transports/tcp/lane_proof.h"
#include "transports/tcp/socket.h"

namespace hixld {
namespace {

// Frames that are sent ahead of their answers, when they are small.
constexpr size_t kMaxFramesInFlight = 256;
// WRITE stripes that wait for their memory at once; stripes of mapped memory pass them.
constexpr uint32_t kMaxGathering = 4;

int64_t Jittered(int64_t delay_ns) {
  static thread_local std::minstd_rand random(std::random_device{}());
  return delay_ns / 2 + static_cast<int64_t>(random() % static_cast<uint64_t>(delay_ns / 2 + 1));
}

}  // namespace

InitiatorLane::InitiatorLane(std::shared_ptr<TcpContext> context,
                             std::shared_ptr<InitiatorLinkCore> link, uint32_t index,
                             uint32_t worker)
    : Lane(context, &context->workers->at(worker), index), link_(std::move(link)), worker_(worker) {
  SetState("down");
}

void InitiatorLane::Start() {
  loop()->Post([self = std::static_pointer_cast<InitiatorLane>(shared_from_this())] {
    if (self->state_ == State::kDown) self->Connect();
  });
}

void InitiatorLane::Wake() {
  if (wake_posted_.exchange(true, std::memory_order_acq_rel)) return;
  loop()->Post([self = std::static_pointer_cast<InitiatorLane>(shared_from_this())] {
    self->wake_posted_.store(false, std::memory_order_release);
    if (self->state_ == State::kUp) self->Schedule();
  });
}

void InitiatorLane::Abandon(std::shared_ptr<TcpJob> job, Fence quiet) {
  loop()->Post([self = std::static_pointer_cast<InitiatorLane>(shared_from_this()),
                job = std::move(job), quiet = std::move(quiet)] { self->AbandonNow(job, quiet); });
}

void InitiatorLane::Shutdown() {
  loop()->Post([self = std::static_pointer_cast<InitiatorLane>(shared_from_this())] {
    self->ShutdownNow();
  });
}

// --- the connection

void InitiatorLane::Connect() {
  ++generation_;
  const auto& interfaces = context_->options.interfaces;
  const std::string interface = interfaces.empty() ? "" : interfaces[index() % interfaces.size()];
  auto connecting = StartConnect(link_->peer(), interface, context_->options);
  absl::Status status = connecting.status();
  if (status.ok()) status = Attach(std::move(*connecting));
  if (!status.ok()) {
    ConnectFailed(std::move(status));
    return;
  }
  state_ = State::kHello;
  SetState("connecting");
  const LaneIdentity& identity = link_->identity();
  auto hello = out().New();
  hello->header.type = wire::FrameType::kLaneHello;
  hello->header.transfer = identity.link_id;
  hello->header.channel = index();
  hello->header.stripe = generation_;
  hello->header.body = wire::kLaneProofBytes;
  hello->text =
      LaneProof(identity.secret, LaneSide::kInitiator, identity.link_id, index(), generation_);
  out().Push(std::move(hello));
  connect_timer_ = loop()->AddTimer(
      MonotonicNanos() + context_->options.connect_timeout_ns,
      [self = std::static_pointer_cast<InitiatorLane>(shared_from_this())] {
        self->connect_timer_ = 0;
        self->Detach();
        self->ConnectFailed(Timeout(absl::StrCat("no lane to ", self->link_->peer().ToString(),
                                                 " within the connect timeout"),
                                    {.option = "tcp.connect_timeout"}));
      });
}

void InitiatorLane::CancelTimer(Loop::TimerId* timer) {
  if (*timer != 0) loop()->CancelTimer(std::exchange(*timer, 0));
}

void InitiatorLane::ConnectFailed(absl::Status reason) {
  CancelTimer(&connect_timer_);
  state_ = State::kDown;
  SetState("down", std::string(reason.message()));
  ScheduleReconnect();
}

void InitiatorLane::ScheduleReconnect() {
  const TcpOptions& options = context_->options;
  int64_t delay_ns = std::max<int64_t>(options.reconnect_min_ns, kNanosPerMilli);
  for (uint32_t i = 0; i < failures_ && delay_ns < options.reconnect_max_ns; ++i) delay_ns *= 2;
  delay_ns = std::min(delay_ns, std::max(options.reconnect_max_ns, options.reconnect_min_ns));
  ++failures_;
  reconnect_timer_ =
      loop()->AddTimer(MonotonicNanos() + Jittered(delay_ns),
                       [self = std::static_pointer_cast<InitiatorLane>(shared_from_this())] {
                         self->reconnect_timer_ = 0;
                         self->CountReconnect();
                         self->Connect();
                       });
}

absl::Status InitiatorLane::OnWelcome() {
  const LaneIdentity& identity = link_->identity();
  const std::string expected =
      LaneProof(identity.secret, LaneSide::kTarget, identity.link_id, index(), generation_);
  if (!ProofsEqual(expected, text_)) {
    return Failed(absl::StrCat("lane ", index(), " to ", link_->peer().ToString(),
                               ": the target's proof is wrong"));
  }
  CancelTimer(&connect_timer_);
  state_ = State::kUp;
  up_.store(true, std::memory_order_relaxed);
  SetState("up");
  return absl::OkStatus();
}

void InitiatorLane::OnBroken(absl::Status reason) {
  CancelTimer(&connect_timer_);
  CancelTimer(&stall_timer_);
  up_.store(false, std::memory_order_relaxed);
  state_ = State::kDown;
  SetState("down", std::string(reason.message()));
  GiveBackAll();
  ScheduleReconnect();
  link_->LaneStateChanged();
}

void InitiatorLane::ShutdownNow() {
  if (state_ == State::kShut) return;
  state_ = State::kShut;
  up_.store(false, std::memory_order_relaxed);
  CancelTimer(&connect_timer_);
  CancelTimer(&reconnect_timer_);
  CancelTimer(&stall_timer_);
  Detach();
  GiveBackAll();
  SetState("down", "the link is closed");
  link_.reset();
}

// --- sending

bool InitiatorLane::WindowOpen() {
  const TcpOptions& options = context_->options;
  return state_ == State::kUp && in_flight_.size() < kMaxFramesInFlight &&
         load_.load(std::memory_order_relaxed) < options.window_stripes * options.stripe_bytes &&
         out().bytes() < options.stripe_bytes;
}

void InitiatorLane::Refill() {
  if (!WindowOpen()) return;
  const bool idle = in_flight_.empty();
  do {
    std::optional<StripeWork> work = link_->Take(index(), gathering_ >= kMaxGathering);
    if (!work.has_value()) break;
    StartStripe(std::move(*work));
  } while (WindowOpen());
  if (idle && !in_flight_.empty()) {
    MarkProgress();
    ArmStallTimer();
  }
}

void InitiatorLane::StartStripe(StripeWork work) {
  auto entry = std::make_shared<InFlight>();
  entry->direction = work.job->direction;
  entry->bytes = work.job->stripes[work.stripe].bytes;
  entry->data_left = entry->bytes;
  entry->work = std::move(work);
  in_flight_.push_back(entry);
  load_.fetch_add(entry->bytes, std::memory_order_relaxed);
  if (entry->direction == CopyDirection::kRead) {
    QueueRead(entry);
  } else if (entry->work.job->unmapped) {
    Gather(entry);
  } else {
    QueueWrite(entry);
  }
}

// Header and table; neighbours in the target's memory become one piece.
std::unique_ptr<OutFrame> InitiatorLane::NewStripeFrame(const InFlight& entry,
                                                        wire::FrameType type) {
  const TcpJob& job = *entry.work.job;
  auto frame = out().New();
  wire::Piece piece;
  uint32_t pieces = 0;
  ForEachPart(job.transfer->pieces, StripeOf(entry),
              [&](const CopyPiece& part, uint64_t offset, uint64_t length) {
                const uint64_t address = part.remote_address + offset;
                if (piece.length > 0 && piece.address + piece.length == address) {
                  piece.length += length;
                  return;
                }
                if (piece.length > 0) frame->AddPiece(piece);
                piece = {.address = address, .length = length};
                ++pieces;
              });
  frame->AddPiece(piece);
  frame->header.type = type;
  frame->header.transfer = job.id;
  frame->header.channel = job.channel;
  frame->header.stripe = entry.work.stripe;
  frame->header.pieces = pieces;
  frame->header.body = entry.bytes;
  return frame;
}

void InitiatorLane::QueueRead(const InFlightPtr& entry) {
  out().Push(NewStripeFrame(*entry, wire::FrameType::kRead));
  const TcpJob& job = *entry->work.job;
  entry->receiver = std::make_shared<BodyReceiver>(loop(), context_->inbound[worker_]);
  ForEachPart(job.transfer->pieces, StripeOf(*entry),
              [&](const CopyPiece& part, uint64_t offset, uint64_t length) {
                entry->receiver->Add({part.local.access, part.local.offset + offset}, length);
              });
  entry->receiver->Pin(job.transfer);
}

void InitiatorLane::QueueWrite(const InFlightPtr& entry) {
  const TcpJob& job = *entry->work.job;
  auto frame = NewStripeFrame(*entry, wire::FrameType::kWrite);
  ForEachPart(job.transfer->pieces, StripeOf(*entry),
              [&](const CopyPiece& part, uint64_t offset, uint64_t length) {
                const uint64_t at = part.local.offset + offset;
                const auto file = part.local.access->shared_file();
                // The target answers only when it has the bytes, and until then the job holds them.
                frame->AddBody(
                    part.local.access->mapped() + at, length,
                    file.has_value() ? FilePlace{file->fd, file->offset + at} : FilePlace());
              });
  frame->Pin(job.transfer);
  out().Push(std::move(frame));
}

void InitiatorLane::Gather(const InFlightPtr& entry) {
  const TcpJob& job = *entry->work.job;
  entry->gatherer = std::make_shared<BodyGatherer>(loop(), context_->outbound[worker_]);
  ForEachPart(job.transfer->pieces, StripeOf(*entry),
              [&](const CopyPiece& part, uint64_t offset, uint64_t length) {
                entry->gatherer->Add({part.local.access, part.local.offset + offset}, length);
              });
  entry->gatherer->Pin(job.transfer);
  ++gathering_;
  // The gatherer forgets the callback when it is abandoned, and the lane abandons it before it
  // goes.
  entry->gatherer->Start([this, entry](absl::Status status) { GatherReady(entry, status); });
}

void InitiatorLane::GatherReady(const InFlightPtr& entry, absl::Status status) {
  const std::shared_ptr<BodyGatherer> gatherer = std::move(entry->gatherer);
  --gathering_;
  if (!status.ok()) {
    Answered(entry, std::move(status));
  } else {
    auto frame = NewStripeFrame(*entry, wire::FrameType::kWrite);
    gatherer->MoveTo(frame.get());
    out().Push(std::move(frame));
  }
  Schedule();
}

// --- answers

InitiatorLane::InFlightPtr InitiatorLane::Find(uint64_t transfer, uint32_t stripe) const {
  // Answers come mostly in order, so the first look nearly always finds it.
  for (const InFlightPtr& entry : in_flight_) {
    if (entry->work.stripe == stripe && entry->work.job->id == transfer) return entry;
  }
  return nullptr;
}

void InitiatorLane::Remove(const InFlightPtr& entry) {
  const auto found = std::find(in_flight_.begin(), in_flight_.end(), entry);
  if (found == in_flight_.end()) return;
  in_flight_.erase(found);
  load_.fetch_sub(entry->bytes, std::memory_order_relaxed);
}

absl::Status InitiatorLane::OnFrame(const wire::FrameHeader& header,
                                    const std::vector<wire::Piece>& pieces) {
  current_ = header;
  current_entry_ = nullptr;
  if (header.pieces != 0) return ParamInvalid("an answer on a lane must not have pieces");
  if (state_ == State::kHello && header.type == wire::FrameType::kLaneWelcome &&
      header.body == wire::kLaneProofBytes) {
    ReceiveInto(&text_, header.body);
    return absl::OkStatus();
  }
  if (state_ == State::kUp) {
    if (header.type == wire::FrameType::kWriteAck) return OnAnswer(header);
    if (header.type == wire::FrameType::kReadData) {
      return header.code == 0 ? OnData(header) : OnAnswer(header);
    }
  }
  return ParamInvalid(absl::StrCat("frame type ", static_cast<int>(header.type),
                                   " is not expected on lane ", index(), " now"));
}

// An acknowledgement, or an error.
absl::Status InitiatorLane::OnAnswer(const wire::FrameHeader& header) {
  const InFlightPtr entry = Find(header.transfer, header.stripe);
  const auto direction =
      header.type == wire::FrameType::kWriteAck ? CopyDirection::kWrite : CopyDirection::kRead;
  if (entry == nullptr || entry->direction != direction || entry->gatherer != nullptr ||
      entry->finishing) {
    return ParamInvalid(absl::StrCat("answer for stripe ", header.stripe, " of transfer ",
                                     header.transfer, ", which is not on lane ", index()));
  }
  if (header.body > (header.code == 0 ? 0 : wire::kMaxErrorBytes)) {
    return ParamInvalid(absl::StrCat("answer with a body of ", header.body, " bytes"));
  }
  current_entry_ = entry;
  ReceiveInto(&text_, header.body);
  return absl::OkStatus();
}

absl::Status InitiatorLane::OnData(const wire::FrameHeader& header) {
  const InFlightPtr entry = Find(header.transfer, header.stripe);
  if (entry == nullptr || entry->direction != CopyDirection::kRead || entry->finishing) {
    return ParamInvalid(absl::StrCat("data for stripe ", header.stripe, " of transfer ",
                                     header.transfer, ", which lane ", index(),
                                     " did not ask for"));
  }
  if (header.body == 0 || header.body > entry->data_left) {
    return ParamInvalid(
        absl::StrCat("data of ", header.body, " bytes where ", entry->data_left, " are missing"));
  }
  entry->data_left -= header.body;
  current_entry_ = entry;
  if (entry->receiver != nullptr) ReceiveInto(entry->receiver.get());
  return absl::OkStatus();
}

absl::Status InitiatorLane::ErrorFromTarget(uint32_t code) const {
  hixl::wire::v1::Error error;
  if (!error.ParseFromString(text_) || error.message().empty()) {
    return MakeError(static_cast<ApiCode>(code), "the target refused the transfer");
  }
  return StatusFromErrorDetail(error.message(), error.detail(), absl::StatusCode::kInternal);
}

absl::Status InitiatorLane::OnBodyEnd() {
  const InFlightPtr entry = std::move(current_entry_);
  current_entry_ = nullptr;
  if (current_.type == wire::FrameType::kLaneWelcome) return OnWelcome();
  failures_ = 0;
  if (current_.code != 0) {
    Answered(entry, Annotate(ErrorFromTarget(current_.code), link_->peer().ToString()));
  } else if (current_.type == wire::FrameType::kWriteAck) {
    Answered(entry, absl::OkStatus());
  } else if (entry->data_left == 0) {
    DataComplete(entry);
  } else if (entry->receiver != nullptr) {
    // The rest may come late: its staging is needed by others meanwhile.
    entry->receiver->Flush();
  }
  return absl::OkStatus();
}

void InitiatorLane::Answered(const InFlightPtr& entry, absl::Status status) {
  Remove(entry);
  if (entry->receiver != nullptr && entry->receiver->busy()) {
    // An error after part of the data: what is being written must end first.
    DetachReceiver(entry);
  }
  link_->StripeDone(entry->work, std::move(status));
}

void InitiatorLane::DataComplete(const InFlightPtr& entry) {
  if (entry->receiver == nullptr || !entry->receiver->busy()) {
    Answered(entry, entry->receiver == nullptr ? absl::OkStatus() : entry->receiver->status());
    return;
  }
  entry->finishing = true;
  auto* receiver = entry->receiver.get();
  receiver->WhenQuiet([self = std::static_pointer_cast<InitiatorLane>(shared_from_this()), entry,
                       receiver, link = link_] {
    if (entry->abandoned) return;
    self->Remove(entry);
    link->StripeDone(entry->work, receiver->status());
    self->Schedule();
  });
}

// --- letting go

void InitiatorLane::AbandonNow(const std::shared_ptr<TcpJob>& job, const Fence& quiet) {
  for (const Detached& detached : detached_) {
    const auto receiver = detached.receiver.lock();
    if (detached.job == job && receiver != nullptr) receiver->Hold(quiet);
  }
  if (link_ == nullptr) return;
  std::vector<StripeWork> back;
  out().Abandon(
      [&](const wire::FrameHeader& header) {
        return header.transfer == job->id && header.type != wire::FrameType::kLaneHello;
      },
      [&](const wire::FrameHeader& header) {
        const InFlightPtr entry = Find(header.transfer, header.stripe);
        if (entry == nullptr) return;
        Remove(entry);
        back.push_back(entry->work);
      });
  std::vector<StripeWork> landed;
  const auto entries = in_flight_;
  for (const InFlightPtr& entry : entries) {
    if (entry->work.job != job) continue;
    const bool finishing = entry->finishing;
    if (AbandonEntry(entry, quiet)) (finishing ? landed : back).push_back(entry->work);
  }
  for (const StripeWork& work : back) link_->StripeReturned(work, false);
  for (const StripeWork& work : landed) link_->StripeReturned(work, true);
}

// Returns whether the stripe is no longer in flight.
bool InitiatorLane::AbandonEntry(const InFlightPtr& entry, const Fence& quiet) {
  entry->abandoned = true;
  if (entry->gatherer != nullptr) {
    entry->gatherer->Hold(quiet);
    entry->gatherer->Abandon();
    entry->gatherer = nullptr;
    --gathering_;
    Remove(entry);
    return true;
  }
  if (entry->receiver == nullptr) return false;
  if (entry == current_entry_ && in_body()) Divert();
  entry->receiver->Hold(quiet);
  entry->receiver->Abandon();
  entry->receiver = nullptr;
  if (!entry->finishing) return false;
  Remove(entry);
  return true;
}

// The connection is gone: stripes go back to the link, at once where nothing of them can land any
// more, else once the target has fenced this lane.
void InitiatorLane::GiveBackAll() {
  current_entry_ = nullptr;
  std::vector<StripeWork> unsent;
  out().Abandon([](const wire::FrameHeader& header) { return true; },
                [&](const wire::FrameHeader& header) {
                  const InFlightPtr entry = Find(header.transfer, header.stripe);
                  if (entry == nullptr) return;
                  Remove(entry);
                  unsent.push_back(entry->work);
                });
  out().Clear();
  std::deque<InFlightPtr> entries;
  entries.swap(in_flight_);
  load_.store(0, std::memory_order_relaxed);
  gathering_ = 0;
  std::vector<StripeWork> again;
  std::vector<StripeWork> unanswered;
  for (const InFlightPtr& entry : entries) {
    if (entry->gatherer != nullptr) {
      // Reads of local memory that are under way harm nobody; their pins keep it alive.
      entry->gatherer->Abandon();
      entry->gatherer = nullptr;
      unsent.push_back(entry->work);
    } else if (entry->direction == CopyDirection::kWrite) {
      unanswered.push_back(entry->work);
    } else if (entry->receiver != nullptr && entry->receiver->busy()) {
      DetachReceiver(entry);
      if (entry->finishing) continue;
      entry->receiver->WhenQuiet(
          [work = entry->work, link = link_] { link->StripeReturned(work, true); });
    } else {
      entry->receiver = nullptr;
      again.push_back(entry->work);
    }
  }
  for (const StripeWork& work : unsent) link_->StripeReturned(work, false);
  for (const StripeWork& work : again) link_->StripeReturned(work, true);
  if (!unanswered.empty()) link_->LaneLost(index(), generation_, std::move(unanswered));
}

// Remembers the receiver, so that a fence of its job can wait for the writes under way.
void InitiatorLane::DetachReceiver(const InFlightPtr& entry) {
  detached_.erase(std::remove_if(detached_.begin(), detached_.end(),
                                 [](const Detached& old) { return old.receiver.expired(); }),
                  detached_.end());
  entry->receiver->Abandon();
  detached_.push_back({entry->work.job, entry->receiver});
}

// --- a lane on which nothing moves

bool InitiatorLane::ExpectsProgress() const {
  if (waits_for_staging()) return false;
  return std::any_of(in_flight_.begin(), in_flight_.end(), [](const InFlightPtr& entry) {
    return entry->gatherer == nullptr && !entry->finishing;
  });
}

void InitiatorLane::ArmStallTimer() {
  if (stall_timer_ != 0) return;
  const int64_t period_ns =
      std::max<int64_t>(context_->options.stall_timeout_ns / 4, kNanosPerMilli);
  stall_timer_ =
      loop()->AddTimer(MonotonicNanos() + period_ns,
                       [self = std::static_pointer_cast<InitiatorLane>(shared_from_this())] {
                         self->stall_timer_ = 0;
                         self->OnStallTimer();
                       });
}

void InitiatorLane::OnStallTimer() {
  if (state_ != State::kUp || in_flight_.empty()) return;
  if (!ExpectsProgress()) MarkProgress();
  const int64_t still_ns = MonotonicNanos() - last_progress_ns();
  if (still_ns >= context_->options.stall_timeout_ns) {
    Break(Timeout(absl::StrCat("nothing moved on lane ", index(), " for ",
                               still_ns / kNanosPerMilli, " ms"),
                  {.option = "tcp.keepalive_timeout"}),
          false);
    return;
  }
  ArmStallTimer();
}

}  // namespace hixld
