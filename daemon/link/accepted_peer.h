// A control connection that came in and has to prove itself. Lives on the control loop.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "daemon/link/control_connection.h"
#include "daemon/link/handshake.h"
#include "proto/wire/peer.pb.h"
#include "transports/loop/loop.h"

namespace hixld {

class AcceptedPeer : public std::enable_shared_from_this<AcceptedPeer> {
 public:
  // The peer has proven itself.
  using Proven =
      absl::AnyInvocable<void(const std::string& peer_node, std::shared_ptr<ControlConnection>)>;

  AcceptedPeer(Loop* loop, const PeerIdentity* self, UniqueFd socket);
  ~AcceptedPeer();
  // Either `proven` or `ended` runs, once: `ended` when the peer went away, failed, or took longer
  // than `timeout_ns`.
  void Start(int64_t timeout_ns, Proven proven, absl::AnyInvocable<void()> ended);
  void Cancel();

 private:
  void OnMessage(const hixl::wire::v1::PeerMessage& message);
  void Refuse(const absl::Status& status);
  void End();

  Loop* const loop_;
  const std::shared_ptr<ControlConnection> connection_;
  TargetHandshake handshake_;
  bool challenged_ = false;
  bool done_ = false;
  Loop::TimerId timer_ = 0;
  Proven proven_;
  absl::AnyInvocable<void()> ended_;
};

}  // namespace hixld
