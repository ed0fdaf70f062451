// A transfer whose memory is mapped on both sides: workers take chunks of it through one cursor.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "transports/local/local_copy.h"
#include "transports/local/local_transport.h"
#include "transports/loop/loop.h"

namespace hixld {

class MappedCopy : public LocalCopy, public std::enable_shared_from_this<MappedCopy> {
 public:
  MappedCopy(WorkerSet* workers, const LocalTransportOptions& options,
             std::shared_ptr<TransferJob> job);
  void Start();
  void Cancel(absl::Status reason) override;

 private:
  void Join(Loop& loop);
  void CopyOn(Loop& loop);
  bool CopyNextChunk();
  void CopyRange(uint64_t begin, uint64_t end);
  void CopyPart(const CopyPiece& piece, uint64_t offset, uint64_t length) const;
  void Finished(uint64_t bytes);
  bool DropRest(absl::FunctionRef<absl::Status()> reason);
  void Finish();

  static constexpr size_t kCacheLine = 64;

  WorkerSet* const workers_;
  Loop* home_ = nullptr;              // where the channel belongs to
  std::shared_ptr<TransferJob> job_;  // gone once the transfer has ended
  const int64_t deadline_ns_;
  const uint64_t total_;
  uint64_t chunk_ = 0;
  uint32_t joining_ = 1;  // workers
  bool streaming_ = false;
  // Some piece's source and target overlap: one worker copies in order.
  bool overlapping_ = false;
  // Bytes up to the end of each piece; empty when one chunk is all.
  std::vector<uint64_t> ends_;
  absl::Status outcome_;

  // The next byte that nobody has taken; from kStopped on, nothing can be taken any more.
  // Padded instead of aligned: memory of a larger alignment than usual is slow to get.
  [[maybe_unused]] char before_cursor_[kCacheLine];
  std::atomic<uint64_t> cursor_{0};
  [[maybe_unused]] char before_left_[kCacheLine - sizeof(cursor_)];
  // Bytes that are neither copied nor dropped; whoever takes it to 0 ends the transfer.
  std::atomic<uint64_t> left_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace hixld
