// Carries transfers over the session's shared-memory rings; what they cannot take goes to gRPC.
#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/known_regions.h"
#include "client/cpp/log.h"
#include "client/cpp/submitter.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/ring/producer.h"

namespace hixld::client {
namespace {

// The daemon answers TIMEOUT only when no byte can land any more, and one that hangs may still go
// on. Until it answers or ends, nothing can be told; after this time that is said aloud.
constexpr int64_t kAnswerGrace = 10 * kNanosPerSecond;
constexpr int64_t kSubmitTimeout = 10 * kNanosPerSecond;
constexpr int64_t kMinSpinNs = 2'000;
constexpr int64_t kMaxSpinNs = 200'000;
// Of larger transfers one can tell how long they will take. While the long ones among them are
// moved, the cores are better spent on moving them: their waiter sleeps for a part of the time.
constexpr uint64_t kPacedBytes = 256 << 10;
constexpr int64_t kLongNs = 500'000;
constexpr int64_t kSleepPercent = 60;

// Ids of transfers in the rings; the daemon's own ids, which gRPC uses, count up from 1.
constexpr uint64_t kRingBit = uint64_t{1} << 63;

absl::Span<const ring::Descriptor> DescriptorsOf(const BatchView& batch,
                                                 std::vector<ring::Descriptor>* copy) {
  const auto* first = batch.local_addresses;
  if (batch.stride == sizeof(ring::Descriptor) && batch.remote_addresses == first + 1 &&
      batch.lengths == first + 2) {
    return {reinterpret_cast<const ring::Descriptor*>(first), batch.count};
  }
  copy->resize(batch.count);
  for (size_t i = 0; i < batch.count; ++i) {
    (*copy)[i] = {batch.local(i), batch.remote(i), batch.length(i)};
  }
  return *copy;
}

absl::Status StatusOf(const ring::Producer::Result& result) {
  if (result.state == ring::kCompleted) return absl::OkStatus();
  const auto code = result.code == 0 ? ApiCode::kFailed : static_cast<ApiCode>(result.code);
  return MakeError(code, result.text);
}

// Spinning pays only where the daemon's worker has a core of its own.
// Asking for the cores takes system calls: once per submitter, not per transfer.
bool HasCoresToSpin() { return std::thread::hardware_concurrency() > 1; }

class RingSubmitter : public Submitter {
 public:
  RingSubmitter(std::shared_ptr<Session> session, std::unique_ptr<Submitter> fallback)
      : session_(std::move(session)),
        fallback_(std::move(fallback)),
        may_spin_(HasCoresToSpin()),
        spin_ns_(may_spin_ ? kMaxSpinNs / 2 : 0) {}

  absl::Status Transfer(const TransferCall& call) override {
    ring::Producer* const rings = call.channel_id == 0 ? nullptr : session_->rings();
    if (rings == nullptr) return fallback_->Transfer(call);
    const int64_t deadline = MonotonicNanos() + call.timeout_ms * kNanosPerMilli;
    HIXLD_ASSIGN_OR_RETURN(const uint32_t slot, Push(rings, call, /*verdict=*/false, deadline));
    if (!Wait(rings, slot, call.batch, deadline + kAnswerGrace)) {
      if (session_->alive()) {
        Log(LogLevel::kWarning, absl::StrCat("hixld does not answer for a transfer with ",
                                             call.remote_engine, "; waiting for it or its end"));
      }
      if (!rings->Wait(slot, 0, kNoDeadline)) {
        rings->Release(slot);
        return SessionLost(session_->lost_reason());
      }
    }
    const ring::Producer::Result result = rings->Read(slot);
    rings->Release(slot);
    // The end of the session ends what it ran, too.
    if (result.state != ring::kCompleted && !session_->alive()) {
      return SessionLost(session_->lost_reason());
    }
    return StatusOf(result);
  }

  absl::StatusOr<uint64_t> Submit(const TransferCall& call) override {
    ring::Producer* const rings = call.channel_id == 0 ? nullptr : session_->rings();
    if (rings == nullptr) return fallback_->Submit(call);
    const uint32_t gone = rings->RegionsGone();
    const bool known = known_.Hold(call.channel_id, call.batch, gone);
    const int64_t deadline = MonotonicNanos() + kSubmitTimeout;
    const auto slot = Push(rings, call, /*verdict=*/!known, deadline);
    // More transfers than slots: gRPC has room.
    if (ApiCodeOf(slot.status()) == ApiCode::kResourceExhausted) return fallback_->Submit(call);
    HIXLD_RETURN_IF_ERROR(slot.status());
    if (!known) HIXLD_RETURN_IF_ERROR(AwaitVerdict(rings, *slot, call.channel_id, gone, deadline));
    return kRingBit | *slot;
  }

  absl::StatusOr<TransferReports> Query(uint64_t engine_handle,
                                        absl::Span<const uint64_t> transfer_ids) override {
    TransferReports reports(transfer_ids.size());
    std::vector<uint64_t> others;
    std::vector<size_t> places;
    for (size_t i = 0; i < transfer_ids.size(); ++i) {
      if ((transfer_ids[i] & kRingBit) != 0) {
        reports[i] = Look(transfer_ids[i]);
      } else {
        others.push_back(transfer_ids[i]);
        places.push_back(i);
      }
    }
    if (others.empty()) return reports;
    HIXLD_ASSIGN_OR_RETURN(auto answers, fallback_->Query(engine_handle, others));
    for (size_t i = 0; i < places.size(); ++i) reports[places[i]] = std::move(answers[i]);
    return reports;
  }

  void Forget(uint64_t transfer_id) override {
    if ((transfer_id & kRingBit) == 0) return fallback_->Forget(transfer_id);
    session_->rings()->Forget(static_cast<uint32_t>(transfer_id));
  }

 private:
  // What is refused is refused now; what ran and failed is told by its status. A verdict that is
  // late, since the daemon is connecting, is not waited for beyond the deadline.
  absl::Status AwaitVerdict(ring::Producer* rings, uint32_t slot, uint64_t channel, uint32_t gone,
                            int64_t deadline) {
    if (!rings->WaitVerdict(slot, may_spin_ ? kMaxSpinNs / 4 : 0, deadline))
      return absl::OkStatus();
    known_.Learn(channel, rings->ReadExtents(slot), gone);
    if (rings->State(slot) != ring::kFailed) return absl::OkStatus();
    const ring::Producer::Result result = rings->Read(slot);
    if (result.code == static_cast<uint32_t>(ApiCode::kFailed)) return absl::OkStatus();
    rings->Release(slot);
    return StatusOf(result);
  }

  absl::StatusOr<uint32_t> Push(ring::Producer* rings, const TransferCall& call, bool verdict,
                                int64_t deadline) {
    std::vector<ring::Descriptor> copy;
    ring::Producer::Request request = {
        .engine = call.engine_handle,
        .channel = call.channel_id,
        .op = call.direction == TransferDirection::kRead ? ring::Op::kRead : ring::Op::kWrite,
        .timeout_ns = static_cast<uint64_t>(call.timeout_ms) * kNanosPerMilli,
        .verdict = verdict,
        .room_deadline_ns = deadline};
    if (const BlockView* const blocks = call.batch.blocks) {
      request.tables = blocks->tables;
      request.local_blocks = blocks->local_blocks;
      request.remote_blocks = blocks->remote_blocks;
    } else {
      request.descriptors = DescriptorsOf(call.batch, &copy);
    }
    const auto slot = rings->Submit(request);
    if (slot.status().code() == absl::StatusCode::kUnavailable) {
      return SessionLost(session_->lost_reason());
    }
    return slot;
  }

  // Looks for as long as it has paid lately, then sleeps.
  bool Wait(ring::Producer* rings, uint32_t slot, const BatchView& batch, int64_t deadline) {
    if (!may_spin_) return rings->Wait(slot, 0, deadline);
    const uint64_t bytes = batch.bytes();
    if (bytes > kPacedBytes) return WaitPaced(rings, slot, bytes, deadline);
    const int64_t spin = spin_ns_.load(std::memory_order_relaxed);
    const int64_t start = MonotonicNanos();
    const bool ended = rings->Wait(slot, spin, deadline);
    const int64_t took = MonotonicNanos() - start;
    const int64_t next = took < kMaxSpinNs ? spin * 2 : spin / 2;
    spin_ns_.store(std::clamp(next, kMinSpinNs, kMaxSpinNs), std::memory_order_relaxed);
    return ended;
  }

  bool WaitPaced(ring::Producer* rings, uint32_t slot, uint64_t bytes, int64_t deadline) {
    const int64_t kib = static_cast<int64_t>(bytes >> 10);
    const int64_t pace = ns_per_kib_.load(std::memory_order_relaxed);
    const int64_t start = MonotonicNanos();
    const int64_t expected = pace * kib;
    bool ended;
    if (expected < kLongNs) {
      ended = rings->Wait(slot, kLongNs, deadline);
    } else {
      const int64_t look = start + expected * kSleepPercent / 100;
      ended =
          rings->Wait(slot, 0, std::min(look, deadline)) || rings->Wait(slot, kMaxSpinNs, deadline);
    }
    const int64_t took = MonotonicNanos() - start;
    // A quarter of the way towards what it was this time.
    ns_per_kib_.store(pace + (took / kib - pace) / 4, std::memory_order_relaxed);
    return ended;
  }

  TransferReport Look(uint64_t id) {
    const auto slot = static_cast<uint32_t>(id);
    ring::Producer* const rings = session_->rings();
    TransferReport report{.transfer_id = id};
    const ring::SlotState state = rings->State(slot);
    if (state < ring::kCompleted) return report;
    const ring::Producer::Result result = rings->Read(slot);
    rings->Release(slot);
    report.outcome =
        state == ring::kCompleted ? TransferOutcome::kCompleted : TransferOutcome::kFailed;
    report.message = result.text;
    return report;
  }

  const std::shared_ptr<Session> session_;
  const std::unique_ptr<Submitter> fallback_;
  const bool may_spin_;
  KnownRegions known_;
  std::atomic<int64_t> spin_ns_;
  // What large ones have taken lately; waiters of different peers share it.
  std::atomic<int64_t> ns_per_kib_{0};
};

}  // namespace

std::unique_ptr<Submitter> MakeRingSubmitter(std::shared_ptr<Session> session,
                                             std::unique_ptr<Submitter> fallback) {
  return std::make_unique<RingSubmitter>(std::move(session), std::move(fallback));
}

}  // namespace hixld::client
