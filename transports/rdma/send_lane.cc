#include "transports/rdma/send_lane.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

// Work requests per doorbell.
constexpr size_t kBatch = 32;
// Within a batch, every so many ask for a completion; the last one always does.
constexpr size_t kSignalEvery = 16;
// Of the first request, before those that carry work.
constexpr uint32_t kProbeSequence = UINT32_MAX;
// A device that does not flush in this time is not waited for: destroying the queue pair ends it.
constexpr int64_t kDrainNs = kNanosPerSecond;

const char* StatusText(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer's port does not answer, or the network passes no packets of this size "
             "(retries used up: rdma.retry_count, rdma.ack_timeout, rdma.mtu)";
    case IBV_WC_REM_ACCESS_ERR:
      return "the peer refuses access to the range";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer calls the request invalid";
    case IBV_WC_REM_OP_ERR:
      return "the peer's device failed";
    case IBV_WC_LOC_PROT_ERR:
      return "local memory is not registered for this";
    case IBV_WC_WR_FLUSH_ERR:
      return "flushed";
    default:
      return "work request failed";
  }
}

}  // namespace

SendLane::SendLane(Options options, std::unique_ptr<VerbsQueuePair> queue_pair,
                   std::shared_ptr<CompletionQueue> completions, std::shared_ptr<Source> source,
                   Loop* control)
    : options_(options),
      queue_pair_(std::move(queue_pair)),
      completions_(std::move(completions)),
      source_(std::move(source)),
      control_(control),
      number_(queue_pair_->number()),
      posted_(std::bit_ceil(options_.depth)) {}

SendLane::~SendLane() { completions_->Unreserve(options_.depth); }

void SendLane::Start() {
  completions_->loop()->Dispatch([self = shared_from_this()] {
    if (self->state_ != State::kNew) return;
    self->token_ = self->completions_->Attach(self.get());
    self->state_ = State::kProving;
    const int error = self->PostEmpty(kProbeSequence);
    if (error != 0) self->BreakHere(ErrnoError(error, "post a first request"));
  });
}

void SendLane::Kick() {
  if (kicked_.exchange(true, std::memory_order_acq_rel)) return;
  // Later, on the worker's thread too: what the client submits together is then posted together,
  // with one doorbell.
  completions_->loop()->Post([self = shared_from_this()] {
    // Reading what the last kick wrote makes the work that it was for visible.
    self->kicked_.exchange(false, std::memory_order_acq_rel);
    self->Pump();
  });
}

void SendLane::Break(absl::Status why) {
  completions_->loop()->Dispatch([self = shared_from_this(), why = std::move(why)]() mutable {
    self->BreakHere(std::move(why));
  });
}

void SendLane::Pump() {
  // Transfers that end may bring new ones at once, and a key may turn up while it is asked for; the
  // outermost call takes those too.
  pump_again_ = true;
  if (pumping_) return;
  pumping_ = true;
  while (state_ == State::kUp && pump_again_) {
    // One slot stays free for the drain.
    const size_t room = options_.depth - 1 - posted_count_;
    if (room == 0 || posted_bytes_ >= options_.inflight_bytes) break;
    batch_.clear();
    pump_again_ = false;
    source_->TakeWork(*this, std::min(room, kBatch), options_.inflight_bytes - posted_bytes_,
                      &batch_);
    if (batch_.empty()) continue;
    pump_again_ = true;
    Post();
  }
  pumping_ = false;
}

void SendLane::Post() {
  const size_t count = batch_.size();
  requests_.assign(count, ibv_send_wr{});
  segments_.assign(count, ibv_sge{});
  uint32_t sequence = first_sequence_ + posted_count_;
  for (size_t i = 0; i < count; ++i) {
    const Work& work = batch_[i];
    segments_[i] = {work.local, static_cast<uint32_t>(work.range.length), work.local_key};
    ibv_send_wr& request = requests_[i];
    PostedAt(sequence) = work;
    request.wr_id = CompletionQueue::WorkId(token_, sequence++);
    request.next = i + 1 < count ? &requests_[i + 1] : nullptr;
    request.sg_list = &segments_[i];
    request.num_sge = 1;
    request.opcode = work.job->write() ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    if (i + 1 == count || i % kSignalEvery == kSignalEvery - 1) {
      request.send_flags |= IBV_SEND_SIGNALED;
    }
    if (work.job->write() && work.range.length <= queue_pair_->inline_bytes()) {
      request.send_flags |= IBV_SEND_INLINE;
    }
    request.wr.rdma.remote_addr = work.remote;
    request.wr.rdma.rkey = work.remote_key;
    posted_bytes_ += work.range.length;
  }
  posted_count_ += static_cast<uint32_t>(count);
  ibv_send_wr* bad = nullptr;
  if (const int error = queue_pair_->Post(requests_.data(), &bad); error != 0) {
    BreakHere(ErrnoError(error, "post work requests"));
  }
}

void SendLane::BreakHere(absl::Status why) {
  if (state_ == State::kDraining || state_ == State::kEnded) return;
  if (why_.ok()) why_ = std::move(why);
  if (token_ == 0) token_ = completions_->Attach(this);
  state_ = State::kDraining;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  queue_pair_->Modify(&attributes, IBV_QP_STATE);
  PostDrain();
}

int SendLane::PostEmpty(uint32_t sequence) {
  ibv_sge nothing = {};
  ibv_send_wr request = {};
  request.wr_id = CompletionQueue::WorkId(token_, sequence);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &nothing;
  ibv_send_wr* bad = nullptr;
  return queue_pair_->Post(&request, &bad);
}

// A last work request: its completion comes after those of all others.
void SendLane::PostDrain() {
  drain_sequence_ = first_sequence_ + posted_count_;
  if (PostEmpty(drain_sequence_) != 0) {
    Finish();
    return;
  }
  drain_timer_ = completions_->loop()->AddTimer(MonotonicNanos() + kDrainNs,
                                                [self = shared_from_this()] { self->Finish(); });
}

void SendLane::Finish() {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  completions_->loop()->CancelTimer(drain_timer_);
  completions_->Detach(token_);
  if (!sent_.empty()) source_->OnSent(*this, std::exchange(sent_, {}));
  std::vector<Work> unknown;
  for (uint32_t i = 0; i < posted_count_; ++i) unknown.push_back(PostedAt(first_sequence_ + i));
  posted_count_ = 0;
  control_->Post([self = shared_from_this(), unknown = std::move(unknown)]() mutable {
    self->queue_pair_.reset();
    self->source_->OnBroken(*self, self->why_, self->culprit_, std::move(unknown));
  });
}

void SendLane::PopUntil(uint32_t sequence) {
  while (posted_count_ > 0 && static_cast<int32_t>(sequence - first_sequence_) >= 0) {
    const Work& work = PostedAt(first_sequence_);
    posted_bytes_ -= work.range.length;
    auto& bytes = work.job->write() ? bytes_sent_ : bytes_received_;
    bytes.fetch_add(work.range.length, std::memory_order_relaxed);
    sent_.push_back(work);
    --posted_count_;
    ++first_sequence_;
  }
}

void SendLane::OnCompletion(const ibv_wc& completion, uint32_t sequence) {
  if (state_ == State::kDraining && sequence == drain_sequence_) {
    Finish();
    return;
  }
  if (state_ == State::kProving && completion.status == IBV_WC_SUCCESS) {
    state_ = State::kUp;
    source_->OnProven(*this);
    return;
  }
  if (completion.status == IBV_WC_SUCCESS) {
    // Completions come in order, so all before it succeeded too.
    PopUntil(sequence);
    return;
  }
  if (completion.status == IBV_WC_WR_FLUSH_ERR) {
    BreakHere(Failed("the queue pair was flushed"));
    return;
  }
  const uint32_t index = sequence - first_sequence_;
  if (culprit_.job == nullptr && index < posted_count_) {
    culprit_ = {PostedAt(sequence).job, completion.status};
  }
  const std::string what =
      absl::StrCat(StatusText(completion.status), " (status ", static_cast<int>(completion.status),
                   ", vendor ", completion.vendor_err, ")");
  if (state_ == State::kDraining) {
    // Told to stop first, or flushed before the cause showed.
    if (absl::StrContains(why_.message(), "flushed")) why_ = Failed(what);
    return;
  }
  BreakHere(Failed(what));
}

void SendLane::OnCompletionsEnd() {
  // The control thread may let go of a lane that breaks in here.
  const std::shared_ptr<SendLane> self = shared_from_this();
  if (!sent_.empty()) {
    std::vector<Work> sent = std::exchange(sent_, {});
    source_->OnSent(*this, sent);
    sent.clear();
    if (sent_.empty()) sent_ = std::move(sent);
  }
  Pump();
}

}  // namespace hixld::rdma
