#include "transports/tcp/target_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"
#include "proto/wire/tcp_control.pb.h"
#include "transports/tcp/lane_proof.h"
#include "transports/tcp/target_lane.h"

namespace hixld {
namespace {

using hixl::wire::v1::TcpControl;

// An initiator forgets its cancelled transfers once their frames are answered, so only a few are
// remembered at a time; one that does not loses its lanes.
constexpr size_t kMaxCancelled = 64 << 10;

}  // namespace

TargetLinkCore::TargetLinkCore(std::shared_ptr<TcpContext> context, LaneIdentity identity,
                               TargetResolver* resolver, ControlPath* control)
    : context_(std::move(context)),
      identity_(std::move(identity)),
      resolver_(resolver),
      control_(std::make_shared<ControlGate>(control)),
      home_(&context_->workers->at(context_->workers->Next())),
      base_worker_(context_->workers->Next()) {}

TargetLinkCore::~TargetLinkCore() = default;

void TargetLinkCore::Disown() { control_->Shut(); }

TargetLinkCore::LaneList TargetLinkCore::CurrentLanes() const {
  MutexLock lock(&mutex_);
  return lanes_;
}

std::vector<LaneStats> TargetLinkCore::Lanes() const {
  std::vector<LaneStats> stats;
  for (const auto& lane : CurrentLanes()) stats.push_back(lane->stats());
  return stats;
}

void TargetLinkCore::AcceptLane(UniqueFd socket, uint32_t lane, uint32_t generation,
                                absl::string_view proof) {
  const bool valid =
      lane < kMaxLanes && ProofsEqual(proof, LaneProof(identity_.secret, LaneSide::kInitiator,
                                                       identity_.link_id, lane, generation));
  std::shared_ptr<TargetLane> accepted;
  LaneList replaced;
  if (valid) {
    MutexLock lock(&mutex_);
    if (!closed_ && generation > generations_[lane]) {
      generations_[lane] = generation;
      for (const auto& old : lanes_) {
        if (old->index() == lane) replaced.push_back(old);
      }
      const uint32_t worker = (base_worker_ + lane) % context_->workers->size();
      accepted =
          std::make_shared<TargetLane>(context_, shared_from_this(), lane, generation, worker);
      lanes_.push_back(accepted);
    }
  }
  if (accepted == nullptr) {
    context_->refused_lanes.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  for (const auto& old : replaced) old->Close(nullptr);
  accepted->Start(std::move(socket));
}

void TargetLinkCore::LaneGone(TargetLane* lane) {
  MutexLock lock(&mutex_);
  lanes_.erase(std::remove_if(lanes_.begin(), lanes_.end(),
                              [lane](const auto& other) { return other.get() == lane; }),
               lanes_.end());
}

bool TargetLinkCore::IsCancelled(uint64_t transfer) const {
  // A cancellation that is under way reaches the lane's loop after its frame has started.
  if (cancelled_count_.load(std::memory_order_acquire) == 0) return false;
  MutexLock lock(&mutex_);
  return cancelled_.contains(transfer);
}

void TargetLinkCore::Close(absl::Status reason, absl::AnyInvocable<void()> closed) {
  const Fence fence = MakeFence(home_, std::move(closed));
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  for (const auto& lane : CurrentLanes()) lane->Close(fence);
}

void TargetLinkCore::FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) {
  const Fence fence = MakeFence(home_, std::move(fenced));
  for (const auto& lane : CurrentLanes()) lane->FenceChannel(channel, fence);
}

void TargetLinkCore::OnControlMessage(absl::string_view payload) {
  auto message = std::make_shared<TcpControl>();
  if (!message->ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    context_->malformed_frames.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  home_->Post([self = shared_from_this(), message] { self->HandleControl(*message); });
}

void TargetLinkCore::HandleControl(const TcpControl& message) {
  switch (message.body_case()) {
    case TcpControl::kCancelTransfer:
      CancelTransfer(message.cancel_transfer().transfer());
      return;
    case TcpControl::kForgetTransfer:
      ForgetTransfer(message.forget_transfer().transfer());
      return;
    case TcpControl::kLaneDead:
      FenceLane(message.lane_dead().lane(), message.lane_dead().generation());
      return;
    default:
      context_->malformed_frames.fetch_add(1, std::memory_order_relaxed);
  }
}

// First every frame that starts from now on is refused, then the lanes let go of what they are
// writing: in this order none slips through.
void TargetLinkCore::CancelTransfer(uint64_t transfer) {
  const Fence fence = MakeFence(home_, [self = shared_from_this(), transfer] {
    TcpControl answer;
    answer.mutable_transfer_cancelled()->set_transfer(transfer);
    self->SendControl(answer);
  });
  bool full = false;
  {
    MutexLock lock(&mutex_);
    full = cancelled_.size() >= kMaxCancelled;
    if (!full) cancelled_.insert(transfer);
    cancelled_count_.store(cancelled_.size(), std::memory_order_release);
  }
  for (const auto& lane : CurrentLanes()) {
    if (full) {
      lane->Close(fence);
    } else {
      lane->FenceTransfer(transfer, fence);
    }
  }
}

void TargetLinkCore::ForgetTransfer(uint64_t transfer) {
  MutexLock lock(&mutex_);
  cancelled_.erase(transfer);
  cancelled_count_.store(cancelled_.size(), std::memory_order_release);
}

void TargetLinkCore::FenceLane(uint32_t lane, uint32_t generation) {
  const Fence fence = MakeFence(home_, [self = shared_from_this(), lane, generation] {
    TcpControl answer;
    answer.mutable_lane_fenced()->set_lane(lane);
    answer.mutable_lane_fenced()->set_generation(generation);
    self->SendControl(answer);
  });
  {
    MutexLock lock(&mutex_);
    // A socket with this hello may still be on its way in.
    if (lane < kMaxLanes) generations_[lane] = std::max(generations_[lane], generation);
  }
  for (const auto& other : CurrentLanes()) {
    if (other->index() == lane && other->generation() <= generation) other->Close(fence);
  }
}

void TargetLinkCore::SendControl(const TcpControl& message) {
  control_->Send(message.SerializeAsString());
}

}  // namespace hixld
