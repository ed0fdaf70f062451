// Connecting and disconnecting in the background (contract 1.13).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace hixld::client {

enum class LinkState {
  kNotConnected,
  kConnectPending,
  kConnecting,
  kConnected,
  kConnectFailed,
  kDisconnectPending,
  kDisconnecting,
};

// Thread-safe. One task per peer runs at a time, tasks of one peer in order of submission,
// different peers in parallel.
class AsyncConnectPool {
 public:
  using Work = std::function<absl::Status(const std::string& peer, int32_t timeout_ms)>;

  // Threads are started with the first task.
  AsyncConnectPool(size_t threads, size_t queue_capacity, Work connect, Work disconnect);
  // Drops queued tasks and waits for running ones.
  ~AsyncConnectPool();

  // RESOURCE_EXHAUSTED when as many tasks wait as the queue holds.
  absl::Status Connect(const std::string& peer, int32_t timeout_ms);
  absl::Status Disconnect(const std::string& peer, int32_t timeout_ms);

  LinkState State(const std::string& peer) const;
  // Peers in any other state than kNotConnected.
  std::map<std::string, LinkState> States() const;
  // Why the last attempt of a peer in state kConnectFailed failed.
  absl::Status LastError(const std::string& peer) const;

 private:
  struct Task {
    std::string peer;
    int32_t timeout_ms;
    bool connect;
  };
  struct Entry {
    LinkState state = LinkState::kNotConnected;
    absl::Status error;
  };

  absl::Status Submit(Task task);
  void Run();
  bool Next(Task* task);
  void RunTask(const Task& task);
  void SetState(const Task& task, LinkState state, const absl::Status& error);

  const size_t thread_count_;
  const size_t capacity_;
  const Work connect_;
  const Work disconnect_;

  // Guards the queue, the table and the threads' start.
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> running_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Entry> table_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
