// What all links of one TCP transport share, and small tools of both ends.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "proto/base/mutex.h"
#include "transports/loop/loop.h"
#include "transports/staging/staging_pool.h"
#include "transports/tcp/tcp_transport.h"

namespace hixld {

// More lanes than this per link are of no use; it bounds what a peer can open.
constexpr uint32_t kMaxLanes = 64;

struct TcpContext {
  TcpContext(WorkerSet* worker_set, TcpOptions tcp_options)
      : workers(worker_set), options(std::move(tcp_options)) {
    // Bytes that wait for the network and bytes that come from it never wait for each other's
    // buffers: two daemons that send to each other would stop for ever.
    const uint64_t half = options.staging_bytes / 2;
    staging_chunk = std::clamp<uint64_t>(half / 8, 64 << 10, 1 << 20) / 4096 * 4096;
    for (uint32_t i = 0; i < workers->size(); ++i) {
      inbound.push_back(StagingPool::Create(&workers->at(i), half, staging_chunk));
      outbound.push_back(StagingPool::Create(&workers->at(i), half, staging_chunk));
    }
  }

  WorkerSet* const workers;
  const TcpOptions options;
  uint64_t staging_chunk = 0;
  std::vector<std::shared_ptr<StagingPool>> inbound;   // per worker
  std::vector<std::shared_ptr<StagingPool>> outbound;  // per worker

  std::atomic<uint64_t> malformed_frames{0};
  std::atomic<uint64_t> refused_lanes{0};
  std::atomic<uint64_t> cancelled_transfers{0};
  std::atomic<uint64_t> resent_stripes{0};
};

// Runs its function when the last holder lets go: everyone who may still touch a thing holds one.
class FenceToken {
 public:
  explicit FenceToken(absl::AnyInvocable<void()> released) : released_(std::move(released)) {}
  ~FenceToken() { released_(); }
  FenceToken(const FenceToken&) = delete;
  FenceToken& operator=(const FenceToken&) = delete;

 private:
  absl::AnyInvocable<void()> released_;
};
using Fence = std::shared_ptr<FenceToken>;

// `released` runs on `loop`, never on the thread that lets go last.
inline Fence MakeFence(Loop* loop, absl::AnyInvocable<void()> released) {
  return std::make_shared<FenceToken>(
      [loop, released = std::move(released)]() mutable { loop->Post(std::move(released)); });
}

// The control connection, until the link that was given it is destroyed.
class ControlGate {
 public:
  explicit ControlGate(ControlPath* path) : path_(path) {}
  void Send(std::string payload) {
    MutexLock lock(&mutex_);
    if (path_ != nullptr) path_->SendToPeer(std::move(payload));
  }
  void Shut() {
    MutexLock lock(&mutex_);
    path_ = nullptr;
  }

 private:
  Mutex mutex_;
  ControlPath* path_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld
