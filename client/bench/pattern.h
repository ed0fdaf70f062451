// Bytes that can be told from any others: every place of a region has its own, made from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "client/bench/plan.h"

namespace hixld::bench {

// Fills data[0, size) with the pattern's bytes [0, size).
void FillPattern(uint64_t seed, std::byte* data, size_t size);

// Index of the first byte of data[0, size) that is not the pattern's byte at `offset` + index;
// `size` when all are.
size_t FirstMismatch(uint64_t seed, uint64_t offset, const std::byte* data, size_t size);

enum class Side { kLocal, kRemote };

// Checks every byte of one side's region after each block of `plan` was moved at least once. Both
// regions were filled whole, each with its own seed. Blocks that were moved here must hold the
// other side's bytes; all others, blocks that were only read included, must be as they were.
// FAILED tells the first wrong byte: thread, block, offset, value and what it should be.
absl::Status VerifyRegion(const Plan& plan, Side side, uint64_t local_seed, uint64_t remote_seed,
                          const std::byte* data);

}  // namespace hixld::bench
