#include "transports/local/mapped_copy.h"

#include <algorithm>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/copy_bytes.h"

namespace hixld {
namespace {

constexpr uint64_t kStopped = 1ULL << 63;
// Copying many tiny pieces costs by the piece, so a chunk holds about this many at most.
constexpr uint64_t kMaxPiecesPerChunk = 4096;
// From here on a transfer is larger than what caches give back soon.
constexpr uint64_t kStreamingBytes = 8ULL << 20;

bool Overlap(const std::byte* a, const std::byte* b, uint64_t length) {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return x < y + length && y < x + length;
}

}  // namespace

MappedCopy::MappedCopy(WorkerSet* workers, const LocalTransportOptions& options,
                       std::shared_ptr<TransferJob> job)
    : workers_(workers),
      job_(std::move(job)),
      deadline_ns_(job_->deadline_ns),
      total_(job_->bytes),
      left_(total_) {
  const CopyPieces& pieces = job_->pieces;
  for (const CopyPiece& piece : pieces) {
    overlapping_ |= Overlap(MappedAt(piece.local), MappedAt(piece.remote), piece.length);
  }
  const uint64_t average = total_ / std::max<size_t>(1, pieces.size());
  chunk_ = std::clamp<uint64_t>(average * kMaxPiecesPerChunk, 4096, options.chunk_bytes);
  streaming_ = total_ >= kStreamingBytes;
  if (total_ <= chunk_) return;
  ends_.reserve(pieces.size());
  uint64_t end = 0;
  for (const CopyPiece& piece : pieces) ends_.push_back(end += piece.length);
  if (total_ >= options.split_bytes && !overlapping_) {
    joining_ =
        static_cast<uint32_t>(std::min<uint64_t>(workers_->size(), (total_ + chunk_ - 1) / chunk_));
  }
}

void MappedCopy::Start() {
  home_ = &workers_->at(job_->worker);
  // The home worker last: it may be this thread, and the others must be woken before it copies.
  for (uint32_t i = 1; i < joining_; ++i) Join(workers_->at(job_->worker + joining_ - i));
  // Captures so little that the task needs no memory of its own.
  home_->Post([self = shared_from_this()] { self->CopyOn(*self->home_); });
}

void MappedCopy::Join(Loop& loop) {
  loop.Post([self = shared_from_this(), &loop] { self->CopyOn(loop); });
}

void MappedCopy::CopyOn(Loop& loop) {
  if (!CopyNextChunk()) return;
  loop.AddStep([self = shared_from_this()] { return self->CopyNextChunk(); });
}

// Returns whether there may be more.
bool MappedCopy::CopyNextChunk() {
  if (total_ == 0) {
    Finish();
    return false;
  }
  if (cursor_.load(std::memory_order_relaxed) >= total_) return false;
  if (deadline_ns_ != kNoDeadline && MonotonicNanos() >= deadline_ns_) {
    if (DropRest([this] { return DeadlinePassed(*job_); })) Finish();
    return false;
  }
  const uint64_t begin = cursor_.fetch_add(chunk_, std::memory_order_relaxed);
  if (begin >= total_) return false;
  const uint64_t end = std::min(begin + chunk_, total_);
  // Until its bytes are counted the chunk keeps the transfer open, so job_ is there.
  CopyRange(begin, end);
  Finished(end - begin);
  return end < total_;
}

void MappedCopy::CopyRange(uint64_t begin, uint64_t end) {
  const CopyPieces& pieces = job_->pieces;
  size_t index = 0;
  uint64_t offset = 0;
  if (!ends_.empty()) {
    index = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    offset = begin - (index == 0 ? 0 : ends_[index - 1]);
  }
  for (uint64_t at = begin; at < end; ++index, offset = 0) {
    const uint64_t length = std::min(pieces[index].length - offset, end - at);
    if (at + length < end) {
      const CopyPiece& next = pieces[index + 1];
      PrefetchBlock(MappedAt(TargetOf(next, job_->direction)),
                    MappedAt(SourceOf(next, job_->direction)), next.length);
    }
    CopyPart(pieces[index], offset, length);
    at += length;
  }
}

void MappedCopy::CopyPart(const CopyPiece& piece, uint64_t offset, uint64_t length) const {
  const std::byte* source = MappedAt(SourceOf(piece, job_->direction));
  std::byte* target = MappedAt(TargetOf(piece, job_->direction));
  // A move upwards within the same bytes must go from the end to the start.
  if (overlapping_ && target > source && Overlap(target, source, piece.length)) {
    offset = piece.length - offset - length;
  }
  CopyBytes(target + offset, source + offset, length, streaming_);
}

void MappedCopy::Finished(uint64_t bytes) {
  job_->bytes_done.fetch_add(bytes, std::memory_order_relaxed);
  // Releases what was copied or written to outcome_, and acquires what the others did.
  if (left_.fetch_sub(bytes, std::memory_order_acq_rel) == bytes) Finish();
}

void MappedCopy::Cancel(absl::Status reason) {
  if (!DropRest([&reason] { return std::move(reason); })) return;
  // Not on the caller's thread, which may hold a lock that `done` needs.
  workers_->at(0).Post([self = shared_from_this()] { self->Finish(); });
}

// Lets nobody take a chunk any more. Returns true when that was the last thing to wait for, and
// the caller must finish.
bool MappedCopy::DropRest(absl::FunctionRef<absl::Status()> reason) {
  if (cancelled_.exchange(true, std::memory_order_acq_rel)) return false;
  const uint64_t taken = cursor_.exchange(kStopped, std::memory_order_acq_rel);
  if (taken >= total_) return false;  // all of it is copied or being copied: it ends well
  outcome_ = reason();
  const uint64_t dropped = total_ - taken;
  return left_.fetch_sub(dropped, std::memory_order_acq_rel) == dropped;
}

void MappedCopy::Finish() { EndTransfer(std::move(job_), std::move(outcome_)); }

}  // namespace hixld
