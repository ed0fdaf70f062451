// Transfers of one link: their keys, their turns and their ends.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"
#include "transports/rdma/initiator_link.h"

namespace hixld::rdma {
namespace {

using hixl::wire::v1::RdmaKeyReply;
using hixl::wire::v1::RdmaMessage;
using hixl::wire::v1::RdmaRange;

constexpr int kMaxRanges = 512;
// How many pieces are looked at to fill one request for keys.
constexpr size_t kLookAhead = 4096;
// A transfer that broke this many lanes by itself fails.
constexpr uint32_t kMaxStrikes = 3;

bool BlamesRange(ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_LEN_ERR ||
         status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_REM_OP_ERR;
}

}  // namespace

Job* InitiatorCore::Find(const TransferJob* transfer) {
  const auto at = jobs_.find(transfer);
  return at == jobs_.end() ? nullptr : at->second.get();
}

void InitiatorCore::Submit(std::shared_ptr<TransferJob> transfer) {
  auto job = std::make_unique<Job>(transfer);
  Outcome outcome;
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) {
      refused = closed_;
    } else if (!given_up_.ok() && !has_fallback_) {
      refused = given_up_;
    } else if (!given_up_.ok()) {
      moving_.emplace(transfer.get(), absl::OkStatus());
      outcome.elsewhere.push_back(std::move(job));
    } else if (jobs_.size() >= context_->options().max_queued_transfers) {
      refused = ResourceExhausted(
          "too many transfers wait on the RDMA link",
          {.limit = absl::StrCat(context_->options().max_queued_transfers, " transfers")});
    } else if (job->AllSent()) {
      outcome.ended.emplace_back(std::move(job), absl::OkStatus());
    } else {
      queue_.Add(job.get());
      ArmDeadline(transfer->deadline_ns);
      jobs_.emplace(transfer.get(), std::move(job));
      outcome.idle = TakeIdle();
    }
  }
  if (!refused.ok()) outcome.ended.emplace_back(std::move(job), refused);
  Carry(std::move(outcome));
}

void InitiatorCore::Cancel(const std::shared_ptr<TransferJob>& transfer, absl::Status reason) {
  Outcome outcome;
  bool here = false;
  {
    MutexLock lock(&mutex_);
    if (Job* job = Find(transfer.get())) {
      here = true;
      job->elsewhere = false;
      EndJob(job, std::move(reason), &outcome);
    } else if (const auto moving = moving_.find(transfer.get()); moving != moving_.end()) {
      if (moving->second.ok()) moving->second = std::move(reason);
      return;
    }
  }
  if (here) return Carry(std::move(outcome));
  // It has ended, or moved to the fall-back.
  if (const auto fallback = Fallback()) fallback->Cancel(transfer, std::move(reason));
}

// Nothing more of it is sent; what is outstanding gets a moment to end by itself, and is flushed
// then.
void InitiatorCore::EndJob(Job* job, absl::Status status, Outcome* outcome) {
  if (job->ending) {
    if (job->end.ok()) job->end = std::move(status);
    return;
  }
  job->ending = true;
  job->end = std::move(status);
  queue_.Remove(job);
  if (job->outstanding > 0) {
    const int64_t grace = closed_.ok() ? context_->options().cancel_grace_ns : 0;
    context_->control().Post(
        [self = shared_from_this(), grace, transfer = std::weak_ptr<TransferJob>(job->transfer)] {
          self->context_->control().AddTimer(MonotonicNanos() + grace,
                                             [self, transfer] { self->FlushLanesOf(transfer); });
        });
  }
  Settle(job, outcome);
}

void InitiatorCore::MoveElsewhere(Job* job, const absl::Status& why, Outcome* outcome) {
  if (job->ending) return;
  if (!has_fallback_) return EndJob(job, why, outcome);
  job->ending = true;
  job->elsewhere = true;
  queue_.Remove(job);
  Settle(job, outcome);
}

// Takes the job out if it is over.
void InitiatorCore::Settle(Job* job, Outcome* outcome) {
  if (job->outstanding > 0) return;
  if (!job->ending && !job->AllSent()) {
    queue_.Add(job);
    outcome->kick = true;
    return;
  }
  queue_.Remove(job);
  const auto at = jobs_.find(job->transfer.get());
  std::unique_ptr<Job> owned = std::move(at->second);
  jobs_.erase(at);
  if (owned->Begun() && (owned->elsewhere || !owned->end.ok())) {
    owned->transfer->moved.store(true, std::memory_order_relaxed);
  }
  if (owned->elsewhere) {
    moving_.emplace(owned->transfer.get(), absl::OkStatus());
    outcome->elsewhere.push_back(std::move(owned));
  } else {
    absl::Status end = owned->end;
    outcome->ended.emplace_back(std::move(owned), std::move(end));
  }
}

void InitiatorCore::Carry(Outcome outcome) {
  if (outcome.kick) KickLanes();
  if (outcome.idle != nullptr) outcome.idle->Kick();
  for (const auto& job : outcome.elsewhere) SubmitElsewhere(job->transfer);
  for (auto& [job, status] : outcome.ended) job->transfer->done(status);
}

void InitiatorCore::SubmitElsewhere(const std::shared_ptr<TransferJob>& transfer) {
  const auto fallback = Fallback();
  if (fallback != nullptr) {
    transfer->bytes_done.store(0, std::memory_order_relaxed);
    fallback->Submit(transfer);
  }
  absl::Status cancelled;
  {
    MutexLock lock(&mutex_);
    const auto moving = moving_.find(transfer.get());
    cancelled = std::move(moving->second);
    moving_.erase(moving);
  }
  if (fallback == nullptr) {
    transfer->done(NotConnected("the link is being closed"));
  } else if (!cancelled.ok()) {
    fallback->Cancel(transfer, std::move(cancelled));
  }
}

// One lane with nothing to do is woken; it wakes the next if it cannot take all. Busy lanes look
// by themselves when something of theirs is acknowledged.
void InitiatorCore::KickLanes() {
  std::shared_ptr<SendLane> lane;
  {
    MutexLock lock(&mutex_);
    lane = TakeIdle();
  }
  if (lane != nullptr) lane->Kick();
}

// The next lane with nothing to do, which is to be woken.
std::shared_ptr<SendLane> InitiatorCore::TakeIdle() {
  const uint32_t first = next_kick_++;
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    const LaneSlot& slot = lanes_[(first + i) % lanes_.size()];
    if (slot.state != LaneState::kUp || !slot.lane->idle()) continue;
    slot.lane->set_idle(false);
    return slot.lane;
  }
  return nullptr;
}

void InitiatorCore::TakeWork(SendLane& lane, size_t max_works, uint64_t max_bytes,
                             std::vector<Work>* out) {
  std::vector<MissingKeys> missing;
  // Valid as long as the lock is held, and while the jobs hold their memory.
  LastKeys last;
  std::shared_ptr<SendLane> next;
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return;
    queue_.Take(
        max_works, max_bytes,
        [&](Job& job, const Range& range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return FindKeys(lane, job, range, &last, &missing);
        },
        out);
    for (const Work& work : *out) {
      ++work.job->outstanding;
      ++work.job->on_lane[lane.options().index];
    }
    lane.set_idle(out->empty());
    if (!queue_.empty()) next = TakeIdle();
  }
  if (next != nullptr) next->Kick();
  if (!missing.empty()) AskForKeys(std::move(missing));
}

std::optional<Keys> InitiatorCore::FindKeys(const SendLane& lane, Job& job, const Range& range,
                                            LastKeys* last, std::vector<MissingKeys>* missing) {
  const CopyPiece& piece = job.transfer->pieces[range.piece];
  MemoryAccess* const access = piece.local.access;
  const uint64_t channel = job.transfer->channel;
  const uint64_t offset = piece.local.offset + range.offset;
  const uint64_t address = piece.remote_address + range.offset;
  const bool same_local = last->access == access && last->local.Holds(offset);
  const bool same_remote = last->channel == channel && last->remote.Holds(address);
  const bool local = same_local || FindLocal(lane, access, offset, last);
  const bool remote = same_remote || FindRemote(lane, channel, address, last);
  if (local && remote) {
    return Keys{last->local.AddressOf(offset), last->remote.AddressOf(address), last->local.key,
                last->remote.key,
                std::min(last->local.BytesFrom(offset), last->remote.BytesFrom(address))};
  }
  // By the answers above, since a key may turn up meanwhile: what is asked for comes back.
  MissingKeys need{job.transfer,          local ? nullptr : access,     offset,
                   lane.options().device, lane.options().remote_device, {}};
  if (!remote) need.ranges = UnknownRanges(lane, job);
  missing->push_back(std::move(need));
  return std::nullopt;
}

bool InitiatorCore::FindLocal(const SendLane& lane, const MemoryAccess* access, uint64_t offset,
                              LastKeys* last) {
  const auto found = context_->devices()[lane.options().device]->local_keys->Find(*access, offset);
  if (!found) return false;
  last->access = access;
  last->local = *found;
  return true;
}

bool InitiatorCore::FindRemote(const SendLane& lane, uint64_t channel, uint64_t address,
                               LastKeys* last) {
  const auto keys = keys_.find({lane.options().remote_device, channel});
  const auto found = keys == keys_.end() ? std::nullopt : keys->second.Find(address);
  if (!found) return false;
  last->channel = channel;
  last->remote = *found;
  return true;
}

// What the job needs next and nobody has told yet; at least its next byte.
std::vector<RdmaRange> InitiatorCore::UnknownRanges(const SendLane& lane, const Job& job) {
  static const RemoteKeys kNone;
  const auto found = keys_.find({lane.options().remote_device, job.transfer->channel});
  const RemoteKeys& keys = found == keys_.end() ? kNone : found->second;
  std::vector<RdmaRange> ranges;
  const auto add = [&](uint64_t address, uint64_t length) {
    // Neighbours are asked for together.
    if (!ranges.empty() && ranges.back().address() + ranges.back().length() == address) {
      ranges.back().set_length(ranges.back().length() + length);
      return;
    }
    ranges.emplace_back();
    ranges.back().set_address(address);
    ranges.back().set_length(length);
  };
  const auto& pieces = job.transfer->pieces;
  for (const Range& range : job.again) {
    const uint64_t address = pieces[range.piece].remote_address + range.offset;
    if (ranges.size() < kMaxRanges && !keys.Find(address)) add(address, range.length);
  }
  const size_t end = std::min(pieces.size(), job.piece + kLookAhead);
  for (size_t i = job.piece; i < end && ranges.size() < kMaxRanges; ++i) {
    const uint64_t skip = i == job.piece ? job.offset : 0;
    uint64_t address = pieces[i].remote_address + skip;
    uint64_t left = pieces[i].length - skip;
    while (left > 0) {
      const auto known = keys.Find(address);
      if (!known) break;
      const uint64_t step = std::min(left, known->BytesFrom(address));
      address += step;
      left -= step;
    }
    if (left > 0) add(address, left);
  }
  return ranges;
}

void InitiatorCore::AskForKeys(std::vector<MissingKeys> missing) {
  for (MissingKeys& need : missing) {
    if (need.access != nullptr && !Registrable(*need.access)) {
      Outcome outcome;
      {
        MutexLock lock(&mutex_);
        if (Job* job = Find(need.transfer.get())) {
          MoveElsewhere(job,
                        Unsupported(absl::StrCat("RDMA cannot reach ", need.access->description(),
                                                 ", which is not mapped in this daemon")),
                        &outcome);
        }
      }
      Carry(std::move(outcome));
      continue;
    }
    if (!need.ranges.empty()) {
      RdmaMessage message;
      auto* request = message.mutable_key_request();
      request->set_channel(need.transfer->channel);
      request->set_device(need.remote_device);
      for (RdmaRange& range : need.ranges) *request->add_ranges() = std::move(range);
      {
        MutexLock lock(&mutex_);
        request->set_request(next_request_++);
        asked_[request->request()] = {{need.remote_device, need.transfer->channel},
                                      false,
                                      std::weak_ptr<TransferJob>(need.transfer)};
      }
      Send(message);
    }
    if (need.access != nullptr) {
      // While the transfer lives, so does its memory.
      context_->devices()[need.device]->local_keys->Register(
          need.access, need.offset, need.transfer,
          [self = shared_from_this(), ask_remote = !need.ranges.empty(),
           transfer = std::weak_ptr<TransferJob>(need.transfer)](absl::Status status) {
            // Then the answer to the other question lets the job go on.
            if (!status.ok() || !ask_remote) self->OnLocalKey(transfer, status);
          });
    }
  }
}

void InitiatorCore::OnLocalKey(const std::weak_ptr<TransferJob>& weak, const absl::Status& status) {
  const auto transfer = weak.lock();
  if (transfer == nullptr) return;
  Outcome outcome;
  bool news = false;
  {
    MutexLock lock(&mutex_);
    Job* job = Find(transfer.get());
    if (job == nullptr) return;
    if (status.ok()) {
      queue_.Unpark(job);
      outcome.kick = true;
    } else {
      news = NoteKeyTrouble(status);
      MoveElsewhere(job, status, &outcome);
    }
  }
  if (news) ReportKeyTrouble(status);
  Carry(std::move(outcome));
}

// Memory that cannot be registered costs RDMA for every transfer that touches it: said when it
// begins, not for each of them.
bool InitiatorCore::NoteKeyTrouble(const absl::Status& status) {
  if (ApiCodeOf(status) == ApiCode::kUnsupported) return false;  // memory that no card can reach
  const bool news = key_trouble_.empty();
  key_trouble_ = std::string(status.message());
  return news;
}

void InitiatorCore::ReportKeyTrouble(const absl::Status& status) {
  context_->Report({RdmaEvent::Severity::kWarning, "", 0,
                    absl::StrCat("memory cannot be registered for ", peer_, ": ", status.message(),
                                 has_fallback_ ? "; its transfers go over TCP" : "")});
}

void InitiatorCore::OnKeyReply(const RdmaKeyReply& reply) {
  Outcome outcome;
  bool news = false;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    const auto at = asked_.find(reply.request());
    if (at == asked_.end()) return;
    const KeyWaiters waiters = std::move(at->second);
    asked_.erase(at);
    if (!reply.error().empty() || !reply.error_detail().empty()) {
      status =
          StatusFromErrorDetail(reply.error(), reply.error_detail(), absl::StatusCode::kInternal);
    }
    for (const auto& key : reply.keys()) {
      if (!status.ok()) break;
      if (!waiters.outdated) status = keys_[waiters.of].Add(key);
    }
    const auto transfer = waiters.transfer.lock();
    Job* job = transfer == nullptr ? nullptr : Find(transfer.get());
    if (job != nullptr && status.ok()) {
      queue_.Unpark(job);
      outcome.kick = true;
    } else if (job != nullptr && reply.try_elsewhere()) {
      status = Annotate(status, "the peer");
      news = NoteKeyTrouble(status);
      MoveElsewhere(job, status, &outcome);
    } else if (job != nullptr) {
      EndJob(job, status, &outcome);
    }
  }
  if (news) ReportKeyTrouble(status);
  Carry(std::move(outcome));
}

void InitiatorCore::OnKeysRevoked(uint64_t channel) {
  MutexLock lock(&mutex_);
  std::erase_if(keys_, [channel](const auto& entry) { return entry.first.second == channel; });
  for (auto& [request, waiters] : asked_) waiters.outdated |= waiters.of.second == channel;
}

void InitiatorCore::OnSent(SendLane& lane, const std::vector<Work>& sent) {
  Outcome outcome;
  {
    MutexLock lock(&mutex_);
    for (const Work& work : sent) {
      Job* const job = work.job;
      job->transfer->bytes_done.fetch_add(work.range.length, std::memory_order_relaxed);
      --job->on_lane[lane.options().index];
      if (--job->outstanding == 0) Settle(job, &outcome);
    }
  }
  Carry(std::move(outcome));
}

// Its fate was unknown; now it is certain that it does not land any more.
void InitiatorCore::GiveBack(const Work& work, uint32_t lane, Outcome* outcome) {
  Job* const job = work.job;
  --job->on_lane[lane];
  --job->outstanding;
  if (!job->ending) {
    job->again.push_back(work.range);
    queue_.Add(job);
    outcome->kick = true;
    return;
  }
  Settle(job, outcome);
}

void InitiatorCore::OnBroken(SendLane& lane, absl::Status why, SendLane::Culprit culprit,
                             std::vector<Work> unknown) {
  const uint32_t index = lane.options().index;
  Outcome outcome;
  std::string name;
  bool news = false;
  {
    MutexLock lock(&mutex_);
    LaneSlot& slot = lanes_[index];
    slot.bytes_sent += lane.bytes_sent();
    slot.bytes_received += lane.bytes_received();
    if (lane.bytes_sent() + lane.bytes_received() > 0) slot.failures = 0;
    // Attempts that fail over and over are said once, and a link that closes says it itself.
    news = closed_.ok() && (slot.state == LaneState::kUp || slot.failures == 0);
    slot.lane.reset();
    slot.state = LaneState::kClosing;
    slot.trouble = std::string(why.message());
    if (UpLanes() == 0) trouble_ = slot.trouble;
    // It may have been woken for work that it did not take any more.
    outcome.kick = !queue_.empty();
    name = absl::StrCat("lane ", index, " ", slot.local_name, " -> ", slot.remote_name);
    if (culprit.job != nullptr && BlamesRange(culprit.status)) {
      // The keys may be out of date: ask again, but not for ever.
      keys_.erase({lane.options().remote_device, culprit.job->transfer->channel});
      if (++culprit.job->strikes >= kMaxStrikes) {
        EndJob(culprit.job, Annotate(why, name), &outcome);
      }
    } else if (culprit.job != nullptr && culprit.status == IBV_WC_RETRY_EXC_ERR &&
               ++culprit.job->strikes >= kMaxStrikes) {
      // Small packets pass, or the way comes and goes: it has waited long enough.
      MoveElsewhere(culprit.job, Annotate(why, name), &outcome);
    }
    for (const Work& work : unknown) {
      // A READ lands here, where the queue pair is gone already; a WRITE at the target.
      if (work.job->write()) {
        slot.limbo.push_back(work);
      } else {
        GiveBack(work, index, &outcome);
      }
    }
  }
  Carry(std::move(outcome));
  if (news) {
    context_->Report({RdmaEvent::Severity::kWarning,
                      context_->devices()[lane.options().device]->name, lanes_[index].end.port,
                      absl::StrCat(name, ": ", why.message())});
  }
  context_->LaneEnded();
  CloseTargetEnd(index);
}

void InitiatorCore::FlushLanesOf(const std::weak_ptr<TransferJob>& weak) {
  const auto transfer = weak.lock();
  if (transfer == nullptr) return;
  std::vector<std::shared_ptr<SendLane>> lanes;
  {
    MutexLock lock(&mutex_);
    Job* job = Find(transfer.get());
    if (job == nullptr) return;
    for (uint32_t i = 0; i < lanes_.size(); ++i) {
      if (job->on_lane[i] > 0 && lanes_[i].lane != nullptr) lanes.push_back(lanes_[i].lane);
    }
  }
  for (const auto& lane : lanes) {
    lane->Break(Failed(absl::StrCat("flushed to end transfer ", transfer->id)));
  }
}

void InitiatorCore::ArmDeadline(int64_t deadline_ns) {
  if (deadline_ns >= armed_deadline_ns_) return;
  armed_deadline_ns_ = deadline_ns;
  context_->control().Post([self = shared_from_this(), deadline_ns] {
    self->context_->control().CancelTimer(self->deadline_timer_);
    self->deadline_timer_ =
        self->context_->control().AddTimer(deadline_ns, [self] { self->OnDeadline(); });
  });
}

void InitiatorCore::OnDeadline() {
  Outcome outcome;
  {
    MutexLock lock(&mutex_);
    armed_deadline_ns_ = kNoDeadline;
    const int64_t now = MonotonicNanos();
    int64_t next = kNoDeadline;
    std::vector<Job*> late;
    for (const auto& [transfer, job] : jobs_) {
      if (job->ending) continue;
      if (transfer->deadline_ns <= now) {
        late.push_back(job.get());
      } else {
        next = std::min(next, transfer->deadline_ns);
      }
    }
    for (Job* job : late) {
      EndJob(job,
             Timeout(absl::StrCat("transfer ", job->transfer->id, " over RDMA: deadline passed",
                                  trouble_.empty() ? "" : "; ", trouble_)),
             &outcome);
    }
    if (next != kNoDeadline) ArmDeadline(next);
  }
  Carry(std::move(outcome));
}

}  // namespace hixld::rdma
