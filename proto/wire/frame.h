// Frames on a data lane between two daemons: a fixed header, a table of pieces, a body.
// All integers are little-endian. See docs/wire-format.md.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hixld::wire {

constexpr uint32_t kFrameMagic = 0x584c4948;  // "HILX" in memory order
constexpr uint8_t kFrameVersion = 1;
constexpr size_t kFrameHeaderBytes = 48;
constexpr size_t kPieceBytes = 16;
// Bounds that both sides check before they allocate or read anything.
constexpr uint32_t kMaxPiecesPerFrame = 4096;
constexpr uint64_t kMaxBodyBytes = 16ULL << 20;
// The body of an answer with an error: a serialized hixl.wire.v1.Error (peer.proto).
constexpr uint64_t kMaxErrorBytes = 4096;
// The body of kLaneHello and kLaneWelcome.
constexpr size_t kLaneProofBytes = 32;

enum class FrameType : uint8_t {
  kLaneHello = 1,    // initiator -> target, first on a lane; body: 32-byte proof
  kWrite = 2,        // initiator -> target: pieces, then body
  kWriteAck = 3,     // target -> initiator: `code`, no body
  kRead = 4,         // initiator -> target: pieces, no body
  kReadData = 5,     // target -> initiator: body, or `code` != 0 and no body
  kLaneWelcome = 6,  // target -> initiator, answers kLaneHello
};

// Layout: magic 4, version 1, type 1, flags 2, transfer 8, channel 8, stripe 4, pieces 4, body 8,
// code 4, reserved 4.
struct FrameHeader {
  FrameType type = FrameType::kWrite;
  uint16_t flags = 0;
  uint64_t transfer = 0;  // unique among the initiator's transfers; kLaneHello: link id
  uint64_t channel = 0;   // the target's channel id; kLaneHello: lane index
  uint32_t stripe = 0;    // of the transfer; kLaneHello: generation of the lane's connection
  uint32_t pieces = 0;
  uint64_t body = 0;  // bytes of body that follow (kRead: bytes asked for)
  uint32_t code = 0;  // API result code in answers, 0 = success
};

// One contiguous range of the target's memory.
struct Piece {
  uint64_t address = 0;
  uint64_t length = 0;
};

void EncodeHeader(const FrameHeader& header, uint8_t out[kFrameHeaderBytes]);
// Refuses wrong magic, version, type, reserved bits and anything beyond the bounds above.
absl::StatusOr<FrameHeader> DecodeHeader(absl::Span<const uint8_t> bytes);

void EncodePiece(const Piece& piece, uint8_t out[kPieceBytes]);
Piece DecodePiece(const uint8_t in[kPieceBytes]);

}  // namespace hixld::wire
