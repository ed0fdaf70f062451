#include "daemon/memory/executor.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

std::chrono::steady_clock::time_point SteadyTime(int64_t monotonic_ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(monotonic_ns));
}

}  // namespace

struct Executor::Core : std::enable_shared_from_this<Executor::Core> {
  struct Item {
    std::string what;
    Step step;
  };
  struct Queue {
    std::deque<Item> items;
    // In `ready`, or a thread runs its first item.
    bool active = false;
  };
  struct Worker {
    std::thread thread;
    bool running = false;
    bool stuck = false;
    bool exited = false;
    uint64_t key = 0;
    std::string what;
    int64_t started_ns = 0;
  };

  explicit Core(Options o) : options(std::move(o)) {}

  const Options options;
  mutable Mutex mutex;
  StuckCallbacks callbacks ABSL_GUARDED_BY(mutex);
  CondVar work;      // for workers: something is ready, or stop
  CondVar watch;     // for the watcher: a step has started, or stop
  CondVar progress;  // for Stop: a worker has exited or got stuck
  std::unordered_map<uint64_t, Queue> queues ABSL_GUARDED_BY(mutex);
  std::deque<uint64_t> ready ABSL_GUARDED_BY(mutex);
  std::list<Worker> workers ABSL_GUARDED_BY(mutex);
  std::thread watcher;
  uint32_t alive ABSL_GUARDED_BY(mutex) = 0;  // workers that have not exited
  uint32_t stuck ABSL_GUARDED_BY(mutex) = 0;
  uint32_t running ABSL_GUARDED_BY(mutex) = 0;
  bool watcher_idle ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  // The owner is gone: only threads that were left behind still use this.
  bool stopped ABSL_GUARDED_BY(mutex) = false;

  void Start();
  void Stop();
  void StartWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Push(uint64_t key, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Work(Worker* self);
  void RunOne(Worker* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Finish(uint64_t key, Item item, bool more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Watch();
  // Marks what is stuck; returns when to look again.
  int64_t FindStuck(int64_t now, std::vector<std::pair<uint64_t, std::string>>* found)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

void Executor::Core::Start() {
  MutexLock lock(&mutex);
  for (uint32_t i = 0; i < options.threads; ++i) StartWorker();
  if (options.stuck_after_ns > 0) {
    watcher = std::thread([core = shared_from_this()] { core->Watch(); });
    pthread_setname_np(watcher.native_handle(), absl::StrCat(options.name, "-w").c_str());
  }
}

void Executor::Core::StartWorker() {
  Worker* worker = &workers.emplace_back();
  ++alive;
  worker->thread = std::thread([core = shared_from_this(), worker] { core->Work(worker); });
  pthread_setname_np(worker->thread.native_handle(), options.name.c_str());
}

void Executor::Core::Push(uint64_t key, Item item) {
  Queue& queue = queues[key];
  queue.items.push_back(std::move(item));
  if (queue.active) return;
  queue.active = true;
  ready.push_back(key);
  work.Signal();
}

void Executor::Core::Work(Worker* self) {
  MutexLock lock(&mutex);
  while (true) {
    // A thread that came back after a replacement had been started for it is one too many.
    if (alive - stuck > options.threads) break;
    if (!ready.empty()) {
      RunOne(self);
    } else if (stopping) {
      break;
    } else {
      work.Wait(&mutex);
    }
  }
  --alive;
  self->exited = true;
  progress.SignalAll();
}

void Executor::Core::RunOne(Worker* self) {
  const uint64_t key = ready.front();
  ready.pop_front();
  Queue& queue = queues.at(key);
  Item item = std::move(queue.items.front());
  queue.items.pop_front();
  self->running = true;
  self->key = key;
  self->what = item.what;
  self->started_ns = MonotonicNanos();
  if (watcher_idle) watch.Signal();

  mutex.Unlock();
  bool more = item.step();
  // What the task holds may take as long to destroy as the task itself.
  if (!more) item.step = nullptr;
  mutex.Lock();

  self->running = false;
  Finish(key, std::move(item), more);
  if (!self->stuck) return;
  self->stuck = false;
  --stuck;
  if (stopped) return;
  const auto on_recovered = callbacks.on_recovered;
  mutex.Unlock();
  if (on_recovered) on_recovered(key);
  mutex.Lock();
}

void Executor::Core::Finish(uint64_t key, Item item, bool more) {
  Queue& queue = queues.at(key);
  if (more) queue.items.push_front(std::move(item));
  if (queue.items.empty()) {
    queues.erase(key);
    return;
  }
  ready.push_back(key);
  work.Signal();
}

int64_t Executor::Core::FindStuck(int64_t now,
                                  std::vector<std::pair<uint64_t, std::string>>* found) {
  int64_t next = kNoDeadline;
  uint32_t replacements = 0;
  for (Worker& worker : workers) {
    if (!worker.running || worker.stuck) continue;
    const int64_t limit = worker.started_ns + options.stuck_after_ns;
    if (limit > now) {
      next = std::min(next, limit);
      continue;
    }
    worker.stuck = true;
    ++stuck;
    found->emplace_back(worker.key, worker.what);
    if (alive < options.threads + options.max_replacements) ++replacements;
  }
  for (uint32_t i = 0; i < replacements && !stopping; ++i) {
    if (alive < options.threads + options.max_replacements) StartWorker();
  }
  return next;
}

void Executor::Core::Watch() {
  MutexLock lock(&mutex);
  while (true) {
    std::vector<std::pair<uint64_t, std::string>> found;
    const int64_t next = FindStuck(MonotonicNanos(), &found);
    if (!found.empty()) {
      progress.SignalAll();
      const auto on_stuck = callbacks.on_stuck;
      mutex.Unlock();
      for (const auto& [key, what] : found) {
        if (on_stuck) on_stuck(key, what);
      }
      mutex.Lock();
      continue;
    }
    for (auto it = workers.begin(); it != workers.end();) {
      if (it->exited && !stopping) {
        it->thread.join();
        it = workers.erase(it);
      } else {
        ++it;
      }
    }
    if (stopping && alive == stuck) return;
    if (next == kNoDeadline) {
      watcher_idle = true;
      watch.Wait(&mutex);
      watcher_idle = false;
    } else {
      watch.WaitUntil(&mutex, SteadyTime(next));
    }
  }
}

void Executor::Core::Stop() {
  std::list<Worker> ended;
  std::vector<Item> dropped;
  {
    MutexLock lock(&mutex);
    stopping = true;
    work.SignalAll();
    watch.SignalAll();
    // A task may hold the last reference to what owns this executor: its own thread can't wait
    // for itself and is left behind.
    for (Worker& worker : workers) {
      if (worker.thread.get_id() != std::this_thread::get_id() || worker.stuck) continue;
      worker.stuck = true;
      ++stuck;
    }
    while (alive != stuck) progress.Wait(&mutex);
    watch.SignalAll();
    for (auto it = workers.begin(); it != workers.end();) {
      const auto current = it++;
      // The stuck ones keep their entry: they write to it when they come back.
      if (current->exited) {
        ended.splice(ended.end(), workers, current);
      } else {
        current->thread.detach();
      }
    }
    for (auto& [key, queue] : queues) {
      for (Item& item : queue.items) dropped.push_back(std::move(item));
      queue.items.clear();
    }
    ready.clear();
    stopped = true;
  }
  for (Worker& worker : ended) worker.thread.join();
  if (watcher.joinable()) watcher.join();
}

Executor::Executor(Options options) : core_(std::make_shared<Core>(std::move(options))) {
  core_->Start();
}

Executor::~Executor() { core_->Stop(); }

void Executor::SetStuckCallbacks(StuckCallbacks callbacks) {
  MutexLock lock(&core_->mutex);
  core_->callbacks = std::move(callbacks);
}

absl::Status Executor::Submit(uint64_t key, std::string what, Step step) {
  MutexLock lock(&core_->mutex);
  if (core_->stopping) return Failed("the daemon is stopping");
  const auto found = core_->queues.find(key);
  if (found != core_->queues.end() && found->second.items.size() >= core_->options.max_queued) {
    return ResourceExhausted(
        absl::StrCat("the queue of session ", key, " is full (", what, ")"),
        {.object = absl::StrCat("session ", key),
         .limit = absl::StrCat(core_->options.max_queued, " queued operations"),
         .option = core_->options.max_queued_option});
  }
  core_->Push(key, {.what = std::move(what), .step = std::move(step)});
  return absl::OkStatus();
}

void Executor::Release(uint64_t key, std::string what, Task task) {
  ReleaseOn(core_, key, std::move(what), std::move(task));
}

void Executor::ReleaseOn(const std::shared_ptr<Core>& core, uint64_t key, std::string what,
                         Task task) {
  {
    MutexLock lock(&core->mutex);
    if (!core->stopping) {
      core->Push(key, {.what = std::move(what), .step = [task = std::move(task)]() mutable {
                         task();
                         return false;
                       }});
      return;
    }
  }
  task();
}

std::vector<Executor::StuckTask> Executor::Stuck() const {
  std::vector<StuckTask> result;
  const int64_t now = MonotonicNanos();
  MutexLock lock(&core_->mutex);
  for (const Core::Worker& worker : core_->workers) {
    if (!worker.stuck) continue;
    result.push_back(
        {.key = worker.key, .what = worker.what, .running_ns = now - worker.started_ns});
  }
  return result;
}

}  // namespace hixld
