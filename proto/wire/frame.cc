#include "proto/wire/frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::wire {
namespace {

template <typename T>
void Put(uint8_t* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

template <typename T>
T Get(const uint8_t* in) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(in[i]) << (8 * i);
  return value;
}

absl::Status BadFrame(absl::string_view field, uint64_t value, absl::string_view allowed) {
  return ParamInvalid(
      absl::StrCat("lane frame refused: ", field, " is ", value, "; allowed: ", allowed),
      {.object = "lane frame", .allowed = std::string(allowed)});
}

}  // namespace

void EncodeHeader(const FrameHeader& header, uint8_t out[kFrameHeaderBytes]) {
  Put<uint32_t>(out, kFrameMagic);
  out[4] = kFrameVersion;
  out[5] = static_cast<uint8_t>(header.type);
  Put<uint16_t>(out + 6, header.flags);
  Put<uint64_t>(out + 8, header.transfer);
  Put<uint64_t>(out + 16, header.channel);
  Put<uint32_t>(out + 24, header.stripe);
  Put<uint32_t>(out + 28, header.pieces);
  Put<uint64_t>(out + 32, header.body);
  Put<uint32_t>(out + 40, header.code);
  Put<uint32_t>(out + 44, 0);
}

absl::StatusOr<FrameHeader> DecodeHeader(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return BadFrame("size", bytes.size(), "48 bytes");
  const uint8_t* in = bytes.data();
  if (Get<uint32_t>(in) != kFrameMagic) return BadFrame("magic", Get<uint32_t>(in), "1481394504");
  if (in[4] != kFrameVersion) return BadFrame("version", in[4], "1");
  if (in[5] < 1 || in[5] > 6) return BadFrame("type", in[5], "1..6");
  if (Get<uint32_t>(in + 44) != 0) return BadFrame("reserved", Get<uint32_t>(in + 44), "0");
  FrameHeader header;
  header.type = static_cast<FrameType>(in[5]);
  header.flags = Get<uint16_t>(in + 6);
  header.transfer = Get<uint64_t>(in + 8);
  header.channel = Get<uint64_t>(in + 16);
  header.stripe = Get<uint32_t>(in + 24);
  header.pieces = Get<uint32_t>(in + 28);
  header.body = Get<uint64_t>(in + 32);
  header.code = Get<uint32_t>(in + 40);
  if (header.pieces > kMaxPiecesPerFrame) return BadFrame("pieces", header.pieces, "0..4096");
  if (header.body > kMaxBodyBytes) return BadFrame("body", header.body, "0..16777216");
  return header;
}

void EncodePiece(const Piece& piece, uint8_t out[kPieceBytes]) {
  Put<uint64_t>(out, piece.address);
  Put<uint64_t>(out + 8, piece.length);
}

Piece DecodePiece(const uint8_t in[kPieceBytes]) {
  return Piece{.address = Get<uint64_t>(in), .length = Get<uint64_t>(in + 8)};
}

}  // namespace hixld::wire
