// From the descriptors of one call to the pieces of a transfer job (contract 1.3, 1.6, 1.8).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "daemon/engine/link_rule.h"
#include "daemon/memory/region.h"
#include "daemon/memory/uncovered.h"
#include "transports/transport.h"

namespace hixld {

// The three arrays of a batch; entry i copies lengths[i] bytes between local[i] and remote[i].
struct BatchView {
  absl::Span<const uint64_t> local;
  absl::Span<const uint64_t> remote;
  absl::Span<const uint64_t> lengths;
  size_t size() const { return lengths.size(); }
};

// A batch of one's own, for calls that have to wait before they can be checked.
class OwnedBatch {
 public:
  // As the rings deliver them.
  using Words = absl::InlinedVector<uint64_t, 2>;
  OwnedBatch() = default;
  explicit OwnedBatch(const BatchView& view);
  // Takes three arrays of one length.
  OwnedBatch(Words local, Words remote, Words lengths);
  BatchView view() const { return {local_, remote_, lengths_}; }

 private:
  Words local_;
  Words remote_;
  Words lengths_;
};

// The arrays have one length, at most `max_descriptors`, and no address is null. An empty batch
// passes: that it is refused is checked after the connection (contract 1.3).
absl::Status CheckBatch(const BatchView& batch, uint64_t max_descriptors);

enum class BatchSide : uint8_t { kLocal, kRemote };

struct BatchPlan {
  CopyPieces pieces;
  uint64_t bytes = 0;
  // The remote regions it touches, each once; empty when they belong to another daemon.
  std::vector<uint64_t> remote_regions;
  // On failure: which side's range was refused.
  BatchSide refused = BatchSide::kLocal;
  // ... and whether that is only because nobody has registered it.
  bool unregistered = false;
};

// The ranges of one side of a batch that PlanBatch refused as unregistered; those that cannot be
// are left out.
std::vector<AddressRange> RangesOf(absl::Span<const uint64_t> addresses,
                                   absl::Span<const uint64_t> lengths);

// Some batches have descriptors of one kind only: as for the types of memory on both sides.
// PARAM_INVALID names the first that differs, `what` is of one kind and the option that makes it
// so.
struct OneKindRule {
  const char* what;
  const char* option;
};
// Contract 1.11 and 6.1 (B26).
constexpr OneKindRule kRelayedBatch = {"a batch with unregistered memory", "BufferPool"};
constexpr OneKindRule kFabricBatch = {"a batch over fabric memory", "EnableUseFabricMem"};
absl::Status CheckOneKind(const BatchView& batch, const RegionSnapshot& local,
                          const RegionSnapshot& remote, const OneKindRule& rule);

// Checks every descriptor against both sides' regions before anything moves, and joins
// neighbours that are adjacent on both sides within the same regions. `remote_here`: the remote
// regions belong to an engine of this daemon and the pieces refer to their memory; otherwise
// pieces carry remote addresses. PARAM_INVALID names the descriptor, the side, the range and the
// nearest region. `rule`: what the products allow, or nullptr; what it refuses is UNSUPPORTED.
absl::Status PlanBatch(const BatchView& batch, const RegionSnapshot& local,
                       const RegionSnapshot& remote, bool remote_here, BatchPlan* plan,
                       const LinkRule* rule = nullptr);

}  // namespace hixld
