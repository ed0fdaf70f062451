#include "daemon/link/handshake.h"

#include <catch2/catch.hpp>

#include "proto/base/status.h"

namespace hixld {
namespace {

using Catch::Contains;

PeerIdentity Identity(std::string key = "", bool open = false) {
  return {.node_id = RandomBytes(kNodeIdBytes),
          .cluster_key = std::move(key),
          .allow_unauthenticated_network = open};
}

// Runs both sides; the first error of either.
absl::Status Shake(const PeerIdentity& initiator, const PeerIdentity& target, bool loopback) {
  InitiatorHandshake first(&initiator);
  TargetHandshake second(&target);
  HIXLD_ASSIGN_OR_RETURN(const auto challenge, second.OnHello(first.MakeHello(), loopback));
  HIXLD_ASSIGN_OR_RETURN(const auto proof, first.OnChallenge(challenge));
  HIXLD_RETURN_IF_ERROR(second.OnProof(proof));
  CHECK(first.peer_node() == target.node_id);
  CHECK(second.peer_node() == initiator.node_id);
  return absl::OkStatus();
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("daemons with one key prove themselves, on any network") {
  CHECK(Shake(Identity("the key"), Identity("the key"), false).ok());
  CHECK(Shake(Identity("the key"), Identity("the key"), true).ok());
}

TEST_CASE("without a key there is loopback only, unless said otherwise") {
  CHECK(Shake(Identity(), Identity(), true).ok());
  const absl::Status refused = Shake(Identity(), Identity(), false);
  CHECK(ApiCodeOf(refused) == ApiCode::kFailed);
  CHECK_THAT(Message(refused), Contains("security.cluster_key_file"));
  CHECK_THAT(Message(refused), Contains("security.allow_unauthenticated_network"));
  CHECK_THAT(Message(refused), Contains("HIXLD_CLUSTER_KEY_FILE"));
  CHECK(Shake(Identity("", true), Identity("", true), false).ok());
}

TEST_CASE("a key on one side only is refused and says on which") {
  CHECK_THAT(Message(Shake(Identity("k"), Identity(), true)),
             Contains("the connecting daemon has a cluster key"));
  CHECK_THAT(Message(Shake(Identity(), Identity("k"), true)),
             Contains("the listening daemon has a cluster key"));
}

TEST_CASE("different keys are refused by the side that notices first") {
  CHECK_THAT(Message(Shake(Identity("one"), Identity("other"), true)),
             Contains("does not know this daemon's cluster key"));
}

TEST_CASE("a target that cannot prove the key is refused even if it omits its proof") {
  const PeerIdentity initiator = Identity("the key");
  const PeerIdentity target = Identity("the key");
  InitiatorHandshake first(&initiator);
  TargetHandshake second(&target);
  auto challenge = *second.OnHello(first.MakeHello(), true);
  challenge.clear_mac();
  CHECK_FALSE(first.OnChallenge(challenge).ok());
}

TEST_CASE("an initiator cannot play back the target's proof") {
  const PeerIdentity initiator = Identity("the key");
  const PeerIdentity target = Identity("the key");
  InitiatorHandshake first(&initiator);
  TargetHandshake second(&target);
  const auto challenge = *second.OnHello(first.MakeHello(), true);
  hixl::wire::v1::Proof proof;
  proof.set_mac(challenge.mac());
  CHECK_FALSE(second.OnProof(proof).ok());
  proof.clear_mac();
  CHECK_FALSE(second.OnProof(proof).ok());
}

TEST_CASE("another version and impossible sizes are refused by name") {
  const PeerIdentity self = Identity();
  TargetHandshake target(&self);
  auto hello = InitiatorHandshake(&self).MakeHello();
  hello.set_version(2);
  CHECK_THAT(Message(target.OnHello(hello, true).status()), Contains("version 2"));
  hello.set_version(1);
  hello.set_nonce("short");
  CHECK_THAT(Message(target.OnHello(hello, true).status()), Contains("5 bytes"));
}

}  // namespace
}  // namespace hixld
