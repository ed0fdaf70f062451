#include "daemon/link/accepted_peer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/link/messages.h"
#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {

using hixl::wire::v1::PeerMessage;

AcceptedPeer::AcceptedPeer(Loop* loop, const PeerIdentity* self, UniqueFd socket)
    : loop_(loop),
      connection_(std::make_shared<ControlConnection>(loop, std::move(socket))),
      handshake_(self) {}

AcceptedPeer::~AcceptedPeer() = default;

void AcceptedPeer::Start(int64_t timeout_ns, Proven proven, absl::AnyInvocable<void()> ended) {
  proven_ = std::move(proven);
  ended_ = std::move(ended);
  const std::weak_ptr<AcceptedPeer> weak = weak_from_this();
  timer_ = loop_->AddTimer(MonotonicNanos() + timeout_ns, [weak] {
    if (auto self = weak.lock()) self->Refuse(Timeout("the handshake took too long"));
  });
  connection_->SetHandler(
      {.on_message =
           [weak](const PeerMessage& message) {
             if (auto self = weak.lock()) self->OnMessage(message);
           },
       .on_end =
           [weak](const absl::Status& status, ConnectionEnd end) {
             auto self = weak.lock();
             if (self == nullptr) return;
             if (end != ConnectionEnd::kEof) {
               LogInfo("peer connection refused",
                       {{"peer", self->connection_->peer().ToString()}, {"reason", status}});
             }
             self->End();
           }});
}

void AcceptedPeer::OnMessage(const PeerMessage& message) {
  if (done_) return;
  const auto self = shared_from_this();
  if (!challenged_ && message.has_hello()) {
    const auto challenge = handshake_.OnHello(message.hello(), connection_->peer().loopback());
    if (!challenge.ok()) return Refuse(challenge.status());
    challenged_ = true;
    PeerMessage answer;
    *answer.mutable_challenge() = *challenge;
    connection_->Send(answer);
    return;
  }
  if (!challenged_ || !message.has_proof()) {
    return Refuse(ParamInvalid("the peer does not keep to the handshake"));
  }
  const absl::Status proof = handshake_.OnProof(message.proof());
  if (!proof.ok()) return Refuse(proof);
  done_ = true;
  loop_->CancelTimer(timer_);
  std::exchange(proven_, nullptr)(handshake_.peer_node(), connection_);
}

void AcceptedPeer::Refuse(const absl::Status& status) {
  if (done_) return;
  LogWarn("peer connection refused",
          {{"peer", connection_->peer().ToString()}, {"reason", status}});
  const auto self = shared_from_this();
  connection_->Send(ErrorMessage(0, status));
  connection_->CloseFlushed();
  End();
}

void AcceptedPeer::End() {
  if (std::exchange(done_, true)) return;
  loop_->CancelTimer(timer_);
  if (ended_) std::exchange(ended_, nullptr)();
}

void AcceptedPeer::Cancel() {
  ended_ = nullptr;
  connection_->Close();
  End();
}

}  // namespace hixld
