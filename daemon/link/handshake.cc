#include "daemon/link/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

constexpr char kKeyOption[] = "security.cluster_key_file";

// HMAC-SHA256 over the role, both nonces and both node ids. The role keeps one side's proof from
// being played back as the other's.
std::string Mac(const std::string& key, absl::string_view role, const std::string& initiator_nonce,
                const std::string& target_nonce, const std::string& initiator_node,
                const std::string& target_node) {
  if (key.empty()) return "";
  const std::string text =
      absl::StrCat(role, initiator_nonce, target_nonce, initiator_node, target_node);
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac, &length);
  return std::string(reinterpret_cast<const char*>(mac), length);
}

bool SameBytes(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::Status CheckVersion(uint32_t version) {
  if (version == kPeerProtocolVersion) return absl::OkStatus();
  return Failed(absl::StrCat("the peer daemon speaks version ", version,
                             " of the peer protocol; this one speaks ", kPeerProtocolVersion),
                {.object = "peer protocol", .allowed = absl::StrCat(kPeerProtocolVersion)});
}

absl::Status CheckSizes(absl::string_view message, const std::string& node,
                        const std::string& nonce) {
  if (node.size() == kNodeIdBytes && nonce.size() == kNonceBytes) return absl::OkStatus();
  return ParamInvalid(
      absl::StrCat(message, " has a node id of ", node.size(), " and a nonce of ", nonce.size(),
                   " bytes; allowed: ", kNodeIdBytes, " and ", kNonceBytes),
      {.object = std::string(message)});
}

absl::Status OneKey(absl::string_view with, absl::string_view without) {
  return Failed(absl::StrCat(with, " has a cluster key (", kKeyOption, ") and ", without,
                             " has none; set ", kKeyOption, " on both or on neither"),
                {.object = "cluster key", .option = kKeyOption});
}

absl::Status WrongKey(absl::string_view who) {
  return Failed(absl::StrCat(who, " does not know this daemon's cluster key; ", kKeyOption,
                             " must name the same key on both sides"),
                {.object = "cluster key", .option = kKeyOption});
}

}  // namespace

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    // Without randomness nobody can be told apart from anybody.
    std::abort();
  }
  return bytes;
}

absl::Status CheckNetworkAllowed(const PeerIdentity& self, bool loopback, absl::string_view what) {
  if (loopback || !self.cluster_key.empty() || self.allow_unauthenticated_network) {
    return absl::OkStatus();
  }
  return Failed(
      absl::StrCat(what,
                   " is refused: it goes beyond loopback and peers could not be "
                   "authenticated. Set security.cluster_key_file (HIXLD_CLUSTER_KEY_FILE "
                   "for a private daemon), or security.allow_unauthenticated_network: true "
                   "(HIXLD_ALLOW_UNAUTHENTICATED_NETWORK=1)"),
      {.object = std::string(what),
       .option = "security.cluster_key_file, security.allow_unauthenticated_network",
       .allowed = "loopback addresses"});
}

InitiatorHandshake::InitiatorHandshake(const PeerIdentity* self)
    : self_(self), nonce_(RandomBytes(kNonceBytes)) {}

hixl::wire::v1::Hello InitiatorHandshake::MakeHello() const {
  hixl::wire::v1::Hello hello;
  hello.set_version(kPeerProtocolVersion);
  hello.set_node_id(self_->node_id);
  hello.set_nonce(nonce_);
  hello.set_has_key(!self_->cluster_key.empty());
  return hello;
}

absl::StatusOr<hixl::wire::v1::Proof> InitiatorHandshake::OnChallenge(
    const hixl::wire::v1::Challenge& challenge) {
  HIXLD_RETURN_IF_ERROR(CheckVersion(challenge.version()));
  HIXLD_RETURN_IF_ERROR(CheckSizes("Challenge", challenge.node_id(), challenge.nonce()));
  const std::string& key = self_->cluster_key;
  if (key.empty() && !challenge.mac().empty()) return OneKey("the peer daemon", "this one");
  if (!key.empty() && challenge.mac().empty()) return OneKey("this daemon", "the peer");
  const std::string expected =
      Mac(key, "hixld target", nonce_, challenge.nonce(), self_->node_id, challenge.node_id());
  if (!SameBytes(expected, challenge.mac())) return WrongKey("the peer daemon");
  peer_node_ = challenge.node_id();
  hixl::wire::v1::Proof proof;
  proof.set_mac(
      Mac(key, "hixld initiator", nonce_, challenge.nonce(), self_->node_id, challenge.node_id()));
  return proof;
}

TargetHandshake::TargetHandshake(const PeerIdentity* self)
    : self_(self), nonce_(RandomBytes(kNonceBytes)) {}

absl::StatusOr<hixl::wire::v1::Challenge> TargetHandshake::OnHello(
    const hixl::wire::v1::Hello& hello, bool loopback) {
  HIXLD_RETURN_IF_ERROR(CheckVersion(hello.version()));
  HIXLD_RETURN_IF_ERROR(CheckSizes("Hello", hello.node_id(), hello.nonce()));
  const std::string& key = self_->cluster_key;
  if (key.empty() && hello.has_key()) return OneKey("the connecting daemon", "the listening one");
  if (!key.empty() && !hello.has_key()) return OneKey("the listening daemon", "the connecting one");
  HIXLD_RETURN_IF_ERROR(CheckNetworkAllowed(*self_, loopback, "a connection from another host"));
  peer_nonce_ = hello.nonce();
  peer_node_ = hello.node_id();
  hixl::wire::v1::Challenge challenge;
  challenge.set_version(kPeerProtocolVersion);
  challenge.set_node_id(self_->node_id);
  challenge.set_nonce(nonce_);
  challenge.set_mac(Mac(key, "hixld target", peer_nonce_, nonce_, peer_node_, self_->node_id));
  return challenge;
}

absl::Status TargetHandshake::OnProof(const hixl::wire::v1::Proof& proof) const {
  const std::string expected =
      Mac(self_->cluster_key, "hixld initiator", peer_nonce_, nonce_, peer_node_, self_->node_id);
  if (!SameBytes(expected, proof.mac())) return WrongKey("the connecting daemon");
  return absl::OkStatus();
}

}  // namespace hixld
