#include "transports/staging/staging_pool.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace hixld {
namespace {

constexpr size_t kAlignment = 4096;
// Buffers that an idle pool keeps for the next burst.
constexpr size_t kKeptFree = 2;

}  // namespace

void StagingBuffer::reset() {
  if (data_ == nullptr) return;
  std::shared_ptr<StagingPool> pool = std::move(pool_);
  std::byte* data = std::exchange(data_, nullptr);
  Loop* loop = pool->loop_;
  loop->Dispatch([pool = std::move(pool), data] { pool->Release(data); });
}

std::shared_ptr<StagingPool> StagingPool::Create(Loop* loop, uint64_t limit_bytes,
                                                 uint64_t buffer_bytes) {
  buffer_bytes = std::max<uint64_t>(kAlignment, buffer_bytes / kAlignment * kAlignment);
  const uint64_t limit = std::max<uint64_t>(1, limit_bytes / buffer_bytes);
  return std::shared_ptr<StagingPool>(new StagingPool(loop, limit, buffer_bytes));
}

StagingPool::~StagingPool() {
  for (std::byte* data : free_) std::free(data);
}

StagingBuffer StagingPool::Take() {
  std::byte* data = nullptr;
  if (!free_.empty()) {
    data = free_.back();
    free_.pop_back();
  } else {
    data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, buffer_bytes_));
    if (data == nullptr) throw std::bad_alloc();
  }
  ++in_use_;
  return StagingBuffer(shared_from_this(), data);
}

StagingBuffer StagingPool::TryAcquire() {
  if (in_use_ >= limit_ || !waiters_.empty()) return StagingBuffer();
  return Take();
}

StagingPool::Ticket StagingPool::Wait(Ready ready) {
  const Ticket ticket = next_ticket_++;
  waiters_.push_back(Waiter{ticket, std::move(ready)});
  ScheduleServe();
  return ticket;
}

void StagingPool::Forget(Ticket ticket) {
  const auto found = std::find_if(waiters_.begin(), waiters_.end(),
                                  [ticket](const Waiter& w) { return w.ticket == ticket; });
  if (found == waiters_.end()) return;
  // Destroyed after the queue is consistent: captures may come back here.
  const Ready dropped = std::move(found->ready);
  waiters_.erase(found);
}

void StagingPool::Release(std::byte* data) {
  --in_use_;
  if (free_.size() < kKeptFree || !waiters_.empty()) {
    free_.push_back(data);
  } else {
    std::free(data);
  }
  ScheduleServe();
}

// Waiters run from the loop, not from within whatever released the buffer.
void StagingPool::ScheduleServe() {
  if (serving_ || waiters_.empty() || in_use_ >= limit_) return;
  serving_ = true;
  loop_->Post([self = shared_from_this()] { self->Serve(); });
}

void StagingPool::Serve() {
  serving_ = false;
  while (!waiters_.empty() && in_use_ < limit_) {
    Ready ready = std::move(waiters_.front().ready);
    waiters_.pop_front();
    ready(Take());
  }
}

}  // namespace hixld
