// A session: one client process's tie to the daemon, alive as long as its fd channel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/memory/region.h"
#include "proto/fdchannel/channel.h"
#include "transports/memory_access.h"

namespace hixld {

struct SessionDescription {
  uint64_t id = 0;
  PeerCredentials credentials;
  std::string client_name;
  std::string library_version;
  int64_t opened_at_ns = 0;
  bool process_memory_readable = false;
  uint64_t buffer_bytes = 0;
  std::string state;   // "open", "draining", "stuck"
  std::string detail;  // what a stuck one waits for
};

// What the session gives to the rooms above it. Thread-safe.
class Session {
 public:
  virtual ~Session() = default;
  virtual uint64_t id() const = 0;
  virtual SessionDescription Describe() const = 0;
  // False once the fd channel is closed; from then on calls are refused.
  virtual bool open() const = 0;

  // Runs a task that may block (a device call, freeing memory) on a control thread, in the order
  // of the session's calls; a task that hangs holds up this session alone and `what` is shown as
  // its detail. RESOURCE_EXHAUSTED when too many wait; the task is then not run.
  virtual absl::Status RunBlocking(std::string what, absl::AnyInvocable<void()> task) = 0;

  // The accesses for memory a client registers. Never touches the memory. Errors name the
  // descriptor or range and what is allowed.
  virtual absl::StatusOr<std::shared_ptr<MemoryAccess>> SharedMemoryAccess(
      uint64_t handle, uint64_t offset, uint64_t length, uint64_t* access_offset) = 0;
  virtual absl::StatusOr<std::shared_ptr<MemoryAccess>> BufferAccess(uint64_t buffer_id,
                                                                     uint64_t offset,
                                                                     uint64_t length,
                                                                     uint64_t* access_offset) = 0;
  // Plain memory at [address, address + length) of the client: process_vm where it works, the
  // client's own copying through the relay pool where it does not.
  virtual std::shared_ptr<MemoryAccess> PlainMemoryAccess(uint64_t address, uint64_t length) = 0;

  struct BufferGrant {
    uint64_t buffer_id = 0;
    uint64_t arena_id = 0;
    uint64_t arena_offset = 0;
    uint64_t arena_size = 0;
    uint64_t length = 0;
    uint64_t device_address = 0;
    bool mappable = true;
  };
  // Takes a buffer from the host pool or a device; limits are per session. Device calls may block.
  virtual absl::StatusOr<BufferGrant> AllocateBuffer(uint64_t length, MemoryType type,
                                                     uint64_t alignment, int32_t device_id) = 0;
  // The id is unknown from now on; regions on the buffer keep its memory until they are gone.
  virtual absl::Status FreeBuffer(uint64_t buffer_id) = 0;
};

// Told when sessions end. Called on a control thread, never under a lock of the registry.
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  // The client is gone. The observer fences all in-flight work of the session, lets go of
  // everything that refers to its memory, then calls `released` (from any thread); only then are
  // mappings, buffers and handles freed.
  virtual void OnSessionEnd(uint64_t session_id, absl::AnyInvocable<void()> released) = 0;
};

// All sessions.
class SessionRegistry {
 public:
  virtual ~SessionRegistry() = default;
  // By the token of a gRPC call; UNAUTHENTICATED (absl::StatusCode::kUnauthenticated) when it is
  // missing, malformed, unknown or its session has ended.
  virtual absl::StatusOr<std::shared_ptr<Session>> Find(absl::string_view token) = 0;
  virtual std::vector<SessionDescription> List() const = 0;
  virtual size_t size() const = 0;
};

}  // namespace hixld
