// Which blocks a case moves: the same plan gives the same blocks in the initiator and the target.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hixld::bench {

enum class Op { kRead, kWrite, kMix };
enum class Layout {
  kContiguous,  // block after block, in order, on both sides
  kScattered,   // apart from each other, placed at random, differently on both sides
  kShuffled,    // block after block, but listed in a random order
};

// How a batch is handed to the library.
enum class BatchForm {
  kDescriptors,  // Hixl, a vector of descriptors
  kArrays,       // HixlExt::TransferArrays
  kBlocks,       // HixlExt::BlockBatch
};

// Names in the order of the enums, as options and reports spell them.
const std::vector<std::string>& OpNames();
const std::vector<std::string>& LayoutNames();
const std::vector<std::string>& BatchFormNames();

// A seeded generator whose numbers are the same everywhere (SplitMix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Evenly from 0 to bound - 1.
  uint64_t Below(uint64_t bound);

 private:
  uint64_t state_;
};

struct Plan {
  Op op = Op::kRead;
  Layout layout = Layout::kContiguous;
  uint64_t block = 4096;  // bytes
  uint64_t batch = 1;     // blocks per transfer
  uint64_t threads = 1;
  // Each thread moves tensors x blocks_per_tensor blocks in turn. Blocks of one index have the
  // same place in every tensor, as the blocks of a paged KV cache have.
  uint64_t tensors = 1;
  uint64_t blocks_per_tensor = 1;
  uint64_t seed = 1;

  uint64_t blocks_per_thread() const { return tensors * blocks_per_tensor; }
  // Transfers after which a thread begins again.
  uint64_t transfers_per_thread() const;
  // Whether transfer `index` of a thread is a read.
  bool IsRead(uint64_t index) const;
  // Bytes that one side needs, with the guards at its ends.
  uint64_t RegionBytes() const;

  // "op=read layout=scattered ...", and back.
  std::string ToText() const;
  static absl::StatusOr<Plan> FromText(absl::string_view text);
};

// One block; offsets count from the start of each side's region.
struct Block {
  uint64_t local;
  uint64_t remote;
  uint64_t length;
};

// Bytes from one place for a block to the next; every block lies a multiple of it after the first
// place of its thread.
uint64_t BlockStride(const Plan& plan);

// All blocks of thread `thread`, in the order in which they are moved; transfer i takes those from
// i * batch on. The last transfer may have fewer.
std::vector<Block> BlocksOfThread(const Plan& plan, uint64_t thread);

}  // namespace hixld::bench
