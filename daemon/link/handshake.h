// How two daemons prove to each other that they belong to one cluster: a challenge and response
// with the pre-shared cluster key, both ways. Pure: no sockets, no clock.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/wire/peer.pb.h"

namespace hixld {

constexpr uint32_t kPeerProtocolVersion = 1;
constexpr size_t kNodeIdBytes = 16;
constexpr size_t kNonceBytes = 32;
constexpr size_t kLaneSecretBytes = 32;

// What this daemon is in every handshake.
struct PeerIdentity {
  std::string node_id;      // kNodeIdBytes random bytes per start
  std::string cluster_key;  // empty: none
  bool allow_unauthenticated_network = false;
};

// Cryptographically random bytes.
std::string RandomBytes(size_t count);

// Without a key only loopback is allowed, unless said so in so many words: FAILED, and names both
// options.
absl::Status CheckNetworkAllowed(const PeerIdentity& self, bool loopback, absl::string_view what);

// The side that connects.
class InitiatorHandshake {
 public:
  explicit InitiatorHandshake(const PeerIdentity* self);
  hixl::wire::v1::Hello MakeHello() const;
  // FAILED when the target has not proven itself.
  absl::StatusOr<hixl::wire::v1::Proof> OnChallenge(const hixl::wire::v1::Challenge& challenge);
  const std::string& peer_node() const { return peer_node_; }

 private:
  const PeerIdentity* const self_;
  const std::string nonce_;
  std::string peer_node_;
};

// The side that accepts.
class TargetHandshake {
 public:
  explicit TargetHandshake(const PeerIdentity* self);
  absl::StatusOr<hixl::wire::v1::Challenge> OnHello(const hixl::wire::v1::Hello& hello,
                                                    bool loopback);
  absl::Status OnProof(const hixl::wire::v1::Proof& proof) const;
  const std::string& peer_node() const { return peer_node_; }

 private:
  const PeerIdentity* const self_;
  const std::string nonce_;
  std::string peer_nonce_;
  std::string peer_node_;
};

}  // namespace hixld
