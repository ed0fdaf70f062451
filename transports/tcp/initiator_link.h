// The initiator's end of one link: which stripe goes over which lane, and when a transfer may end.
//
// Locking: mutex_ guards the jobs' states and is held for a few instructions per stripe. No
// callback, `done` above all, runs under it. Lanes call in from their own loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "proto/base/endpoint.h"
#include "proto/base/mutex.h"
#include "transports/tcp/context.h"
#include "transports/tcp/tcp_job.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/transport.h"

namespace hixl::wire::v1 {
class TcpControl;
}

namespace hixld {

class InitiatorLane;

// One stripe in the hands of a lane.
struct StripeWork {
  std::shared_ptr<TcpJob> job;
  uint32_t stripe = 0;
};

class InitiatorLinkCore : public std::enable_shared_from_this<InitiatorLinkCore> {
 public:
  InitiatorLinkCore(std::shared_ptr<TcpContext> context, const Endpoint& peer,
                    LaneIdentity identity, ControlPath* control);
  ~InitiatorLinkCore();

  // What InitiatorLink promises.
  void Start();
  void Submit(std::shared_ptr<TransferJob> transfer);
  void Cancel(const std::shared_ptr<TransferJob>& transfer, absl::Status reason);
  void OnControlMessage(absl::string_view payload);
  void Close(absl::Status reason, int64_t fenced_at_ns);
  std::vector<LaneStats> Lanes() const;
  // The owner is gone: nothing is sent over the control connection any more.
  void Disown();

  // For the lanes.
  const Endpoint& peer() const { return peer_; }
  const LaneIdentity& identity() const { return identity_; }
  // The next stripe for a lane, round robin over the jobs. With `mapped_only`, not one that needs
  // staging to be sent.
  std::optional<StripeWork> Take(uint32_t lane, bool mapped_only);
  // The target has answered.
  void StripeDone(const StripeWork& work, absl::Status status);
  // The stripe was never sent, or what was sent can land no more.
  void StripeReturned(const StripeWork& work, bool resent);
  // A lane has died with WRITE stripes that were not answered; the target is asked to fence it.
  void LaneLost(uint32_t lane, uint32_t generation, std::vector<StripeWork> unanswered);
  void LaneStateChanged();

 private:
  using Jobs = std::vector<std::shared_ptr<TcpJob>>;

  std::shared_ptr<TcpJob> MakeJob(std::shared_ptr<TransferJob> transfer) const;
  struct Admission {
    bool new_deadline = false;
    bool backlog = false;
  };
  absl::Status Admit(const std::shared_ptr<TcpJob>& job, Admission* admission);
  void ListLocked(const std::shared_ptr<TcpJob>& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UnlistLocked(TcpJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StripeWork TakeFirstLocked(std::list<std::shared_ptr<TcpJob>>* ready, uint32_t lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeLanes(uint32_t stripes, uint32_t worker);

  void BeginFence(const std::shared_ptr<TcpJob>& job, absl::Status reason);
  void OnQuiet(const std::shared_ptr<TcpJob>& job);
  bool FencedLocked(TcpJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayForgetLocked(TcpJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<TransferJob> EndLocked(const std::shared_ptr<TcpJob>& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndIfFenced(const std::shared_ptr<TcpJob>& job);
  static void RunDone(std::shared_ptr<TransferJob> transfer, absl::Status status);

  void ArmDeadline();
  void OnDeadline();
  std::string Trouble() const;
  void OnFencedAt();
  void HandleControl(const hixl::wire::v1::TcpControl& message);
  void OnTransferCancelled(uint64_t id);
  void OnLaneFenced(uint32_t lane, uint32_t generation);
  void SendControl(const hixl::wire::v1::TcpControl& message);

  const std::shared_ptr<TcpContext> context_;
  const Endpoint peer_;
  const LaneIdentity identity_;
  const std::shared_ptr<ControlGate> control_;
  Loop* const home_;                                   // deadlines and control messages
  std::vector<std::shared_ptr<InitiatorLane>> lanes_;  // constant after Start

  mutable Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<TcpJob>> jobs_ ABSL_GUARDED_BY(mutex_);
  // Jobs with stripes to take; the second list has those that need staging to be sent, so that
  // they can be passed by. Lanes take from both in turn.
  std::list<std::shared_ptr<TcpJob>> ready_[2] ABSL_GUARDED_BY(mutex_);
  bool staged_turn_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<StripeWork>> lost_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status close_reason_ ABSL_GUARDED_BY(mutex_);
  bool target_gone_ ABSL_GUARDED_BY(mutex_) = false;  // the time given to Close has come
  int64_t armed_deadline_ns_ ABSL_GUARDED_BY(mutex_) = kNoDeadline;

  // Only on home_.
  Loop::TimerId deadline_timer_ = 0;
};

}  // namespace hixld
