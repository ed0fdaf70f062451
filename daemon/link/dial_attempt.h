// One attempt to make a link to whoever listens at an address: connect, then prove. Lives on the
// control loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "daemon/link/control_connection.h"
#include "daemon/link/dialer.h"
#include "daemon/link/handshake.h"
#include "proto/base/endpoint.h"
#include "proto/wire/peer.pb.h"
#include "transports/loop/loop.h"

namespace hixld {

class DialAttempt : public std::enable_shared_from_this<DialAttempt> {
 public:
  struct Handler {
    // The peer has proven which node it is. True: go on and make a link; false: it is not needed,
    // and the attempt ends without calling anything else.
    absl::AnyInvocable<bool(const std::string& peer_node)> on_peer;
    // The link stands.
    absl::AnyInvocable<void(std::shared_ptr<ControlConnection>, const hixl::wire::v1::Welcome&)>
        on_welcome;
    // FAILED and why; `refused`: nobody listens at the address.
    absl::AnyInvocable<void(const absl::Status&, bool refused)> on_failed;
  };

  DialAttempt(Loop* loop, const PeerIdentity* self, const Endpoint& endpoint, Handler handler);
  ~DialAttempt();
  void Start();
  // Nothing is called any more.
  void Cancel();
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  void OnConnected(UniqueFd socket);
  void OnMessage(const hixl::wire::v1::PeerMessage& message);
  void OnChallenge(const hixl::wire::v1::Challenge& challenge);
  void Fail(const absl::Status& status, bool refused = false);

  Loop* const loop_;
  const PeerIdentity* const self_;
  const Endpoint endpoint_;
  Handler handler_;
  InitiatorHandshake handshake_;
  std::shared_ptr<Dialer> dialer_;
  std::shared_ptr<ControlConnection> connection_;
  bool proven_ = false;
  bool done_ = false;
};

}  // namespace hixld
