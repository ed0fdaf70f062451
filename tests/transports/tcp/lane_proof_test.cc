#include "transports/tcp/lane_proof.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace hixld {
namespace {

TEST_CASE("a proof depends on the secret, the side and everything it names") {
  const std::string secret(32, 'a');
  std::set<std::string> proofs;
  proofs.insert(LaneProof(secret, LaneSide::kInitiator, 1, 2, 3));
  proofs.insert(LaneProof(std::string(32, 'b'), LaneSide::kInitiator, 1, 2, 3));
  proofs.insert(LaneProof(secret, LaneSide::kTarget, 1, 2, 3));
  proofs.insert(LaneProof(secret, LaneSide::kInitiator, 2, 2, 3));
  proofs.insert(LaneProof(secret, LaneSide::kInitiator, 1, 3, 3));
  proofs.insert(LaneProof(secret, LaneSide::kInitiator, 1, 2, 4));
  CHECK(proofs.size() == 6);
  for (const std::string& proof : proofs) CHECK(proof.size() == 32);
  CHECK(LaneProof(secret, LaneSide::kInitiator, 1, 2, 3) ==
        LaneProof(secret, LaneSide::kInitiator, 1, 2, 3));
}

TEST_CASE("proofs are equal only as a whole") {
  CHECK(ProofsEqual("abc", "abc"));
  CHECK_FALSE(ProofsEqual("abc", "abd"));
  CHECK_FALSE(ProofsEqual("abc", "ab"));
  CHECK_FALSE(ProofsEqual("", "a"));
}

}  // namespace
}  // namespace hixld
