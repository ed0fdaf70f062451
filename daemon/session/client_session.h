// One client's session: its memory handles, buffers and limits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "daemon/memory/process_memory.h"
#include "daemon/memory/relay.h"
#include "daemon/session/session.h"
#include "daemon/session/session_options.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"

namespace hixld {

// Thread-safe; its lock is held for look-ups only, never while memory is mapped, allocated or
// freed.
class ClientSession : public Session {
 public:
  struct Identity {
    uint64_t id = 0;
    PeerCredentials credentials;
    std::string client_name;
    std::string library_version;
    int64_t opened_at_ns = 0;
    // The client answers CopyCommand.
    bool serves_copy_commands = false;
  };

  // `target` is null when plain memory of the process is out of the daemon's reach.
  ClientSession(Identity identity, const SessionLimits& limits, const SessionResources& resources,
                std::shared_ptr<const ProcessTarget> target, uint64_t relay_slot_bytes,
                Relay::Send send);

  uint64_t id() const override { return identity_.id; }
  SessionDescription Describe() const override;
  bool open() const override { return open_.load(std::memory_order_acquire); }
  absl::Status RunBlocking(std::string what, absl::AnyInvocable<void()> task) override;
  absl::StatusOr<std::shared_ptr<MemoryAccess>> SharedMemoryAccess(
      uint64_t handle, uint64_t offset, uint64_t length, uint64_t* access_offset) override;
  absl::StatusOr<std::shared_ptr<MemoryAccess>> BufferAccess(uint64_t buffer_id, uint64_t offset,
                                                             uint64_t length,
                                                             uint64_t* access_offset) override;
  std::shared_ptr<MemoryAccess> PlainMemoryAccess(uint64_t address, uint64_t length) override;
  absl::StatusOr<BufferGrant> AllocateBuffer(uint64_t length, MemoryType type, uint64_t alignment,
                                             int32_t device_id) override;
  absl::Status FreeBuffer(uint64_t buffer_id) override;

  const Identity& identity() const { return identity_; }
  const std::shared_ptr<Relay>& relay() const { return relay_; }

  // Checks and maps memory that the client passed. May block.
  absl::StatusOr<uint64_t> PutMemory(UniqueFd fd, uint64_t size);
  void DropMemory(uint64_t handle);
  // The arena of that id if the session has a buffer in it, else PARAM_INVALID.
  absl::StatusOr<std::shared_ptr<const Arena>> FindArena(uint64_t arena_id) const;

  // What a thread that works for this session hangs in; empty when it has come back.
  void SetStuck(std::string what);
  // The first half of the end: every further call is refused.
  void MarkClosed();
  // The second half: nobody uses the memory any more. Gives everything to the control executor.
  void ReleaseAll();

 private:
  // Buffers and bytes against the session's limits. Shared with the buffers, which may outlive
  // their ids.
  struct Usage {
    Mutex mutex;
    uint64_t buffers ABSL_GUARDED_BY(mutex) = 0;
    uint64_t bytes ABSL_GUARDED_BY(mutex) = 0;
  };
  class Charge;
  struct BufferMemory;
  struct Buffer {
    std::shared_ptr<BufferMemory> memory;
    uint64_t length = 0;
    std::shared_ptr<const Arena> arena;  // null: the client cannot map it
  };
  struct ArenaUse {
    std::shared_ptr<const Arena> arena;
    uint64_t buffers = 0;
  };

  absl::Status CheckOpen() const;
  absl::StatusOr<std::unique_ptr<Charge>> Reserve(uint64_t length);
  absl::Status FillHostBuffer(BufferMemory* memory, uint64_t length, uint64_t alignment,
                              BufferGrant* grant);
  absl::Status FillDeviceBuffer(BufferMemory* memory, uint64_t length, uint64_t alignment,
                                int32_t device_id, BufferGrant* grant);
  void ForgetArena(const Buffer& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Identity identity_;
  const std::string process_name_;  // "pid 12"
  const SessionLimits limits_;
  const SessionResources resources_;
  const std::shared_ptr<const ProcessTarget> target_;
  const std::shared_ptr<Relay> relay_;
  const std::shared_ptr<Usage> usage_;
  std::atomic<bool> open_{true};

  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;  // of handles and buffers
  std::unordered_map<uint64_t, std::shared_ptr<MemoryAccess>> handles_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Buffer> buffers_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, ArenaUse> arenas_ ABSL_GUARDED_BY(mutex_);
  std::string stuck_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld
