// The body of a frame whose memory is not all mapped: brought into a staging buffer first.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "transports/loop/loop.h"
#include "transports/staging/staging_pool.h"
#include "transports/tcp/context.h"
#include "transports/tcp/out_queue.h"
#include "transports/transport.h"

namespace hixld {

// Belongs to one loop. Keeps itself alive while reads are under way; whoever wants to know when
// that is over lets it hold a Fence.
class BodyGatherer : public std::enable_shared_from_this<BodyGatherer> {
 public:
  struct Segment {
    MemoryRef memory;
    uint64_t length = 0;
  };
  using Ready = absl::AnyInvocable<void(absl::Status)>;

  BodyGatherer(Loop* loop, std::shared_ptr<StagingPool> pool)
      : loop_(loop), pool_(std::move(pool)) {}
  ~BodyGatherer();

  // The segments that are not mapped must fit one staging buffer together.
  void Add(const MemoryRef& memory, uint64_t length);
  void Pin(std::shared_ptr<const void> pin);
  void Hold(Fence fence) { fences_.push_back(std::move(fence)); }
  // Calls `ready` on the loop, later, once all bytes are there or one read has failed.
  void Start(Ready ready);
  // Hands buffer, body and pins to `frame`; only in or after `ready`.
  void MoveTo(OutFrame* frame);
  // `ready` is never called from now on; the last read under way lets the fences go.
  void Abandon();

 private:
  void ReadAll(StagingBuffer buffer);
  void ReadDone(absl::Status status);

  Loop* const loop_;
  const std::shared_ptr<StagingPool> pool_;
  std::vector<Segment> segments_;
  std::vector<std::shared_ptr<const void>> pins_;
  std::vector<Fence> fences_;
  StagingBuffer buffer_;
  StagingPool::Ticket ticket_ = 0;
  uint32_t reads_ = 0;
  absl::Status status_;
  Ready ready_;
};

}  // namespace hixld
