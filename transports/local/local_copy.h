// What the two kinds of local copies have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "transports/transport.h"

namespace hixld {

// One transfer that is being copied.
class LocalCopy {
 public:
  virtual ~LocalCopy() = default;
  // Any thread.
  virtual void Cancel(absl::Status reason) = 0;
};

inline const MemoryRef& SourceOf(const CopyPiece& piece, CopyDirection direction) {
  return direction == CopyDirection::kRead ? piece.remote : piece.local;
}
inline const MemoryRef& TargetOf(const CopyPiece& piece, CopyDirection direction) {
  return direction == CopyDirection::kRead ? piece.local : piece.remote;
}

// nullptr when it is not mapped.
inline std::byte* MappedAt(const MemoryRef& ref) {
  std::byte* mapped = ref.access->mapped();
  return mapped == nullptr ? nullptr : mapped + ref.offset;
}

// "transfer 7 passed its deadline with 4096 of 8192 bytes copied".
absl::Status DeadlinePassed(const TransferJob& job);

// Ends the transfer; `job` may be gone afterwards.
void EndTransfer(std::shared_ptr<TransferJob> job, absl::Status status);

}  // namespace hixld
