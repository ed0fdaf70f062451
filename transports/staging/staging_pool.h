// A bounded set of equal buffers with a waiting queue; it belongs to one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "transports/loop/loop.h"

namespace hixld {

class StagingPool;

// One buffer; goes back to its pool when destroyed, on whichever thread that happens.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(StagingBuffer&& other) noexcept
      : pool_(std::move(other.pool_)), data_(std::exchange(other.data_, nullptr)) {}
  StagingBuffer& operator=(StagingBuffer&& other) noexcept {
    if (this != &other) {
      reset();
      pool_ = std::move(other.pool_);
      data_ = std::exchange(other.data_, nullptr);
    }
    return *this;
  }
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;
  ~StagingBuffer() { reset(); }

  bool valid() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  void reset();

 private:
  friend class StagingPool;
  StagingBuffer(std::shared_ptr<StagingPool> pool, std::byte* data)
      : pool_(std::move(pool)), data_(data) {}

  std::shared_ptr<StagingPool> pool_;
  std::byte* data_ = nullptr;
};

class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  using Ready = absl::AnyInvocable<void(StagingBuffer)>;
  using Ticket = uint64_t;

  // At most `limit_bytes` (but never less than one buffer) in buffers of `buffer_bytes` each.
  // Nothing is allocated before it is needed. `loop` must outlive the pool.
  static std::shared_ptr<StagingPool> Create(Loop* loop, uint64_t limit_bytes,
                                             uint64_t buffer_bytes);
  ~StagingPool();

  uint64_t buffer_bytes() const { return buffer_bytes_; }

  // The rest runs on the loop's thread.

  // An invalid buffer when none is free or others wait already.
  StagingBuffer TryAcquire();
  // Calls `ready` from the loop, later, once a buffer is free; first come, first served.
  Ticket Wait(Ready ready);
  // Forgets a waiter; no effect when it has been served.
  void Forget(Ticket ticket);
  size_t waiting() const { return waiters_.size(); }
  size_t in_use() const { return in_use_; }

 private:
  friend class StagingBuffer;
  struct Waiter {
    Ticket ticket;
    Ready ready;
  };

  StagingPool(Loop* loop, uint64_t limit, uint64_t buffer_bytes)
      : loop_(loop), limit_(limit), buffer_bytes_(buffer_bytes) {}
  StagingBuffer Take();
  void Release(std::byte* data);
  void ScheduleServe();
  void Serve();

  Loop* const loop_;
  const uint64_t limit_;  // buffers
  const uint64_t buffer_bytes_;
  std::vector<std::byte*> free_;
  std::deque<Waiter> waiters_;
  Ticket next_ticket_ = 1;
  size_t in_use_ = 0;
  bool serving_ = false;
};

}  // namespace hixld
