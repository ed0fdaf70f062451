// A transfer on its way to being accepted, and its ticket if it is to be relayed. Inside the engine
// room only.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {

// How long an asynchronous transfer, which has no deadline, waits for its connection (contract
// 1.12).
constexpr int64_t kAsyncConnectNanos = 3 * kNanosPerSecond;

// One relayed transfer's buffers of its engine's pool, and what the target has granted it. Given
// back when the last reference goes: nothing of the transfer can land any more then.
class Engine::RelayTicket {
 public:
  RelayTicket(std::shared_ptr<Engine> engine, uint32_t buffers)
      : engine_(std::move(engine)), buffers_(buffers) {}
  ~RelayTicket() {
    Revoke();
    // Later: nobody knows which locks are held here.
    Engine* const engine = engine_.get();
    engine->context_->control->Post(
        [engine = std::move(engine_), buffers = buffers_] { engine->RelayEnded(buffers); });
  }
  RelayTicket(const RelayTicket&) = delete;
  RelayTicket& operator=(const RelayTicket&) = delete;

  bool GrantedBy(const std::shared_ptr<RemoteChannel>& remote) const { return remote_ == remote; }
  // `id` 0: the target has registered all that the transfer names.
  void Granted(std::shared_ptr<RemoteChannel> remote, uint64_t id,
               std::vector<AddressRange> ranges) {
    Revoke();
    remote_ = std::move(remote);
    id_ = id;
    ranges_ = std::move(ranges);
  }
  const std::vector<AddressRange>& ranges() const { return ranges_; }
  uint32_t buffers() const { return buffers_; }

 private:
  void Revoke() {
    if (remote_ != nullptr && id_ != 0) remote_->CloseRelay(id_);
  }

  std::shared_ptr<Engine> engine_;
  const uint32_t buffers_;
  std::shared_ptr<RemoteChannel> remote_;
  uint64_t id_ = 0;
  std::vector<AddressRange> ranges_;
};

// A transfer that has not been accepted yet.
struct Engine::Pending {
  std::shared_ptr<Engine> engine;
  std::string remote_engine;  // as given; empty when the channel was named by its id
  uint64_t channel_id = 0;
  std::string name;  // canonical, for one named by its engine; empty when malformed
  CopyDirection direction = CopyDirection::kRead;
  int64_t deadline_ns = kNoDeadline;
  uint64_t user_data = 0;
  // Exactly one of these is set.
  SyncDone sync_done;
  absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> async_done;
  bool may_relay = false;
  absl::AnyInvocable<void(absl::Span<const ring::Extent>, absl::Span<const ring::Extent>)>
      on_accepted;
  // Of the pool, if it is relayed.
  uint32_t buffers = 0;
  // Set while it is to be relayed; goes to the job, which keeps it to its end.
  std::shared_ptr<RelayTicket> ticket;
  // Set from the beginning, or once the call had to wait.
  OwnedBatch owned;
  bool waited = false;
  bool reconnected = false;
  bool refreshed = false;
  // The target refused a range that its list had; `moved`: other bytes may have landed before.
  bool refused = false;
  bool moved = false;
  // That it was submitted to, where there is one.
  std::shared_ptr<RemoteChannel> remote;

  Mutex mutex;  // guards the two below: the caller may go away at any time
  bool abandoned ABSL_GUARDED_BY(mutex) = false;
  std::weak_ptr<Transfer> transfer ABSL_GUARDED_BY(mutex);

  bool synchronous() const { return static_cast<bool>(sync_done); }
  void Refuse(const absl::Status& status) {
    ticket.reset();
    if (sync_done) {
      std::exchange(sync_done, nullptr)(TransferEnd{.status = Told(status, moved)});
    } else {
      std::exchange(async_done, nullptr)(status);
    }
  }
  // Codes other than these say that nothing has happened.
  static absl::Status Told(const absl::Status& status, bool moved) {
    const ApiCode code = ApiCodeOf(status);
    if (!moved || status.ok() || code == ApiCode::kTimeout || code == ApiCode::kFailed) {
      return status;
    }
    return Failed(
        absl::StrCat("parts of the transfer may have moved before this: ", status.message()));
  }
  int64_t connect_deadline_ns() const {
    return std::min(deadline_ns, MonotonicNanos() + kAsyncConnectNanos);
  }
  // Remembers what runs for this call; returns whether the caller has gone away meanwhile.
  bool Running(const std::shared_ptr<Transfer>& running) {
    MutexLock lock(&mutex);
    transfer = running;
    return abandoned;
  }
  void Abandon() {
    std::shared_ptr<Transfer> running;
    {
      MutexLock lock(&mutex);
      abandoned = true;
      running = transfer.lock();
    }
    if (running != nullptr) running->Cancel(Failed("the caller went away during the transfer"));
  }
};

}  // namespace hixld
