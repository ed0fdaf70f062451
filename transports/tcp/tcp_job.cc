#include "transports/tcp/tcp_job.h"

#include <algorithm>

namespace hixld {

Stripes CutStripes(const CopyPieces& pieces, uint64_t max_bytes, uint32_t max_pieces) {
  Stripes stripes;
  Stripe stripe;
  auto close = [&](uint32_t next_piece, uint64_t next_offset) {
    if (stripe.bytes > 0) stripes.push_back(stripe);
    stripe = Stripe{.piece = next_piece, .offset = next_offset};
  };
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    for (uint64_t offset = 0; offset < pieces[i].length;) {
      if (stripe.bytes == max_bytes || stripe.pieces == max_pieces) close(i, offset);
      if (stripe.bytes == 0) stripe = Stripe{.piece = i, .offset = offset};
      const uint64_t length = std::min(pieces[i].length - offset, max_bytes - stripe.bytes);
      stripe.bytes += length;
      ++stripe.pieces;
      offset += length;
    }
  }
  close(0, 0);
  return stripes;
}

}  // namespace hixld
