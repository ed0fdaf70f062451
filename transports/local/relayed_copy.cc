#include "transports/local/relayed_copy.h"

#include <algorithm>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/copy_bytes.h"

namespace hixld {
namespace {

constexpr uint32_t kMaxInFlight = 4;  // batches of one transfer
constexpr size_t kMaxSlices = 512;    // per batch
constexpr uint64_t kMaxBatchBytes = 4ULL << 20;

}  // namespace

RelayedCopy::RelayedCopy(Loop* loop, std::shared_ptr<StagingPool> staging, uint64_t chunk_bytes,
                         std::shared_ptr<TransferJob> job)
    : loop_(loop), staging_(std::move(staging)), chunk_bytes_(chunk_bytes), job_(std::move(job)) {}

void RelayedCopy::Start() {
  loop_->Post([self = shared_from_this()] { self->Begin(); });
}

void RelayedCopy::Cancel(absl::Status reason) {
  loop_->Post([self = shared_from_this(), reason = std::move(reason)]() mutable {
    self->Stop(std::move(reason));
  });
}

void RelayedCopy::Begin() {
  if (job_ == nullptr) return;  // cancelled first
  if (job_->deadline_ns != kNoDeadline) {
    timer_ = loop_->AddTimer(job_->deadline_ns, [self = shared_from_this()] {
      self->timer_ = 0;
      if (self->job_ != nullptr) self->Stop(DeadlinePassed(*self->job_));
    });
  }
  Pump();
}

void RelayedCopy::Pump() {
  // One that was posted may come after the end, which another's answer has brought.
  if (job_ == nullptr) return;
  pump_posted_ = false;
  while (!stopped_ && !at_end() && ticket_ == 0 && !pump_posted_ && in_flight_ < kMaxInFlight) {
    if (!StartBatch()) break;
  }
  EndWhenQuiet();
}

// Starts moving the next bytes. Returns false when it has to wait for a buffer.
bool RelayedCopy::StartBatch() {
  const CopyPiece& piece = job_->pieces[piece_];
  const bool from_mapped = SourceOf(piece, job_->direction).access->mapped() != nullptr;
  const bool to_mapped = TargetOf(piece, job_->direction).access->mapped() != nullptr;
  if (from_mapped && to_mapped) {
    CopyMapped();
  } else if (to_mapped) {
    ReadInto(TakeBatch(kMaxBatchBytes));
  } else if (from_mapped) {
    WriteFrom(TakeBatch(kMaxBatchBytes));
  } else if (StagingBuffer buffer = staging_->TryAcquire(); buffer.valid()) {
    StageWithBuffer(std::move(buffer));
  } else {
    ticket_ = staging_->Wait([self = shared_from_this()](StagingBuffer granted) {
      self->ticket_ = 0;
      if (self->stopped_) return;
      self->StageWithBuffer(std::move(granted));
      self->Pump();
    });
    return false;
  }
  return true;
}

// About one chunk with memmove; the rest of the loop's work comes before the next one.
void RelayedCopy::CopyMapped() {
  for (uint64_t copied = 0; copied < chunk_bytes_ && !at_end();) {
    const CopyPiece& piece = job_->pieces[piece_];
    const std::byte* source = MappedAt(SourceOf(piece, job_->direction));
    std::byte* target = MappedAt(TargetOf(piece, job_->direction));
    if (source == nullptr || target == nullptr) break;
    const uint64_t length = std::min(piece.length - offset_, chunk_bytes_ - copied);
    CopyBytes(target + offset_, source + offset_, length, false);
    job_->bytes_done.fetch_add(length, std::memory_order_relaxed);
    copied += length;
    Advance(length);
  }
  pump_posted_ = true;
  loop_->Post([self = shared_from_this()] { self->Pump(); });
}

void RelayedCopy::Advance(uint64_t bytes) {
  offset_ += bytes;
  while (!at_end() && offset_ >= job_->pieces[piece_].length) {
    offset_ -= job_->pieces[piece_].length;
    ++piece_;
  }
}

// Takes the following pieces as long as they go from the same access to the same access. The
// mapped side's address becomes the other side's host pointer; with no mapped side the caller
// fills the host pointers in.
std::shared_ptr<RelayedCopy::Batch> RelayedCopy::TakeBatch(uint64_t max_bytes) {
  auto batch = std::make_shared<Batch>();
  batch->source = SourceOf(job_->pieces[piece_], job_->direction).access;
  batch->target = TargetOf(job_->pieces[piece_], job_->direction).access;
  while (!at_end() && batch->bytes < max_bytes && batch->from.size() < kMaxSlices) {
    const CopyPiece& piece = job_->pieces[piece_];
    const MemoryRef& source = SourceOf(piece, job_->direction);
    const MemoryRef& target = TargetOf(piece, job_->direction);
    if (source.access != batch->source || target.access != batch->target) break;
    const uint64_t length = std::min(piece.length - offset_, max_bytes - batch->bytes);
    if (length > 0) {
      std::byte* from = MappedAt(source);
      std::byte* to = MappedAt(target);
      batch->from.push_back({source.offset + offset_, to == nullptr ? to : to + offset_, length});
      batch->to.push_back(
          {target.offset + offset_, from == nullptr ? from : from + offset_, length});
      batch->bytes += length;
    }
    Advance(length);
  }
  return batch;
}

void RelayedCopy::StageWithBuffer(StagingBuffer buffer) {
  std::shared_ptr<Batch> batch = TakeBatch(staging_->buffer_bytes());
  std::byte* at = buffer.data();
  for (size_t i = 0; i < batch->from.size(); ++i) {
    batch->from[i].host = at;
    batch->to[i].host = at;
    at += batch->from[i].length;
  }
  batch->buffer = std::move(buffer);
  ReadInto(std::move(batch));
}

void RelayedCopy::ReadInto(std::shared_ptr<Batch> batch) {
  ++in_flight_;
  MemoryAccess* source = batch->source;
  auto slices = std::move(batch->from);
  source->Read(std::move(slices), OnLoop([this, batch](absl::Status status) {
                 if (status.ok() && !stopped_ && batch->buffer.valid()) {
                   WriteFrom(batch);
                   --in_flight_;
                 } else {
                   BatchDone(batch->bytes, std::move(status));
                 }
               }));
}

void RelayedCopy::WriteFrom(std::shared_ptr<Batch> batch) {
  ++in_flight_;
  MemoryAccess* target = batch->target;
  auto slices = std::move(batch->to);
  target->Write(std::move(slices), OnLoop([this, batch](absl::Status status) {
                  batch->buffer.reset();
                  BatchDone(batch->bytes, std::move(status));
                }));
}

// Accesses answer on any thread, perhaps at once.
MemoryAccess::Done RelayedCopy::OnLoop(absl::AnyInvocable<void(absl::Status)> then) {
  return [self = shared_from_this(), then = std::move(then)](absl::Status status) mutable {
    Loop* loop = self->loop_;
    loop->Post([self = std::move(self), then = std::move(then),
                status = std::move(status)]() mutable { then(std::move(status)); });
  };
}

void RelayedCopy::BatchDone(uint64_t bytes, absl::Status status) {
  --in_flight_;
  if (!status.ok()) {
    Stop(std::move(status));
    return;
  }
  job_->bytes_done.fetch_add(bytes, std::memory_order_relaxed);
  Pump();
}

void RelayedCopy::Stop(absl::Status reason) {
  if (job_ == nullptr) return;
  if (!stopped_) {
    stopped_ = true;
    outcome_ = std::move(reason);
    if (ticket_ != 0) staging_->Forget(std::exchange(ticket_, 0));
  }
  EndWhenQuiet();
}

// The transfer ends when nothing can move any more.
void RelayedCopy::EndWhenQuiet() {
  if (job_ == nullptr || in_flight_ > 0) return;
  if (!stopped_ && !at_end()) return;
  if (timer_ != 0) loop_->CancelTimer(timer_);
  EndTransfer(std::move(job_), std::move(outcome_));
}

}  // namespace hixld
