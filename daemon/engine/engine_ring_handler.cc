#include "daemon/engine/engine_ring_handler.h"

#include <utility>

namespace hixld {

void EngineRingHandler::Run(uint64_t session_id, ring::Consumer::Batch batch, Accepted accepted,
                            TransferDone done) {
  const auto engine = engines_->Find(session_id, batch.engine);
  if (!engine.ok()) return done({.status = engine.status()});
  TransferArgs args;
  args.channel_id = batch.channel;
  args.direction = batch.op == ring::Op::kRead ? CopyDirection::kRead : CopyDirection::kWrite;
  args.owned.emplace(std::move(batch.local), std::move(batch.remote), std::move(batch.lengths));
  args.on_accepted = std::move(accepted);
  // Only synchronous calls have a deadline.
  args.may_relay = batch.timeout_ns != 0;
  args.timeout_ns = static_cast<int64_t>(
      std::min<uint64_t>(batch.timeout_ns, static_cast<uint64_t>(kNoDeadline)));
  (*engine)->TransferSync(std::move(args), std::move(done));
}

}  // namespace hixld
