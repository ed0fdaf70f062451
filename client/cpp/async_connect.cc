#include "client/cpp/async_connect.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/log.h"
#include "proto/base/status.h"

namespace hixld::client {

AsyncConnectPool::AsyncConnectPool(size_t threads, size_t queue_capacity, Work connect,
                                   Work disconnect)
    : thread_count_(threads),
      capacity_(queue_capacity),
      connect_(std::move(connect)),
      disconnect_(std::move(disconnect)) {}

AsyncConnectPool::~AsyncConnectPool() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    queue_.clear();
    threads.swap(threads_);
    changed_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

absl::Status AsyncConnectPool::Connect(const std::string& peer, int32_t timeout_ms) {
  return Submit({.peer = peer, .timeout_ms = timeout_ms, .connect = true});
}

absl::Status AsyncConnectPool::Disconnect(const std::string& peer, int32_t timeout_ms) {
  return Submit({.peer = peer, .timeout_ms = timeout_ms, .connect = false});
}

absl::Status AsyncConnectPool::Submit(Task task) {
  MutexLock lock(&mutex_);
  if (stopping_) return Failed("the engine is being finalised");
  if (queue_.size() >= capacity_) {
    return ResourceExhausted(
        absl::StrCat("the queue of connect tasks is full; ", task.peer, " is not taken"),
        {.object = absl::StrCat("engine ", task.peer),
         .limit = absl::StrCat(capacity_, " tasks"),
         .option = "connect_pool.task_queue_capacity",
         .allowed = "1..65535"});
  }
  // The latest submission decides: what older tasks report afterwards is ignored.
  table_[task.peer] = {
      .state = task.connect ? LinkState::kConnectPending : LinkState::kDisconnectPending,
      .error = absl::OkStatus()};
  queue_.push_back(std::move(task));
  while (threads_.size() < thread_count_) threads_.emplace_back([this] { Run(); });
  changed_.SignalAll();
  return absl::OkStatus();
}

// Takes the first task whose peer is idle; false = the pool stops.
bool AsyncConnectPool::Next(Task* task) {
  MutexLock lock(&mutex_);
  while (true) {
    if (stopping_) return false;
    const auto found = std::find_if(queue_.begin(), queue_.end(),
                                    [this](const Task& candidate) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                      return running_.count(candidate.peer) == 0;
                                    });
    if (found != queue_.end()) {
      *task = std::move(*found);
      queue_.erase(found);
      running_.insert(task->peer);
      return true;
    }
    changed_.Wait(&mutex_);
  }
}

void AsyncConnectPool::Run() {
  Task task;
  while (Next(&task)) {
    RunTask(task);
    MutexLock lock(&mutex_);
    running_.erase(task.peer);
    changed_.SignalAll();
  }
}

void AsyncConnectPool::RunTask(const Task& task) {
  if (task.connect) {
    SetState(task, LinkState::kConnecting, absl::OkStatus());
    const absl::Status status = connect_(task.peer, task.timeout_ms);
    const bool connected = status.ok() || ApiCodeOf(status) == ApiCode::kAlreadyConnected;
    if (!connected) {
      Log(LogLevel::kWarning, absl::StrCat("connect to ", task.peer, ": ", status.message()));
    }
    SetState(task, connected ? LinkState::kConnected : LinkState::kConnectFailed,
             connected ? absl::OkStatus() : status);
  } else {
    SetState(task, LinkState::kDisconnecting, absl::OkStatus());
    const absl::Status status = disconnect_(task.peer, task.timeout_ms);
    if (!status.ok()) {
      Log(LogLevel::kInfo, absl::StrCat("disconnect from ", task.peer, ": ", status.message()));
    }
    SetState(task, LinkState::kNotConnected, absl::OkStatus());
  }
}

void AsyncConnectPool::SetState(const Task& task, LinkState state, const absl::Status& error) {
  MutexLock lock(&mutex_);
  const auto found = table_.find(task.peer);
  if (found == table_.end()) return;
  const LinkState now = found->second.state;
  // A later submission of the other kind must stay visible.
  if (now == (task.connect ? LinkState::kDisconnectPending : LinkState::kConnectPending)) return;
  if (state == LinkState::kNotConnected) {
    table_.erase(found);
  } else {
    found->second = {.state = state, .error = error};
  }
}

LinkState AsyncConnectPool::State(const std::string& peer) const {
  MutexLock lock(&mutex_);
  const auto found = table_.find(peer);
  return found == table_.end() ? LinkState::kNotConnected : found->second.state;
}

std::map<std::string, LinkState> AsyncConnectPool::States() const {
  MutexLock lock(&mutex_);
  std::map<std::string, LinkState> states;
  for (const auto& [peer, entry] : table_) states[peer] = entry.state;
  return states;
}

absl::Status AsyncConnectPool::LastError(const std::string& peer) const {
  MutexLock lock(&mutex_);
  const auto found = table_.find(peer);
  return found == table_.end() ? absl::OkStatus() : found->second.error;
}

}  // namespace hixld::client
