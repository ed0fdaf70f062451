// The wake baseline: what it costs on this machine to have a sleeping thread look at something.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/bench/round.h"

namespace hixld::bench {

// One mover per thread, each with a thread of its own that sleeps on an eventfd. A transfer writes
// to the eventfd and spins until the sleeper says in memory that it runs: the least that handing
// work to a sleeping process can take. It moves no bytes.
absl::StatusOr<std::vector<std::unique_ptr<Mover>>> WakeMovers(uint64_t threads);

}  // namespace hixld::bench
