// How transfers reach the daemon. The engine checks and keeps the books; a submitter only carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/session.h"
#include "proto/ring/layout.h"

namespace hixld::client {

enum class TransferDirection { kRead, kWrite };

// A batch as blocks: every pair of indices, for every pair of tables.
struct BlockView {
  absl::Span<const ring::BlockTables> tables;
  absl::Span<const uint32_t> local_blocks;
  absl::Span<const uint32_t> remote_blocks;  // as many
};

// `count` pieces in the caller's memory, whatever its layout: entry i of each array lies
// i * stride bytes after its first. Or, with `blocks`, table after table.
struct BatchView {
  const uint64_t* local_addresses = nullptr;
  const uint64_t* remote_addresses = nullptr;
  const uint64_t* lengths = nullptr;
  size_t stride = sizeof(uint64_t);
  size_t count = 0;
  const BlockView* blocks = nullptr;

  uint64_t local(size_t i) const {
    if (blocks == nullptr) return At(local_addresses, i);
    const ring::BlockTables& table = TableOf(i);
    return table.local_base + blocks->local_blocks[Pair(i)] * table.local_stride;
  }
  uint64_t remote(size_t i) const {
    if (blocks == nullptr) return At(remote_addresses, i);
    const ring::BlockTables& table = TableOf(i);
    return table.remote_base + blocks->remote_blocks[Pair(i)] * table.remote_stride;
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    if (blocks == nullptr) {
      for (size_t i = 0; i < count; ++i) sum += length(i);
      return sum;
    }
    for (const ring::BlockTables& table : blocks->tables) sum += table.block_bytes;
    return sum * blocks->local_blocks.size();
  }
  uint64_t length(size_t i) const {
    return blocks == nullptr ? At(lengths, i) : TableOf(i).block_bytes;
  }

 private:
  const ring::BlockTables& TableOf(size_t i) const {
    return blocks->tables[i / blocks->local_blocks.size()];
  }
  size_t Pair(size_t i) const { return i % blocks->local_blocks.size(); }
  uint64_t At(const uint64_t* first, size_t i) const {
    return *reinterpret_cast<const uint64_t*>(reinterpret_cast<const std::byte*>(first) +
                                              i * stride);
  }
};

struct TransferCall {
  uint64_t engine_handle = 0;
  std::string remote_engine;
  // The daemon's id of the channel to it; 0 = not known, which only gRPC can carry.
  uint64_t channel_id = 0;
  TransferDirection direction = TransferDirection::kRead;
  BatchView batch;
  int32_t timeout_ms = 0;  // 0 = none, for Submit only
};

enum class TransferOutcome { kWaiting, kCompleted, kFailed };

struct TransferReport {
  uint64_t transfer_id = 0;
  TransferOutcome outcome = TransferOutcome::kWaiting;
  std::string message;  // why it failed
};
// Programs mostly ask for one at a time.
using TransferReports = absl::InlinedVector<TransferReport, 1>;

// Thread-safe. Belongs to one session; errors that end it satisfy IsSessionLost. A call that was
// not answered is never sent again.
class Submitter {
 public:
  virtual ~Submitter() = default;

  // Runs one batch to its end.
  virtual absl::Status Transfer(const TransferCall& call) = 0;
  // Starts one batch; returns its id.
  virtual absl::StatusOr<uint64_t> Submit(const TransferCall& call) = 0;
  // One report per id, in order. A terminal outcome is told once; an unknown
  // id has failed.
  virtual absl::StatusOr<TransferReports> Query(uint64_t engine_handle,
                                                absl::Span<const uint64_t> transfer_ids) = 0;
  // Nobody will ask for this transfer any more.
  virtual void Forget(uint64_t transfer_id) = 0;
};

// Carries transfers over gRPC: works always, costs a round trip each.
std::unique_ptr<Submitter> MakeGrpcSubmitter(std::shared_ptr<Session> session);

// Carries transfers over the session's shared-memory rings: a submission costs no system call
// while the daemon is awake, a status query is a load. What the rings cannot take, and everything
// where the daemon offers none, goes to `fallback`.
std::unique_ptr<Submitter> MakeRingSubmitter(std::shared_ptr<Session> session,
                                             std::unique_ptr<Submitter> fallback);

}  // namespace hixld::client
