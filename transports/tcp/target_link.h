// The target's end of one link: its lanes, and what must not land any more.
//
// Locking: mutex_ guards the list of lanes and the cancelled transfers; nothing is called under
// it. Everything else happens on the lanes' own loops.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "transports/tcp/context.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/transport.h"

namespace hixl::wire::v1 {
class TcpControl;
}

namespace hixld {

class TargetLane;

class TargetLinkCore : public std::enable_shared_from_this<TargetLinkCore> {
 public:
  TargetLinkCore(std::shared_ptr<TcpContext> context, LaneIdentity identity,
                 TargetResolver* resolver, ControlPath* control);
  ~TargetLinkCore();

  // What TargetLink promises.
  void OnControlMessage(absl::string_view payload);
  void Close(absl::Status reason, absl::AnyInvocable<void()> closed);
  void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced);
  std::vector<LaneStats> Lanes() const;
  void Disown();

  // A socket whose hello names this link. Closes it unless the proof is right and the generation
  // is newer than any before. Any thread.
  void AcceptLane(UniqueFd socket, uint32_t lane, uint32_t generation, absl::string_view proof);

  // For the lanes.
  const LaneIdentity& identity() const { return identity_; }
  TargetResolver* resolver() const { return resolver_; }
  bool IsCancelled(uint64_t transfer) const;
  // The lane is closed and nothing that came over it can land any more.
  void LaneGone(TargetLane* lane);

 private:
  using LaneList = std::vector<std::shared_ptr<TargetLane>>;

  LaneList CurrentLanes() const;
  void HandleControl(const hixl::wire::v1::TcpControl& message);
  void CancelTransfer(uint64_t transfer);
  void ForgetTransfer(uint64_t transfer);
  void FenceLane(uint32_t lane, uint32_t generation);
  void SendControl(const hixl::wire::v1::TcpControl& message);

  const std::shared_ptr<TcpContext> context_;
  const LaneIdentity identity_;
  TargetResolver* const resolver_;
  const std::shared_ptr<ControlGate> control_;
  Loop* const home_;
  const uint32_t base_worker_;

  mutable Mutex mutex_;
  LaneList lanes_ ABSL_GUARDED_BY(mutex_);
  // The newest generation of each lane that was accepted or declared dead.
  std::array<uint32_t, kMaxLanes> generations_ ABSL_GUARDED_BY(mutex_) = {};
  absl::flat_hash_set<uint64_t> cancelled_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The size of cancelled_, so that the usual look-up takes no lock.
  std::atomic<size_t> cancelled_count_{0};
};

}  // namespace hixld
