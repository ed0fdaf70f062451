// A client process that copies by itself, as the daemon watches it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "transports/loop/loop.h"

namespace hixld {

class DirectGate;

// One per session that asked for a grant; lives as long as the session or one of its gates.
// Thread-safe.
class DirectCopier : public std::enable_shared_from_this<DirectCopier> {
 public:
  // `name` stands in errors: "pid 12". `pidfd` is of the client's process. The loop outlives every
  // copier.
  static absl::StatusOr<std::shared_ptr<DirectCopier>> Create(Loop* loop, std::string name,
                                                              UniqueFd pidfd);
  ~DirectCopier();

  const std::string& name() const { return name_; }
  Loop* loop() const { return loop_; }
  // The eventfd to which the client writes when a thread of it leaves a closed gate. Not the rings'
  // and not the fd channel: it must work when the session has ended and a thread is still inside.
  int wake_fd() const { return descriptors_->wake.get(); }
  // Its process is gone, and with it every thread that could copy.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

  // Makes the gate known under a new id.
  uint64_t Add(const std::shared_ptr<DirectGate>& gate);
  // The gate that was given this id, while it exists.
  std::shared_ptr<DirectGate> Find(uint64_t id) const;
  // Closed gates that the client has not left.
  size_t occupied() const;

  // From now on the gate looks whether it is empty whenever a thread of the client says that it has
  // left one, and when the process ends.
  void Watch(const std::shared_ptr<DirectGate>& gate);

 private:
  struct Descriptors {
    UniqueFd wake;
    UniqueFd pidfd;
  };

  DirectCopier(Loop* loop, std::string name, std::shared_ptr<Descriptors> descriptors)
      : loop_(loop), name_(std::move(name)), descriptors_(std::move(descriptors)) {}
  void StartWatching();
  void OnWake();
  void OnEnd();
  void LookAtGates();

  Loop* const loop_;
  const std::string name_;
  const std::shared_ptr<Descriptors> descriptors_;
  std::atomic<bool> ended_{false};

  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::weak_ptr<DirectGate>> gates_ ABSL_GUARDED_BY(mutex_);
  // Closed and not empty yet.
  std::map<DirectGate*, std::weak_ptr<DirectGate>> watched_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld
