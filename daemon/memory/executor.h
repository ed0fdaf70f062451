// Threads for work that may block: copies from other processes' memory, mapping and unmapping,
// device calls. The loops never block; what might goes here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace hixld {

// A fixed set of threads with one queue per key; a key is a session. At most one task of a key
// runs at a time, in order; keys take turns. So a session that floods its queue or hangs in the
// kernel (memory behind userfaultfd, a stuck filesystem) holds up itself and one thread, and for
// that thread a bounded number of replacements is started.
class Executor {
 public:
  // One piece of work, short by design; returns whether there is more to do. The key goes to the
  // end of the round between two steps.
  using Step = absl::AnyInvocable<bool()>;
  using Task = absl::AnyInvocable<void()>;

  struct Options {
    std::string name = "hixld-exec";  // of the threads, at most 12 bytes
    uint32_t threads = 2;
    // A step that runs for longer is stuck; 0: never.
    int64_t stuck_after_ns = 2'000'000'000;
    // Threads that stand in for stuck ones, at most.
    uint32_t max_replacements = 16;
    // Tasks in the queue of one key, at most.
    uint32_t max_queued = 4096;
    std::string max_queued_option;  // named in the error, when there is one
  };

  // Called on a thread of the executor when a step is found to be stuck, and when it comes back.
  struct StuckCallbacks {
    std::function<void(uint64_t key, const std::string& what)> on_stuck;
    std::function<void(uint64_t key)> on_recovered;
  };

  explicit Executor(Options options);
  // Runs what is queued and joins the threads; threads that are stuck are left behind, and what
  // is queued behind them is dropped without a call. A task may destroy its own executor.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Replaces the callbacks. A call of the former ones may still be on its way.
  void SetStuckCallbacks(StuckCallbacks callbacks);

  // Queues a task that is called until it returns false. `what` says what it does when it hangs
  // ("process_vm_readv of pid 12"). RESOURCE_EXHAUSTED when the key's queue is full; the task is
  // then dropped without a call. Thread-safe, never blocks.
  absl::Status Submit(uint64_t key, std::string what, Step step);

  // Queues a task that must run, whatever the queue holds: giving something back. The number of
  // such tasks is bounded by the things that exist. After the executor has stopped, it runs at
  // once on the caller's thread.
  void Release(uint64_t key, std::string what, Task task);

  // Moves `object` into a shared pointer whose last user, on whatever thread, has it destroyed by
  // this executor. May outlive the executor.
  template <typename T>
  std::shared_ptr<T> DestroyHere(uint64_t key, std::unique_ptr<T> object) {
    return std::shared_ptr<T>(object.release(), [core = core_, key](T* raw) {
      ReleaseOn(core, key, "release memory", [raw] { delete raw; });
    });
  }

  struct StuckTask {
    uint64_t key = 0;
    std::string what;
    int64_t running_ns = 0;
  };
  std::vector<StuckTask> Stuck() const;

 private:
  struct Core;
  static void ReleaseOn(const std::shared_ptr<Core>& core, uint64_t key, std::string what,
                        Task task);
  const std::shared_ptr<Core> core_;
};

}  // namespace hixld
