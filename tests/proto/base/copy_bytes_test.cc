#include "proto/base/copy_bytes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace hixld {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kSize = 64 << 10;

Bytes Random(unsigned seed) {
  std::minstd_rand random(seed);
  Bytes bytes(kSize);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 7);
  return bytes;
}

TEST_CASE("Every byte of the range is copied and none beside it, at any place and of any length") {
  std::mt19937_64 random(1);
  const Bytes source = Random(1);
  const Bytes before = Random(2);
  for (int round = 0; round < 2000; ++round) {
    const size_t length = random() % (round % 2 == 0 ? 300 : kSize / 2);
    const size_t from = random() % (kSize - length);
    const size_t to = random() % (kSize - length);
    Bytes target = before;
    Bytes expected = before;
    std::copy_n(source.begin() + from, length, expected.begin() + to);
    CopyBytes(target.data() + to, source.data() + from, length, /*streaming=*/round % 3 != 0);
    INFO(length << " bytes from " << from << " to " << to);
    REQUIRE(target == expected);
  }
}

TEST_CASE("Ranges may overlap") {
  for (const bool streaming : {false, true}) {
    for (const size_t distance : {1, 63, 64, 4096, 20'000}) {
      const Bytes before = Random(3);
      const size_t length = kSize - distance;
      Bytes up = before;
      CopyBytes(up.data() + distance, up.data(), length, streaming);
      CHECK(std::equal(up.begin() + distance, up.end(), before.begin()));
      Bytes down = before;
      CopyBytes(down.data(), down.data() + distance, length, streaming);
      CHECK(std::equal(before.begin() + distance, before.end(), down.begin()));
    }
  }
}

TEST_CASE("Each way to stream that this processor has copies the same bytes") {
  const Bytes source = Random(4);
  for (const auto stream : copy_internal::StreamWays()) {
    Bytes target(kSize);
    const size_t head = -reinterpret_cast<uintptr_t>(target.data()) & 63;
    const size_t length = (kSize - head) / 64 * 64 - 64;
    stream(target.data() + head, source.data() + 5, length - 64);
    CHECK(
        std::equal(target.begin() + head, target.begin() + head + length - 64, source.begin() + 5));
    CHECK(std::all_of(target.begin() + head + length - 64, target.end(),
                      [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

}  // namespace
}  // namespace hixld
