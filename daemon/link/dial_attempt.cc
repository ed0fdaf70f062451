#include "daemon/link/dial_attempt.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/link/messages.h"
#include "proto/base/status.h"

namespace hixld {

using hixl::wire::v1::PeerMessage;

DialAttempt::DialAttempt(Loop* loop, const PeerIdentity* self, const Endpoint& endpoint,
                         Handler handler)
    : loop_(loop),
      self_(self),
      endpoint_(endpoint),
      handler_(std::move(handler)),
      handshake_(self) {}

DialAttempt::~DialAttempt() = default;

void DialAttempt::Start() {
  const absl::Status allowed = CheckNetworkAllowed(
      *self_, endpoint_.loopback(), absl::StrCat("connecting to ", endpoint_.ToString()));
  if (!allowed.ok()) return Fail(allowed);
  dialer_ = Dialer::Start(loop_, endpoint_,
                          [weak = weak_from_this()](absl::StatusOr<UniqueFd> socket, bool refused) {
                            auto self = weak.lock();
                            if (self == nullptr || self->done_) return;
                            if (!socket.ok()) return self->Fail(socket.status(), refused);
                            self->OnConnected(std::move(*socket));
                          });
}

void DialAttempt::OnConnected(UniqueFd socket) {
  connection_ = std::make_shared<ControlConnection>(loop_, std::move(socket));
  const std::weak_ptr<DialAttempt> weak = weak_from_this();
  PeerMessage hello;
  *hello.mutable_hello() = handshake_.MakeHello();
  connection_->Send(hello);
  connection_->SetHandler(
      {.on_message =
           [weak](const PeerMessage& message) {
             if (auto self = weak.lock()) self->OnMessage(message);
           },
       .on_end =
           [weak](const absl::Status& status, ConnectionEnd) {
             auto self = weak.lock();
             if (self == nullptr) return;
             self->Fail(Failed(absl::StrCat("whoever listens at ", self->endpoint_.ToString(),
                                            " broke off the handshake: ", status.message()),
                               {.object = absl::StrCat("address ", self->endpoint_.ToString())}));
           }});
}

void DialAttempt::OnMessage(const PeerMessage& message) {
  if (done_) return;
  switch (message.body_case()) {
    case PeerMessage::kChallenge:
      if (!proven_) return OnChallenge(message.challenge());
      break;
    case PeerMessage::kWelcome: {
      if (!proven_) break;
      const auto self = shared_from_this();
      done_ = true;
      return handler_.on_welcome(std::move(connection_), message.welcome());
    }
    case PeerMessage::kError:
      return Fail(Annotate(StatusOf(message.error()),
                           absl::StrCat("the daemon at ", endpoint_.ToString(), " refused")));
    default:
      break;
  }
  Fail(ParamInvalid(
      absl::StrCat("whoever listens at ", endpoint_.ToString(), " does not keep to the handshake"),
      {.object = absl::StrCat("address ", endpoint_.ToString())}));
}

void DialAttempt::OnChallenge(const hixl::wire::v1::Challenge& challenge) {
  const auto proof = handshake_.OnChallenge(challenge);
  if (!proof.ok()) return Fail(proof.status());
  proven_ = true;
  const auto self = shared_from_this();
  if (!handler_.on_peer(handshake_.peer_node())) return Cancel();
  if (done_) return;
  PeerMessage message;
  *message.mutable_proof() = *proof;
  connection_->Send(message);
}

void DialAttempt::Fail(const absl::Status& status, bool refused) {
  if (done_) return;
  const auto self = shared_from_this();
  Cancel();
  handler_.on_failed(status, refused);
}

void DialAttempt::Cancel() {
  done_ = true;
  if (dialer_ != nullptr) dialer_->Cancel();
  if (connection_ != nullptr) connection_->Close();
}

}  // namespace hixld
