// A place for something immutable that is replaced now and then and read all the time, without a
// lock and without touching a reference count.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"

namespace hixld::client {

// A small number of this thread, given out in turn: threads with different ones do not share
// cache lines that are counted by it.
inline uint32_t ThreadLane() {
  static std::atomic<uint32_t> next{0};
  thread_local const uint32_t lane = next.fetch_add(1, std::memory_order_relaxed);
  return lane;
}

// Readers say that they are there, then load the pointer. What is replaced waits until nobody is
// there; the last reader to go frees it, if the writer could not. All of it is sequentially
// consistent, so that a reader that a writer does not see sees the new pointer.
template <typename T>
class SnapshotCell {
  static constexpr size_t kLanes = 16;
  static constexpr size_t kCacheLine = 128;
  struct alignas(kCacheLine) Lane {
    std::atomic<uint32_t> readers{0};
  };

 public:
  explicit SnapshotCell(std::unique_ptr<const T> first) : current_(first.release()) {}
  // Nobody reads any more.
  ~SnapshotCell() { delete current_.load(std::memory_order_seq_cst); }
  SnapshotCell(const SnapshotCell&) = delete;
  SnapshotCell& operator=(const SnapshotCell&) = delete;

  // What was current when it was made, valid as long as it lives. A thread may have several.
  class Reader {
   public:
    explicit Reader(SnapshotCell* cell) : cell_(cell), lane_(&cell->lanes_[ThreadLane() % kLanes]) {
      lane_->readers.fetch_add(1, std::memory_order_seq_cst);
      value_ = cell_->current_.load(std::memory_order_seq_cst);
    }
    ~Reader() {
      if (lane_->readers.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
          cell_->retired_count_.load(std::memory_order_seq_cst) != 0) {
        cell_->Sweep();
      }
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    const T& operator*() const { return *value_; }
    const T* operator->() const { return value_; }

   private:
    SnapshotCell* const cell_;
    Lane* const lane_;
    const T* value_;
  };

  // Never from inside a Reader.
  void Replace(std::unique_ptr<const T> next) {
    {
      MutexLock lock(&mutex_);
      retired_.emplace_back(current_.exchange(next.release(), std::memory_order_seq_cst));
      retired_count_.store(retired_.size(), std::memory_order_seq_cst);
    }
    Sweep();
  }

 private:
  // Frees what was replaced, unless somebody reads.
  void Sweep() {
    std::vector<std::unique_ptr<const T>> freed;  // outside the lock
    MutexLock lock(&mutex_);
    for (const Lane& lane : lanes_) {
      if (lane.readers.load(std::memory_order_seq_cst) != 0) return;
    }
    freed.swap(retired_);
    retired_count_.store(0, std::memory_order_seq_cst);
  }

  alignas(kCacheLine) std::atomic<const T*> current_;
  std::atomic<size_t> retired_count_{0};
  Lane lanes_[kLanes];
  Mutex mutex_;
  std::vector<std::unique_ptr<const T>> retired_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
