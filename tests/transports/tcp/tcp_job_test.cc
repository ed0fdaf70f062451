#include "transports/tcp/tcp_job.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace hixld {
namespace {

CopyPiece Piece(uint64_t address, uint64_t length) {
  return CopyPiece{.remote_address = address, .length = length};
}

// Every byte of every piece, once and in order, and no stripe beyond the limits.
void CheckCut(const CopyPieces& pieces, uint64_t max_bytes, uint32_t max_pieces) {
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (const Stripe& stripe : CutStripes(pieces, max_bytes, max_pieces)) {
    uint64_t bytes = 0;
    uint32_t count = 0;
    ForEachPart(pieces, stripe, [&](const CopyPiece& piece, uint64_t offset, uint64_t length) {
      REQUIRE(offset + length <= piece.length);
      parts.emplace_back(piece.remote_address + offset, length);
      bytes += length;
      ++count;
    });
    REQUIRE(bytes == stripe.bytes);
    REQUIRE(count == stripe.pieces);
    REQUIRE(bytes > 0);
    REQUIRE(bytes <= max_bytes);
    REQUIRE(count <= max_pieces);
  }
  size_t at = 0;
  for (const CopyPiece& piece : pieces) {
    for (uint64_t done = 0; done < piece.length; ++at) {
      REQUIRE(at < parts.size());
      REQUIRE(parts[at].first == piece.remote_address + done);
      done += parts[at].second;
      REQUIRE(done <= piece.length);
    }
  }
  REQUIRE(at == parts.size());
}

TEST_CASE("stripes of random lists cover every byte once") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    CopyPieces pieces(random() % 50);
    uint64_t address = 1000;
    for (CopyPiece& piece : pieces) {
      piece = Piece(address, random() % 4 == 0 ? 0 : random() % 300);
      address += piece.length + random() % 2;
    }
    CheckCut(pieces, 1 + random() % 400, 1 + static_cast<uint32_t>(random() % 9));
  }
}

TEST_CASE("lengths beyond 32 bits are cut without loss") {
  const uint64_t length = GENERATE((1ULL << 32) + 1, 5ULL << 30, 1ULL, (1ULL << 20) + 1);
  const CopyPieces pieces = {Piece(1ULL << 40, length), Piece(1, 3)};
  const Stripes stripes = CutStripes(pieces, 1 << 20, 4096);
  uint64_t bytes = 0;
  for (const Stripe& stripe : stripes) bytes += stripe.bytes;
  CHECK(bytes == length + 3);
  CHECK(stripes.size() == (length + 3 + (1 << 20) - 1) >> 20);
  CheckCut(pieces, 1 << 20, 4096);
}

TEST_CASE("nothing to carry is no stripe") {
  CHECK(CutStripes({}, 100, 4).empty());
  CHECK(CutStripes({Piece(5, 0), Piece(9, 0)}, 100, 4).empty());
}

}  // namespace
}  // namespace hixld
