// Where the body of a frame goes: straight into mapped memory, through staging into any other.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "transports/loop/loop.h"
#include "transports/staging/staging_pool.h"
#include "transports/tcp/context.h"
#include "transports/transport.h"

namespace hixld {

// Belongs to one loop; lives as long as something may still write through it, so whoever wants to
// know when that is over lets it hold a Fence.
class BodyReceiver : public std::enable_shared_from_this<BodyReceiver> {
 public:
  BodyReceiver(Loop* loop, std::shared_ptr<StagingPool> pool)
      : loop_(loop), pool_(std::move(pool)) {}
  ~BodyReceiver();

  // Makes it as new; only when nobody else refers to it.
  void Reset();
  void Add(const MemoryRef& ref, uint64_t length);
  void Pin(std::shared_ptr<const void> pin);
  void Hold(Fence fence) { fences_.push_back(std::move(fence)); }

  // Places for the next bytes, at most `limit`; their sum goes to *bytes. 0 places: a staging
  // buffer must come first, and `resume` is called when it is there.
  size_t Places(iovec* out, size_t max, uint64_t limit, uint64_t* bytes);
  void set_resume(absl::AnyInvocable<void()> resume) { resume_ = std::move(resume); }
  // `bytes` have been put where Places said.
  void Received(uint64_t bytes);
  // Passes on what is staged although the buffer is not full.
  void Flush();

  uint64_t bytes_left() const { return left_; }
  // Writes to memory that is not mapped are under way.
  bool busy() const { return writes_ > 0; }
  // The first write that failed.
  const absl::Status& status() const { return status_; }
  // Calls `quiet` as soon as nothing is under way, perhaps at once.
  void WhenQuiet(absl::AnyInvocable<void()> quiet);
  // Nothing more will be received.
  void Abandon();

 private:
  struct Segment {
    MemoryAccess* access = nullptr;  // nullptr when mapped
    std::byte* host = nullptr;
    uint64_t offset = 0;
    uint64_t length = 0;
  };
  struct Write {
    MemoryAccess* access;
    std::vector<MemoryAccess::Slice> slices;
  };

  bool HaveBuffer();
  void Stage(const Segment& segment, uint64_t length);
  void WriteDone(absl::Status status);

  Loop* const loop_;
  const std::shared_ptr<StagingPool> pool_;
  std::vector<Segment> segments_;
  std::vector<std::shared_ptr<const void>> pins_;
  std::vector<Fence> fences_;
  size_t at_ = 0;  // the next byte
  uint64_t offset_ = 0;
  uint64_t left_ = 0;

  StagingBuffer buffer_;
  uint64_t filled_ = 0;
  std::vector<Write> staged_;  // what buffer_ holds
  StagingPool::Ticket ticket_ = 0;
  absl::AnyInvocable<void()> resume_;

  uint32_t writes_ = 0;
  absl::Status status_;
  absl::AnyInvocable<void()> quiet_;
};

}  // namespace hixld
