#include "transports/tcp/initiator_link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/wire/frame.h"
#include "proto/wire/tcp_control.pb.h"
#include "transports/tcp/initiator_lane.h"

namespace hixld {
namespace {

using hixl::wire::v1::TcpControl;

// A transfer of medium size is cut finer than stripe_bytes, so that all lanes share it.
constexpr uint64_t kMinStripeBytes = 256 << 10;
// Transfers of one link take turns, so that a small one does not wait for all of a large one. A
// turn brings those of medium size to their end: sharing stripe by stripe, all that are under way
// would end at the same moment, and the link would be empty until others arrive.
constexpr uint64_t kTurnBytes = 4 << 20;

uint64_t StripeSize(uint64_t bytes, size_t lanes, uint64_t stripe_bytes) {
  const uint64_t share = (bytes / (2 * lanes) + 4095) / 4096 * 4096;
  return std::min(std::max(share, kMinStripeBytes), stripe_bytes);
}

}  // namespace

InitiatorLinkCore::InitiatorLinkCore(std::shared_ptr<TcpContext> context, const Endpoint& peer,
                                     LaneIdentity identity, ControlPath* control)
    : context_(std::move(context)),
      peer_(peer),
      identity_(std::move(identity)),
      control_(std::make_shared<ControlGate>(control)),
      home_(&context_->workers->at(context_->workers->Next())) {}

InitiatorLinkCore::~InitiatorLinkCore() = default;

void InitiatorLinkCore::Start() {
  const uint32_t count = std::clamp<uint32_t>(context_->options.lanes, 1, kMaxLanes);
  const uint32_t base = context_->workers->Next();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t worker = (base + i) % context_->workers->size();
    lanes_.push_back(std::make_shared<InitiatorLane>(context_, shared_from_this(), i, worker));
  }
  for (auto& lane : lanes_) lane->Start();
}

void InitiatorLinkCore::Disown() { control_->Shut(); }

std::vector<LaneStats> InitiatorLinkCore::Lanes() const {
  std::vector<LaneStats> stats;
  for (const auto& lane : lanes_) stats.push_back(lane->stats());
  return stats;
}

std::shared_ptr<TcpJob> InitiatorLinkCore::MakeJob(std::shared_ptr<TransferJob> transfer) const {
  auto job = std::make_shared<TcpJob>();
  job->id = transfer->id;
  job->channel = transfer->channel;
  job->direction = transfer->direction;
  job->deadline_ns = transfer->deadline_ns;
  job->unmapped =
      std::any_of(transfer->pieces.begin(), transfer->pieces.end(),
                  [](const CopyPiece& piece) { return piece.local.access->mapped() == nullptr; });
  const uint64_t stripe_bytes =
      std::min(std::max<uint64_t>(context_->options.stripe_bytes, 4096), wire::kMaxBodyBytes);
  uint64_t size = StripeSize(transfer->bytes, lanes_.size(), stripe_bytes);
  if (job->unmapped) size = std::min(size, context_->staging_chunk);
  job->stripes = CutStripes(transfer->pieces, size, wire::kMaxPiecesPerFrame);
  job->unfinished = static_cast<uint32_t>(job->stripes.size());
  transfer->sink_state = std::shared_ptr<void>(job);
  job->transfer = std::move(transfer);
  return job;
}

void InitiatorLinkCore::Submit(std::shared_ptr<TransferJob> transfer) {
  const uint32_t worker = transfer->worker;
  std::shared_ptr<TcpJob> job = MakeJob(std::move(transfer));
  const uint32_t stripes = job->unfinished;
  Admission admission;
  absl::Status status = stripes == 0 ? absl::OkStatus() : Admit(job, &admission);
  if (stripes == 0 || !status.ok()) {
    // Never on the caller's thread, which may hold a lock that `done` needs.
    home_->Post([transfer = std::move(job->transfer), status = std::move(status)]() mutable {
      RunDone(std::move(transfer), std::move(status));
    });
    return;
  }
  if (admission.new_deadline) home_->Post([self = shared_from_this()] { self->ArmDeadline(); });
  WakeLanes(admission.backlog ? UINT32_MAX : stripes, worker);
}

absl::Status InitiatorLinkCore::Admit(const std::shared_ptr<TcpJob>& job, Admission* admission) {
  MutexLock lock(&mutex_);
  if (closed_) return close_reason_;
  if (jobs_.size() >= context_->options.max_queued_transfers) {
    return ResourceExhausted(
        absl::StrCat("transfer ", job->id, ": ", jobs_.size(), " transfers wait for the link to ",
                     peer_.ToString(), " already"),
        {.object = absl::StrCat("link to ", peer_.ToString()),
         .limit = absl::StrCat(context_->options.max_queued_transfers, " transfers")});
  }
  if (!jobs_.emplace(job->id, job).second) {
    return ParamInvalid(absl::StrCat("transfer ", job->id, " is under way already"),
                        {.object = absl::StrCat("transfer ", job->id)});
  }
  // Others wait already: the lane that was woken for them may have no room for all.
  admission->backlog = !ready_[0].empty() || !ready_[1].empty();
  ListLocked(job);
  admission->new_deadline = job->deadline_ns < armed_deadline_ns_;
  if (admission->new_deadline) armed_deadline_ns_ = job->deadline_ns;
  return absl::OkStatus();
}

void InitiatorLinkCore::ListLocked(const std::shared_ptr<TcpJob>& job) {
  if (job->ready) return;
  job->ready = true;
  job->turn_bytes = 0;
  auto& list = ready_[job->staged() ? 1 : 0];
  job->ready_at = list.insert(list.end(), job);
}

void InitiatorLinkCore::UnlistLocked(TcpJob* job) {
  if (!job->ready) return;
  job->ready = false;
  ready_[job->staged() ? 1 : 0].erase(job->ready_at);
}

// Wakes all lanes for many stripes; for one, the lane of the job's own worker when it is not
// busy, else the one with the least to do.
void InitiatorLinkCore::WakeLanes(uint32_t stripes, uint32_t worker) {
  if (stripes > 1) {
    for (auto& lane : lanes_) lane->Wake();
    return;
  }
  InitiatorLane* best = nullptr;
  uint64_t best_load = UINT64_MAX;
  for (auto& lane : lanes_) {
    if (!lane->up()) continue;
    const bool near = lane->worker() == worker % context_->workers->size();
    const uint64_t load = lane->load() + (near ? 0 : kMinStripeBytes);
    if (load >= best_load) continue;
    best = lane.get();
    best_load = load;
  }
  // With no lane up, the first one that comes up takes the stripe.
  if (best != nullptr) best->Wake();
}

std::optional<StripeWork> InitiatorLinkCore::Take(uint32_t lane, bool mapped_only) {
  MutexLock lock(&mutex_);
  const bool direct = !ready_[0].empty();
  const bool staged = !ready_[1].empty() && !mapped_only;
  if (!direct && !staged) return std::nullopt;
  const bool take_staged = staged && (!direct || staged_turn_);
  if (direct && staged) staged_turn_ = !staged_turn_;
  return TakeFirstLocked(&ready_[take_staged ? 1 : 0], lane);
}

// The next stripe of the first job. The job goes to the end of its list when it has had its turn.
StripeWork InitiatorLinkCore::TakeFirstLocked(std::list<std::shared_ptr<TcpJob>>* ready,
                                              uint32_t lane) {
  const std::shared_ptr<TcpJob> job = ready->front();
  StripeWork work{job, 0};
  if (!job->returned.empty()) {
    work.stripe = job->returned.back();
    job->returned.pop_back();
  } else {
    work.stripe = job->next++;
  }
  ++job->out;
  ++job->sent;
  job->lanes_used |= 1ULL << lane;
  job->turn_bytes += job->stripes[work.stripe].bytes;
  if (job->returned.empty() && job->next == job->stripes.size()) {
    UnlistLocked(job.get());
  } else if (job->turn_bytes >= kTurnBytes) {
    job->turn_bytes = 0;
    ready->splice(ready->end(), *ready, ready->begin());
  }
  return work;
}

void InitiatorLinkCore::StripeDone(const StripeWork& work, absl::Status status) {
  TcpJob* job = work.job.get();
  std::shared_ptr<TransferJob> ended;
  bool fence = false;
  {
    MutexLock lock(&mutex_);
    --job->out;
    // A target refuses a frame before it takes its body or sends any.
    if (ApiCodeOf(status) == ApiCode::kParamInvalid) --job->sent;
    if (job->phase == TcpJob::Phase::kActive) {
      fence = !status.ok();
      if (!fence) {
        job->transfer->bytes_done.fetch_add(job->stripes[work.stripe].bytes,
                                            std::memory_order_relaxed);
        if (--job->unfinished == 0) ended = EndLocked(work.job);
      }
    }
  }
  if (ended != nullptr) {
    RunDone(std::move(ended), absl::OkStatus());
  } else if (fence) {
    BeginFence(work.job, std::move(status));
  } else {
    EndIfFenced(work.job);
  }
}

void InitiatorLinkCore::StripeReturned(const StripeWork& work, bool resent) {
  bool again = false;
  {
    MutexLock lock(&mutex_);
    --work.job->out;
    if (!resent) --work.job->sent;
    again = work.job->phase == TcpJob::Phase::kActive;
    if (again) {
      work.job->returned.push_back(work.stripe);
      ListLocked(work.job);
    }
  }
  if (again) {
    if (resent) context_->resent_stripes.fetch_add(1, std::memory_order_relaxed);
    WakeLanes(2, 0);
  } else {
    EndIfFenced(work.job);
  }
}

void InitiatorLinkCore::LaneLost(uint32_t lane, uint32_t generation,
                                 std::vector<StripeWork> unanswered) {
  {
    MutexLock lock(&mutex_);
    // After Close only time fences the target.
    if (closed_) return;
    lost_[{lane, generation}] = std::move(unanswered);
  }
  TcpControl message;
  message.mutable_lane_dead()->set_lane(lane);
  message.mutable_lane_dead()->set_generation(generation);
  SendControl(message);
}

void InitiatorLinkCore::OnLaneFenced(uint32_t lane, uint32_t generation) {
  std::vector<StripeWork> unanswered;
  {
    MutexLock lock(&mutex_);
    const auto found = lost_.find({lane, generation});
    if (found == lost_.end()) return;
    unanswered = std::move(found->second);
    lost_.erase(found);
  }
  for (const StripeWork& work : unanswered) StripeReturned(work, true);
}

void InitiatorLinkCore::LaneStateChanged() { WakeLanes(2, 0); }

void InitiatorLinkCore::Cancel(const std::shared_ptr<TransferJob>& transfer, absl::Status reason) {
  auto job = std::static_pointer_cast<TcpJob>(transfer->sink_state.lock());
  if (job != nullptr) BeginFence(job, std::move(reason));
}

// From here on no stripe of the job is sent; it ends with `reason` once nothing can land.
void InitiatorLinkCore::BeginFence(const std::shared_ptr<TcpJob>& job, absl::Status reason) {
  uint64_t lanes_used = 0;
  {
    MutexLock lock(&mutex_);
    // A job that was never admitted is not in the map.
    if (job->phase != TcpJob::Phase::kActive || !jobs_.contains(job->id)) return;
    job->phase = TcpJob::Phase::kFencing;
    job->outcome = std::move(reason);
    job->returned.clear();
    UnlistLocked(job.get());
    lanes_used = job->lanes_used;
  }
  context_->cancelled_transfers.fetch_add(1, std::memory_order_relaxed);
  const Fence quiet = MakeFence(home_, [self = shared_from_this(), job] { self->OnQuiet(job); });
  for (auto& lane : lanes_) {
    if ((lanes_used >> lane->index() & 1) != 0) lane->Abandon(job, quiet);
  }
}

// No lane touches the job's local memory any more.
void InitiatorLinkCore::OnQuiet(const std::shared_ptr<TcpJob>& job) {
  bool ask = false;
  {
    MutexLock lock(&mutex_);
    job->quiet = true;
    ask = !FencedLocked(job.get()) && !closed_;
    job->cancel_sent = ask;
  }
  if (ask) {
    TcpControl message;
    message.mutable_cancel_transfer()->set_transfer(job->id);
    SendControl(message);
  }
  EndIfFenced(job);
}

// A READ lands in local memory only. A WRITE may land as long as one of its stripes is out.
bool InitiatorLinkCore::FencedLocked(TcpJob* job) {
  if (!job->quiet) return false;
  return job->direction == CopyDirection::kRead || job->out == 0 || job->target_cancelled ||
         target_gone_;
}

// The target must remember a cancelled transfer until its last frame has arrived.
bool InitiatorLinkCore::MayForgetLocked(TcpJob* job) {
  if (!job->cancel_sent || job->forget_sent || job->out > 0 || closed_) return false;
  job->forget_sent = true;
  return true;
}

void InitiatorLinkCore::EndIfFenced(const std::shared_ptr<TcpJob>& job) {
  std::shared_ptr<TransferJob> ended;
  absl::Status outcome;
  bool forget = false;
  {
    MutexLock lock(&mutex_);
    if (job->phase == TcpJob::Phase::kFencing && FencedLocked(job.get())) {
      ended = EndLocked(job);
      if (job->sent > 0) ended->moved.store(true, std::memory_order_relaxed);
      outcome = std::move(job->outcome);
    }
    forget = MayForgetLocked(job.get());
  }
  if (forget) {
    TcpControl message;
    message.mutable_forget_transfer()->set_transfer(job->id);
    SendControl(message);
  }
  if (ended != nullptr) RunDone(std::move(ended), std::move(outcome));
}

std::shared_ptr<TransferJob> InitiatorLinkCore::EndLocked(const std::shared_ptr<TcpJob>& job) {
  job->phase = TcpJob::Phase::kEnded;
  jobs_.erase(job->id);
  return std::move(job->transfer);
}

void InitiatorLinkCore::RunDone(std::shared_ptr<TransferJob> transfer, absl::Status status) {
  auto done = std::move(transfer->done);
  if (done) done(std::move(status));
}

// One timer serves all jobs: it stands at the earliest deadline that was ever asked for.
void InitiatorLinkCore::ArmDeadline() {
  int64_t deadline_ns;
  {
    MutexLock lock(&mutex_);
    deadline_ns = armed_deadline_ns_;
  }
  if (deadline_timer_ != 0) home_->CancelTimer(std::exchange(deadline_timer_, 0));
  if (deadline_ns == kNoDeadline) return;
  deadline_timer_ = home_->AddTimer(deadline_ns, [self = shared_from_this()] {
    self->deadline_timer_ = 0;
    self->OnDeadline();
  });
}

// Why transfers wait, where it is for want of a lane; the first that knows is as good as another.
std::string InitiatorLinkCore::Trouble() const {
  std::string trouble;
  for (const auto& lane : lanes_) {
    if (lane->up()) return "";
    if (trouble.empty()) trouble = lane->stats().error;
  }
  return absl::StrCat("; no lane is up", trouble.empty() ? "" : ": ", trouble);
}

void InitiatorLinkCore::OnDeadline() {
  const int64_t now_ns = MonotonicNanos();
  Jobs late;
  {
    MutexLock lock(&mutex_);
    armed_deadline_ns_ = kNoDeadline;
    for (const auto& [id, job] : jobs_) {
      if (job->phase != TcpJob::Phase::kActive) continue;
      if (job->deadline_ns <= now_ns) {
        late.push_back(job);
      } else {
        armed_deadline_ns_ = std::min(armed_deadline_ns_, job->deadline_ns);
      }
    }
  }
  const std::string trouble = late.empty() ? "" : Trouble();
  for (const auto& job : late) {
    BeginFence(job, Timeout(absl::StrCat("transfer ", job->id, " to ", peer_.ToString(),
                                         " passed its deadline", trouble),
                            {.object = absl::StrCat("transfer ", job->id)}));
  }
  ArmDeadline();
}

void InitiatorLinkCore::Close(absl::Status reason, int64_t fenced_at_ns) {
  Jobs jobs;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    close_reason_ = reason;
    for (const auto& [id, job] : jobs_) jobs.push_back(job);
    lost_.clear();
  }
  for (const auto& job : jobs) BeginFence(job, reason);
  for (auto& lane : lanes_) lane->Shutdown();
  home_->Post([self = shared_from_this(), fenced_at_ns] {
    self->home_->AddTimer(fenced_at_ns, [self] { self->OnFencedAt(); });
  });
}

void InitiatorLinkCore::OnFencedAt() {
  Jobs jobs;
  {
    MutexLock lock(&mutex_);
    target_gone_ = true;
    for (const auto& [id, job] : jobs_) jobs.push_back(job);
  }
  for (const auto& job : jobs) EndIfFenced(job);
}

void InitiatorLinkCore::OnControlMessage(absl::string_view payload) {
  auto message = std::make_shared<TcpControl>();
  if (!message->ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    context_->malformed_frames.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  home_->Post([self = shared_from_this(), message] { self->HandleControl(*message); });
}

void InitiatorLinkCore::HandleControl(const TcpControl& message) {
  switch (message.body_case()) {
    case TcpControl::kTransferCancelled:
      OnTransferCancelled(message.transfer_cancelled().transfer());
      return;
    case TcpControl::kLaneFenced:
      OnLaneFenced(message.lane_fenced().lane(), message.lane_fenced().generation());
      return;
    default:
      context_->malformed_frames.fetch_add(1, std::memory_order_relaxed);
  }
}

void InitiatorLinkCore::OnTransferCancelled(uint64_t id) {
  std::shared_ptr<TcpJob> job;
  {
    MutexLock lock(&mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || !found->second->cancel_sent) return;
    job = found->second;
    job->target_cancelled = true;
  }
  EndIfFenced(job);
}

void InitiatorLinkCore::SendControl(const TcpControl& message) {
  control_->Send(message.SerializeAsString());
}

}  // namespace hixld
