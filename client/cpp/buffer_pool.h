// Buffers that the daemon's pool lent to this process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/arena.h"
#include "client/cpp/memory_table.h"
#include "client/cpp/session.h"
#include "proto/base/mutex.h"

namespace hixld::client {

class Connection;

// Thread-safe. Tells which buffer an address lies in.
class BufferIndex {
 public:
  void Add(uint64_t address, uint64_t length, MemoryBacking start);
  void Remove(uint64_t address);
  // The backing of a range that lies in one buffer as a whole.
  std::optional<MemoryBacking> Find(const MemoryRange& range) const;

 private:
  struct Entry {
    uint64_t length;
    MemoryBacking start;  // of the buffer's first byte
  };
  mutable Mutex mutex_;
  std::map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

// Owns one buffer; gives it back when destroyed. Keeps the session open as long as it lives.
class PoolBuffer {
 public:
  // `length` > 0, `device_id` physical.
  static absl::StatusOr<std::unique_ptr<PoolBuffer>> Allocate(
      std::shared_ptr<Connection> connection, std::shared_ptr<Session> session, uint64_t length,
      MemoryKind kind, int32_t device_id);
  ~PoolBuffer();
  PoolBuffer(const PoolBuffer&) = delete;
  PoolBuffer& operator=(const PoolBuffer&) = delete;

  uint64_t address() const { return address_; }
  // False for device memory that the host cannot touch.
  bool mapped() const { return arena_ != nullptr; }
  uint64_t length() const { return length_; }
  MemoryKind kind() const { return kind_; }

 private:
  PoolBuffer(std::shared_ptr<Connection> connection, std::shared_ptr<Session> session,
             MemoryKind kind);

  const pid_t owner_;
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Session> session_;
  const MemoryKind kind_;
  uint64_t buffer_id_ = 0;
  uint64_t length_ = 0;
  uint64_t address_ = 0;
  uint64_t device_address_ = 0;  // 0: host memory, or none of ours to copy
  std::shared_ptr<Arena> arena_;
};

}  // namespace hixld::client
