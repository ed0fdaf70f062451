// The initiator's end of one lane: connects, sends stripes, takes the answers, connects again.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transports/tcp/body_gatherer.h"
#include "transports/tcp/initiator_link.h"
#include "transports/tcp/lane.h"

namespace hixld {

class InitiatorLane : public Lane {
 public:
  InitiatorLane(std::shared_ptr<TcpContext> context, std::shared_ptr<InitiatorLinkCore> link,
                uint32_t index, uint32_t worker);

  // Any thread.
  void Start();
  // There may be stripes to take.
  void Wake();
  // Lets go of the job's local memory; `quiet` is held until that is done.
  void Abandon(std::shared_ptr<TcpJob> job, Fence quiet);
  // Closes the lane for good.
  void Shutdown();
  bool up() const { return up_.load(std::memory_order_relaxed); }
  uint32_t worker() const { return worker_; }
  // Bytes that are on their way.
  uint64_t load() const { return load_.load(std::memory_order_relaxed); }

 protected:
  absl::Status OnFrame(const wire::FrameHeader& header,
                       const std::vector<wire::Piece>& pieces) override;
  absl::Status OnBodyEnd() override;
  void Refill() override;
  void OnBroken(absl::Status reason) override;

 private:
  enum class State { kDown, kHello, kUp, kShut };

  // One stripe that this lane holds.
  struct InFlight {
    StripeWork work;
    CopyDirection direction;
    uint64_t bytes = 0;
    uint64_t data_left = 0;                  // READ: bytes that have not been announced yet
    bool abandoned = false;                  // nobody waits for the answer but the accounts
    std::shared_ptr<BodyGatherer> gatherer;  // WRITE: not queued yet
    std::shared_ptr<BodyReceiver> receiver;  // READ
    bool finishing = false;                  // READ: all is here, writes are under way
  };
  using InFlightPtr = std::shared_ptr<InFlight>;

  // A receiver that outlived its place in in_flight_: its last writes are under way.
  struct Detached {
    std::shared_ptr<TcpJob> job;
    std::weak_ptr<BodyReceiver> receiver;
  };

  void Connect();
  void ConnectFailed(absl::Status reason);
  void ScheduleReconnect();
  void CancelTimer(Loop::TimerId* timer);
  absl::Status OnWelcome();

  const Stripe& StripeOf(const InFlight& entry) const {
    return entry.work.job->stripes[entry.work.stripe];
  }
  bool WindowOpen();
  void StartStripe(StripeWork work);
  void QueueRead(const InFlightPtr& entry);
  void QueueWrite(const InFlightPtr& entry);
  void Gather(const InFlightPtr& entry);
  void GatherReady(const InFlightPtr& entry, absl::Status status);
  std::unique_ptr<OutFrame> NewStripeFrame(const InFlight& entry, wire::FrameType type);

  InFlightPtr Find(uint64_t transfer, uint32_t stripe) const;
  void Remove(const InFlightPtr& entry);
  absl::Status OnAnswer(const wire::FrameHeader& header);
  absl::Status OnData(const wire::FrameHeader& header);
  void Answered(const InFlightPtr& entry, absl::Status status);
  void DataComplete(const InFlightPtr& entry);
  absl::Status ErrorFromTarget(uint32_t code) const;

  void AbandonNow(const std::shared_ptr<TcpJob>& job, const Fence& quiet);
  bool AbandonEntry(const InFlightPtr& entry, const Fence& quiet);
  void GiveBackAll();
  void DetachReceiver(const InFlightPtr& entry);
  void ShutdownNow();

  void ArmStallTimer();
  void OnStallTimer();
  bool ExpectsProgress() const;

  std::shared_ptr<InitiatorLinkCore> link_;  // gone after Shutdown
  const uint32_t worker_;
  std::atomic<bool> up_{false};
  std::atomic<uint64_t> load_{0};
  std::atomic<bool> wake_posted_{false};

  State state_ = State::kDown;
  uint32_t generation_ = 0;
  uint32_t failures_ = 0;  // since the last stripe that was answered
  Loop::TimerId connect_timer_ = 0;
  Loop::TimerId reconnect_timer_ = 0;
  Loop::TimerId stall_timer_ = 0;

  std::deque<InFlightPtr> in_flight_;
  uint32_t gathering_ = 0;
  std::vector<Detached> detached_;

  // The frame that comes in.
  wire::FrameHeader current_;
  InFlightPtr current_entry_;
  std::string text_;
};

}  // namespace hixld
