// Memory that only the client's own process may touch: the client copies between it and an arena
// that it shares with the daemon, by command. Slower than every other way by one copy and two
// wake-ups; used where ptrace access is refused, and for devices that only their owner can reach.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "daemon/memory/arena_pool.h"
#include "daemon/memory/executor.h"
#include "proto/base/mutex.h"
#include "proto/fdchannel/fdchannel.pb.h"
#include "transports/memory_access.h"

namespace hixld {

// What addresses in a client mean.
struct ClientSpace {
  bool device = false;
  int32_t device_id = 0;
};

// One session's relay. Its arena is mapped by that session's client alone. A client that never
// answers, or lies, spoils its own transfers and slots only: nothing here waits for a client while
// it holds a lock or a thread, and Close ends everything. Thread-safe.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  using CopyCommand = hixl::fdchannel::v1::CopyCommand;
  using CopyDone = hixl::fdchannel::v1::CopyDone;

  struct Options {
    uint64_t session_id = 0;  // owner of the arena and key of the copies
    std::string client;       // in messages: "pid 12"
    uint64_t slot_bytes = 1 << 20;
    // As many as the pool has room for, but at most these.
    uint32_t max_slots = 4;
    // Operations that wait for a slot, at most.
    uint32_t max_waiting = 4096;
  };
  // Sends a command to the client; never blocks, and drops it when the client is gone.
  using Send = std::function<void(uint64_t request_id, CopyCommand command)>;

  // `pool` lends the arena, taken with the first copy. `executor` outlives the relay.
  Relay(Options options, std::shared_ptr<ArenaPool> pool, Executor* executor, Send send);

  enum class Direction : uint8_t { kFromClient, kToClient };
  // Copies between the client's memory, where slice offsets count from `base`, and host buffers.
  // `done` as for MemoryAccess.
  void Copy(Direction direction, ClientSpace space, uint64_t base,
            std::vector<MemoryAccess::Slice> slices, MemoryAccess::Done done);

  // The client's answer. PARAM_INVALID when nothing was asked by that id.
  absl::Status OnAnswer(uint64_t request_id, const CopyDone& answer);
  // Ends all copies with `reason`, and every later one at once. May block while memory is freed.
  void Close(absl::Status reason);

  // When the oldest command that still waits for its answer was sent (CLOCK_MONOTONIC).
  std::optional<int64_t> OldestCommand() const;
  // The arena of that id, or nullptr.
  std::shared_ptr<const Arena> FindArena(uint64_t arena_id) const;

 private:
  struct Operation;
  struct Piece;
  using PiecePtr = std::shared_ptr<Piece>;

  absl::Status TakeArena() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fills free slots with pieces of waiting operations.
  std::vector<PiecePtr> Cut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PiecePtr CutOne(Operation* operation, uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Launch(std::vector<PiecePtr> pieces);
  void SendCommand(PiecePtr piece);
  void Finish(const PiecePtr& piece, absl::Status status);

  const Options options_;
  const std::shared_ptr<ArenaPool> pool_;
  Executor* const executor_;
  const Send send_;

  mutable Mutex mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ArenaPool::Buffer> buffer_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> free_slots_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Operation>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, PiecePtr> sent_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_request_id_ ABSL_GUARDED_BY(mutex_) = 1;
};

// Memory of a client that is reached through its relay.
class RelayAccess : public MemoryAccess {
 public:
  RelayAccess(std::shared_ptr<Relay> relay, ClientSpace space, uint64_t address, uint64_t length,
              std::string description);

  void Read(std::vector<Slice> slices, Done done) override;
  void Write(std::vector<Slice> slices, Done done) override;
  absl::string_view description() const override { return description_; }

 private:
  const std::shared_ptr<Relay> relay_;
  const ClientSpace space_;
  const uint64_t address_;
  const std::string description_;
};

}  // namespace hixld
