#include "transports/tcp/lane_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <vector>

#include "proto/wire/frame.h"

namespace hixld {
namespace {

template <typename T>
void Append(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

std::string LaneProof(absl::string_view secret, LaneSide side, uint64_t link_id, uint32_t lane,
                      uint32_t generation) {
  std::string message = side == LaneSide::kInitiator ? "hixld lane hello" : "hixld lane welcome";
  Append(&message, link_id);
  Append(&message, lane);
  Append(&message, generation);
  std::string mac(wire::kLaneProofBytes, '\0');
  unsigned length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &length);
  return mac;
}

bool ProofsEqual(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace hixld
