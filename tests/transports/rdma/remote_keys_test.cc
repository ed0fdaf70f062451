// What an initiator remembers of a target's keys.
#include "transports/rdma/remote_keys.h"

#include <catch2/catch.hpp>

#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

hixl::wire::v1::RdmaKey Key(uint64_t address, uint64_t length, uint64_t remote, uint32_t key) {
  hixl::wire::v1::RdmaKey message;
  message.set_address(address);
  message.set_length(length);
  message.set_remote_address(remote);
  message.set_key(key);
  return message;
}

TEST_CASE("A key is found for each byte that it covers, and for no other") {
  RemoteKeys keys;
  REQUIRE(keys.Add(Key(1000, 100, 5000, 7)).ok());
  CHECK_FALSE(keys.Find(999));
  CHECK_FALSE(keys.Find(1100));
  for (const uint64_t address : {1000, 1050, 1099}) {
    const auto found = keys.Find(address);
    REQUIRE(found);
    CHECK(found->key == 7);
    CHECK(found->AddressOf(address) == address + 4000);
    CHECK(found->BytesFrom(address) == 1100 - address);
  }
}

TEST_CASE("A later key takes the place of those that it touches") {
  RemoteKeys keys;
  REQUIRE(keys.Add(Key(0, 10, 100, 1)).ok());
  REQUIRE(keys.Add(Key(10, 10, 200, 2)).ok());
  REQUIRE(keys.Add(Key(30, 10, 300, 3)).ok());
  REQUIRE(keys.Add(Key(5, 10, 900, 4)).ok());
  CHECK(keys.size() == 2);
  CHECK_FALSE(keys.Find(4));
  CHECK(keys.Find(5)->key == 4);
  CHECK(keys.Find(14)->key == 4);
  CHECK_FALSE(keys.Find(15));
  CHECK(keys.Find(30)->key == 3);
}

TEST_CASE("A range that cannot be is refused and changes nothing") {
  RemoteKeys keys;
  REQUIRE(keys.Add(Key(0, 10, 100, 1)).ok());
  for (const auto& wrong :
       {Key(5, 0, 0, 2), Key(UINT64_MAX - 3, 10, 0, 2), Key(5, 10, UINT64_MAX - 3, 2)}) {
    const absl::Status refused = keys.Add(wrong);
    CHECK(ApiCodeOf(refused) == ApiCode::kFailed);
    CHECK_THAT(std::string(refused.message()), Catch::Contains("impossible range"));
  }
  CHECK(keys.size() == 1);
  CHECK(keys.Find(5)->key == 1);
}

}  // namespace
}  // namespace hixld::rdma
