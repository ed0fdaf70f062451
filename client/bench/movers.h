// What a round repeats: hixld's transfers, and the same blocks by memcpy.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "client/bench/engine.h"
#include "client/bench/plan.h"
#include "client/bench/round.h"

namespace hixld::bench {

// Where the regions of a case lie.
struct Places {
  uintptr_t local = 0;
  uintptr_t remote = 0;
};

struct TransferSettings {
  std::string remote_engine;
  BatchForm form = BatchForm::kDescriptors;
  int32_t timeout_ms = 0;
  // 0: synchronous.
  uint64_t depth = 0;
};

// One mover per thread of `plan`. The engine outlives them.
std::vector<std::unique_ptr<Mover>> TransferMovers(Engine& engine, const Plan& plan, Places places,
                                                   const TransferSettings& settings);

// The same blocks in the same order, read from or written to `remote`, which is memory of this
// process; all of it shared by `threads` threads, piece by piece.
std::vector<std::unique_ptr<Mover>> MemcpyMovers(const Plan& plan, std::byte* local,
                                                 std::byte* remote, uint64_t threads);

}  // namespace hixld::bench
