// What a session server is built from.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/device/device_manager.h"
#include "daemon/direct/direct_granter.h"
#include "daemon/memory/arena_pool.h"
#include "daemon/memory/executor.h"
#include "daemon/ring/ring_server.h"
#include "proto/base/clock.h"
#include "transports/loop/loop.h"

namespace hixld {

// The keys limits.* of the same names.
struct SessionLimits {
  uint64_t max_sessions = 1024;
  uint64_t max_sessions_per_uid = 512;
  uint64_t max_memory_handles_per_session = 4096;
  uint64_t max_buffers_per_session = 16'384;
  uint64_t max_buffer_bytes_per_session = uint64_t{8} << 30;
};

struct SessionServerOptions {
  // The gRPC socket's path. The fd channel listens at PATH.fd, the lock is PATH.lock.
  std::string socket_path;
  mode_t mode = 0660;
  gid_t group = static_cast<gid_t>(-1);  // -1: the daemon's own
  std::string daemon_version;
  // Random bytes of this start of the daemon; empty: made here.
  std::string incarnation;
  SessionLimits limits;
  // How long a connection may stay without its Hello.
  int64_t hello_timeout_ns = 5 * kNanosPerSecond;
  // How long a client may take for one CopyCommand before its session is ended.
  int64_t copy_timeout_ns = 10 * kNanosPerSecond;
  uint64_t relay_slot_bytes = 1 << 20;
  // Called on a control thread when the last session has been released.
  std::function<void()> on_last_session_gone;
};

// What sessions share. Everything outlives the server and is thread-safe.
struct SessionResources {
  // Where the fd channels live; nothing on it may block.
  Loop* loop = nullptr;
  // Mapping, unmapping, device calls, the end of sessions. Keys are session ids.
  Executor* control = nullptr;
  // Copies from and to other processes' memory. Keys are session ids.
  Executor* copies = nullptr;
  std::shared_ptr<ArenaPool> host_pool;
  std::shared_ptr<ArenaPool> relay_pool;
  // The pools and the devices take their arenas' ids from one source (ArenaIds).
  const DeviceManager* devices = nullptr;
  // Serves the sessions' shared-memory rings; null: there are none.
  RingServer* rings = nullptr;
  // Grants copies that clients make by themselves; null: none are granted.
  DirectGranter* direct = nullptr;
};

}  // namespace hixld
