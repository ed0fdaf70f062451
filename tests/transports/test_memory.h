// Memory of every kind for tests, and a transfer one can wait for.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "proto/base/mutex.h"
#include "transports/loop/loop.h"
#include "transports/memory_access.h"
#include "transports/transport.h"

namespace hixld::testing {

// Bytes that this process has mapped.
class MappedMemory : public MemoryAccess {
 public:
  explicit MappedMemory(size_t size) : MappedMemory(std::vector<std::byte>(size)) {}
  void Read(std::vector<Slice>, Done done) override { done(absl::InternalError("mapped")); }
  void Write(std::vector<Slice>, Done done) override { done(absl::InternalError("mapped")); }
  absl::string_view description() const override { return "mapped test memory"; }
  std::byte* bytes() { return bytes_.data(); }

 private:
  explicit MappedMemory(std::vector<std::byte> bytes)
      : MemoryAccess(Kind::kMapped, bytes.data(), bytes.size()), bytes_(std::move(bytes)) {}
  std::vector<std::byte> bytes_;
};

// Bytes that only a helper thread can touch; it does so later, or when it is let.
class DistantMemory : public MemoryAccess {
 public:
  explicit DistantMemory(size_t size, Kind kind = Kind::kExecutor)
      : MemoryAccess(kind, nullptr, size), bytes_(size) {
    auto loop = Loop::Start({.name = "distant"});
    REQUIRE(loop.ok());
    loop_ = std::move(*loop);
  }
  ~DistantMemory() override { loop_.reset(); }

  void Read(std::vector<Slice> slices, Done done) override {
    Submit(
        [this, slices = std::move(slices)] {
          for (const Slice& s : slices) memcpy(s.host, bytes_.data() + s.offset, s.length);
        },
        std::move(done));
  }
  void Write(std::vector<Slice> slices, Done done) override {
    Submit(
        [this, slices = std::move(slices)] {
          for (const Slice& s : slices) memcpy(bytes_.data() + s.offset, s.host, s.length);
        },
        std::move(done));
  }
  absl::string_view description() const override { return "distant test memory"; }

  // Only while nothing is in flight.
  std::byte* bytes() { return bytes_.data(); }

  // From now on operations wait until Release.
  void Hold() {
    MutexLock lock(&mutex_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(&mutex_);
    held_ = false;
    for (auto& task : waiting_) loop_->Post(std::move(task));
    waiting_.clear();
  }
  // Blocks until `count` operations have been asked for since the start.
  void WaitForOperations(size_t count) {
    MutexLock lock(&mutex_);
    while (operations_ < count) changed_.Wait(&mutex_);
  }
  // The operation with this number (from 0) and all later ones fail.
  void FailFrom(size_t operation, absl::Status status) {
    MutexLock lock(&mutex_);
    fail_from_ = operation;
    failure_ = std::move(status);
  }

 private:
  void Submit(absl::AnyInvocable<void()> copy, Done done) {
    MutexLock lock(&mutex_);
    const bool fail = operations_++ >= fail_from_;
    changed_.SignalAll();
    Loop::Task task = [copy = std::move(copy), done = std::move(done),
                       status = fail ? failure_ : absl::OkStatus()]() mutable {
      if (status.ok()) copy();
      done(std::move(status));
    };
    if (held_) {
      waiting_.push_back(std::move(task));
    } else {
      loop_->Post(std::move(task));
    }
  }

  std::vector<std::byte> bytes_;
  std::unique_ptr<Loop> loop_;
  Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  size_t operations_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t fail_from_ ABSL_GUARDED_BY(mutex_) = SIZE_MAX;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::deque<Loop::Task> waiting_ ABSL_GUARDED_BY(mutex_);
};

inline void FillRandom(std::byte* bytes, size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const uint64_t value = random();
    memcpy(bytes + i, &value, 8);
  }
  for (; i < size; ++i) bytes[i] = static_cast<std::byte>(random());
}

// A transfer and its outcome. The job can be used again after Wait.
class TestTransfer {
 public:
  TestTransfer(CopyDirection direction, CopyPieces pieces) {
    static std::atomic<uint64_t> next_id{1};
    job_ = std::make_shared<TransferJob>();
    job_->id = next_id.fetch_add(1);
    job_->direction = direction;
    for (const CopyPiece& piece : pieces) job_->bytes += piece.length;
    job_->pieces = std::move(pieces);
    job_->done = [this](absl::Status status) {
      ++calls_;
      outcome_.set_value(std::move(status));
    };
  }
  ~TestTransfer() {
    // `done` points here; it must have been called or dropped.
    if (future_.valid()) future_.wait();
  }
  const std::shared_ptr<TransferJob>& job() const { return job_; }
  TransferJob* operator->() { return job_.get(); }
  absl::Status Wait() { return future_.get(); }
  bool ended() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  int calls() const { return calls_; }

 private:
  std::shared_ptr<TransferJob> job_;
  std::promise<absl::Status> outcome_;
  std::future<absl::Status> future_ = outcome_.get_future();
  std::atomic<int> calls_{0};
};

// Cuts [0, size) of two memories into blocks and pairs them in random order, so that neither side
// is written twice. Some bytes stay out.
inline CopyPieces RandomPieces(MemoryAccess* local, MemoryAccess* remote, uint64_t size,
                               uint64_t max_block, std::mt19937_64* random) {
  std::vector<uint64_t> lengths;
  for (uint64_t at = 0; at < size;) {
    lengths.push_back(std::min(size - at, 1 + (*random)() % max_block));
    at += lengths.back();
  }
  auto place = [&](std::vector<uint64_t>* offsets) {
    std::vector<size_t> order(lengths.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), *random);
    offsets->resize(lengths.size());
    uint64_t at = 0;
    for (const size_t i : order) {
      (*offsets)[i] = at;
      at += lengths[i];
    }
  };
  std::vector<uint64_t> local_at;
  std::vector<uint64_t> remote_at;
  place(&local_at);
  place(&remote_at);
  CopyPieces pieces;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if ((*random)() % 8 == 0) continue;
    pieces.push_back(CopyPiece{.local = {local, local_at[i]},
                               .remote = {remote, remote_at[i]},
                               .remote_address = remote_at[i],
                               .length = lengths[i]});
  }
  return pieces;
}

// What `pieces` make of `target` when they are copied from `source` one after the other.
inline std::vector<std::byte> ExpectedTarget(const CopyPieces& pieces, CopyDirection direction,
                                             const std::byte* source, const std::byte* target,
                                             size_t size) {
  std::vector<std::byte> expected(target, target + size);
  for (const CopyPiece& piece : pieces) {
    const bool read = direction == CopyDirection::kRead;
    const uint64_t from = read ? piece.remote.offset : piece.local.offset;
    const uint64_t to = read ? piece.local.offset : piece.remote.offset;
    memcpy(expected.data() + to, source + from, piece.length);
  }
  return expected;
}

}  // namespace hixld::testing
