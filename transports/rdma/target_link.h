// The target's end of a link: makes queue pairs for the initiator's lanes and hands out keys. It
// sends nothing, and no completion ever comes to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/wire/rdma.pb.h"
#include "transports/rdma/connect.h"
#include "transports/rdma/context.h"
#include "transports/rdma/target_keys.h"
#include "transports/transport.h"

namespace hixld::rdma {

class TargetCore : public EventListener, public std::enable_shared_from_this<TargetCore> {
 public:
  TargetCore(std::shared_ptr<Context> context, TargetResolver* resolver, ControlPath* control);
  void Start();

  void OnControlMessage(absl::string_view payload);
  void Close(absl::AnyInvocable<void()> closed);
  void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced);
  std::vector<LaneStats> Lanes() const;
  // `control` is not used any more when this returns.
  void LetGo();

  // EventListener
  void OnPortDown(uint32_t device, uint32_t port, const std::string& why) override;
  void OnPortsChanged() override;
  void OnQueuePairFailed(uint32_t device, uint32_t number, const std::string& why) override;

 private:
  struct Lane {
    uint64_t attempt = 0;
    uint32_t device = 0;
    LaneEnd end;
    std::string local_name;
    std::string remote_name;
    std::shared_ptr<VerbsDomain> domain;  // outlives the queue pair
    std::unique_ptr<VerbsQueuePair> queue_pair;
  };

  void Handle(const hixl::wire::v1::RdmaMessage& message);
  void SendOffer();
  void OnOpenLane(const hixl::wire::v1::RdmaOpenLane& message);
  absl::Status Open(const hixl::wire::v1::RdmaOpenLane& message, Lane* lane,
                    hixl::wire::v1::RdmaQueuePair* own);
  void OnCloseLane(uint32_t index, uint64_t attempt);
  void RefuseKeys(uint64_t request);
  void OnKeyRequest(const hixl::wire::v1::RdmaKeyRequest& request);
  absl::StatusOr<std::shared_ptr<VerbsDomain>> DomainFor(uint32_t device);
  void EndLane(uint32_t index);
  void ReportBroken(uint32_t index, uint64_t attempt, const std::string& why);
  void Send(const hixl::wire::v1::RdmaMessage& message);

  const std::shared_ptr<Context> context_;
  Mutex control_mutex_;
  ControlPath* control_ ABSL_GUARDED_BY(control_mutex_);
  mutable Mutex mutex_;
  // One protection domain per device for this link alone: keys are worth nothing on another.
  std::map<uint32_t, std::shared_ptr<VerbsDomain>> domains_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // That wait for the registrar.
  std::atomic<uint32_t> key_requests_{0};
  TargetKeys keys_;
};

}  // namespace hixld::rdma
