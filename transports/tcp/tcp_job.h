// A transfer on its way over one link, cut into stripes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "transports/transport.h"

namespace hixld {

// What one frame carries: pieces [piece, piece + pieces), from `offset` of the first one, `bytes`
// in all.
struct Stripe {
  uint32_t piece = 0;
  uint32_t pieces = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
using Stripes = absl::InlinedVector<Stripe, 1>;

// Cuts the pieces in order; every stripe has at most `max_bytes` bytes, `max_pieces` pieces and at
// least one byte. Pieces of length 0 are left out or carried along.
Stripes CutStripes(const CopyPieces& pieces, uint64_t max_bytes, uint32_t max_pieces);

// Calls visit(piece, offset, length) for every part of the stripe.
template <typename Visit>
void ForEachPart(const CopyPieces& pieces, const Stripe& stripe, Visit visit) {
  uint64_t left = stripe.bytes;
  uint64_t offset = stripe.offset;
  for (uint32_t i = stripe.piece; left > 0; ++i, offset = 0) {
    const uint64_t length = std::min(pieces[i].length - offset, left);
    if (length > 0) visit(pieces[i], offset, length);
    left -= length;
  }
}

// All fields that change are guarded by the link's mutex.
struct TcpJob {
  // kFencing: it will end with `outcome`, once no byte can land any more.
  enum class Phase : uint8_t { kActive, kFencing, kEnded };

  uint64_t id = 0;
  uint64_t channel = 0;
  CopyDirection direction = CopyDirection::kRead;
  int64_t deadline_ns = kNoDeadline;
  // Some local piece is not mapped: a WRITE gathers its bytes in staging before it sends them.
  bool unmapped = false;
  bool staged() const { return unmapped && direction == CopyDirection::kWrite; }
  Stripes stripes;

  // Until the job has ended. Lanes that hold a stripe may use it without the mutex: the job does
  // not end before they have given the stripe back or have confirmed to have let go of it.
  std::shared_ptr<TransferJob> transfer;
  Phase phase = Phase::kActive;
  uint32_t next = 0;               // the first stripe that no lane ever took
  std::vector<uint32_t> returned;  // stripes to be taken again
  uint32_t unfinished = 0;         // stripes without a good answer
  uint32_t out = 0;                // stripes that lanes hold or dead lanes held
  uint32_t sent = 0;        // stripes that were taken, but for those known to have moved nothing
  uint64_t lanes_used = 0;  // one bit per lane
  bool ready = false;       // in the link's list of jobs with stripes to take
  uint64_t turn_bytes = 0;  // what lanes took since the job came to the front of that list
  std::list<std::shared_ptr<TcpJob>>::iterator ready_at;
  // While fencing:
  absl::Status outcome;
  bool quiet = false;  // no lane touches local memory any more
  bool cancel_sent = false;
  bool target_cancelled = false;  // no byte can land in the target any more
  bool forget_sent = false;
};

}  // namespace hixld
