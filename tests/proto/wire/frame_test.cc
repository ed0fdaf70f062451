#include "proto/wire/frame.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "proto/base/status.h"

namespace hixld::wire {
namespace {

std::vector<uint8_t> Encode(const FrameHeader& header) {
  std::vector<uint8_t> bytes(kFrameHeaderBytes);
  EncodeHeader(header, bytes.data());
  return bytes;
}

void CheckRefused(const std::vector<uint8_t>& bytes, const char* field) {
  const auto status = DecodeHeader(bytes).status();
  CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
  CHECK(std::string(status.message()).find(field) != std::string::npos);
}

}  // namespace

TEST_CASE("a frame header is 48 little-endian bytes in a fixed order") {
  const auto bytes = Encode({.type = FrameType::kRead,
                             .flags = 0x0102,
                             .transfer = 0x1112131415161718,
                             .channel = 0x2122232425262728,
                             .stripe = 0x31323334,
                             .pieces = 5,
                             .body = 0x424344,
                             .code = 103901});
  const std::vector<uint8_t> expected = {'H',  'I',  'L',  'X',  1,    4,    0x02, 0x01, 0x18, 0x17,
                                         0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25,
                                         0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 5,    0,
                                         0,    0,    0x44, 0x43, 0x42, 0,    0,    0,    0,    0,
                                         0xdd, 0x95, 0x01, 0,    0,    0,    0,    0};
  CHECK(bytes == expected);
}

TEST_CASE("headers and pieces come back as they went") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const FrameHeader header{.type = static_cast<FrameType>(1 + random() % 6),
                             .flags = static_cast<uint16_t>(random()),
                             .transfer = random(),
                             .channel = random(),
                             .stripe = static_cast<uint32_t>(random()),
                             .pieces = static_cast<uint32_t>(random() % (kMaxPiecesPerFrame + 1)),
                             .body = random() % (kMaxBodyBytes + 1),
                             .code = static_cast<uint32_t>(random())};
    const auto back = DecodeHeader(Encode(header));
    REQUIRE(back.ok());
    CHECK(back->type == header.type);
    CHECK(back->flags == header.flags);
    CHECK(back->transfer == header.transfer);
    CHECK(back->channel == header.channel);
    CHECK(back->stripe == header.stripe);
    CHECK(back->pieces == header.pieces);
    CHECK(back->body == header.body);
    CHECK(back->code == header.code);
    uint8_t piece[kPieceBytes];
    EncodePiece({.address = header.transfer, .length = header.channel}, piece);
    CHECK(DecodePiece(piece).address == header.transfer);
    CHECK(DecodePiece(piece).length == header.channel);
  }
}

TEST_CASE("frames beyond the bounds are refused by field") {
  CheckRefused(std::vector<uint8_t>(47), "size");
  auto bytes = Encode({});
  bytes[0] = 'X';
  CheckRefused(bytes, "magic");
  bytes = Encode({});
  bytes[4] = 2;
  CheckRefused(bytes, "version");
  bytes = Encode({});
  bytes[5] = 0;
  CheckRefused(bytes, "type");
  bytes[5] = 7;
  CheckRefused(bytes, "type");
  bytes = Encode({});
  bytes[44] = 1;
  CheckRefused(bytes, "reserved");
  CheckRefused(Encode({.pieces = kMaxPiecesPerFrame + 1}), "pieces");
  CheckRefused(Encode({.body = kMaxBodyBytes + 1}), "body");
}

TEST_CASE("random bytes never decode beyond the bounds") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<uint8_t> bytes = Encode({});
    // Most bytes stay valid, so that the later checks are reached.
    for (int k = 0; k < 4; ++k) bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    const auto header = DecodeHeader(bytes);
    if (!header.ok()) continue;
    REQUIRE(header->pieces <= kMaxPiecesPerFrame);
    REQUIRE(header->body <= kMaxBodyBytes);
  }
}

}  // namespace hixld::wire
