// A transfer with memory that is not mapped: its accesses move the bytes, straight to or from the
// other side's mapping where there is one, else through a staging buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transports/local/local_copy.h"
#include "transports/local/local_transport.h"
#include "transports/loop/loop.h"
#include "transports/staging/staging_pool.h"

namespace hixld {

class RelayedCopy : public LocalCopy, public std::enable_shared_from_this<RelayedCopy> {
 public:
  RelayedCopy(Loop* loop, std::shared_ptr<StagingPool> staging, uint64_t chunk_bytes,
              std::shared_ptr<TransferJob> job);
  void Start();
  void Cancel(absl::Status reason) override;

 private:
  // What one access is asked for at once, on its way from source to target.
  struct Batch {
    MemoryAccess* source = nullptr;
    MemoryAccess* target = nullptr;
    std::vector<MemoryAccess::Slice> from;
    std::vector<MemoryAccess::Slice> to;
    StagingBuffer buffer;
    uint64_t bytes = 0;
  };

  // Everything below runs on loop_.
  void Begin();
  void Pump();
  bool StartBatch();
  void CopyMapped();
  std::shared_ptr<Batch> TakeBatch(uint64_t max_bytes);
  void StageWithBuffer(StagingBuffer buffer);
  void ReadInto(std::shared_ptr<Batch> batch);
  void WriteFrom(std::shared_ptr<Batch> batch);
  void BatchDone(uint64_t bytes, absl::Status status);
  void Stop(absl::Status reason);
  void EndWhenQuiet();
  MemoryAccess::Done OnLoop(absl::AnyInvocable<void(absl::Status)> then);
  void Advance(uint64_t bytes);
  bool at_end() const { return piece_ >= job_->pieces.size(); }

  Loop* const loop_;
  const std::shared_ptr<StagingPool> staging_;
  const uint64_t chunk_bytes_;
  std::shared_ptr<TransferJob> job_;  // gone once the transfer has ended

  size_t piece_ = 0;  // the next byte to move
  uint64_t offset_ = 0;
  uint32_t in_flight_ = 0;
  StagingPool::Ticket ticket_ = 0;  // waiting for a buffer when not 0
  Loop::TimerId timer_ = 0;
  bool pump_posted_ = false;
  bool stopped_ = false;
  absl::Status outcome_;
};

}  // namespace hixld
