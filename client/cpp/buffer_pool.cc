#include "client/cpp/buffer_pool.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/connection.h"
#include "client/cpp/log.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

constexpr int64_t kTimeout = 30 * kNanosPerSecond;

}  // namespace

void BufferIndex::Add(uint64_t address, uint64_t length, MemoryBacking start) {
  MutexLock lock(&mutex_);
  entries_[address] = {.length = length, .start = std::move(start)};
}

void BufferIndex::Remove(uint64_t address) {
  MutexLock lock(&mutex_);
  entries_.erase(address);
}

std::optional<MemoryBacking> BufferIndex::Find(const MemoryRange& range) const {
  MutexLock lock(&mutex_);
  auto next = entries_.upper_bound(range.address);
  if (next == entries_.begin()) return std::nullopt;
  const auto& [address, entry] = *std::prev(next);
  const uint64_t offset = range.address - address;
  if (offset >= entry.length || range.length > entry.length - offset) return std::nullopt;
  MemoryBacking backing = entry.start;
  backing.buffer_offset += offset;
  backing.file_offset += offset;
  return backing;
}

PoolBuffer::PoolBuffer(std::shared_ptr<Connection> connection, std::shared_ptr<Session> session,
                       MemoryKind kind)
    : owner_(getpid()),
      connection_(std::move(connection)),
      session_(std::move(session)),
      kind_(kind) {}

absl::StatusOr<std::unique_ptr<PoolBuffer>> PoolBuffer::Allocate(
    std::shared_ptr<Connection> connection, std::shared_ptr<Session> session, uint64_t length,
    MemoryKind kind, int32_t device_id) {
  v1::AllocateBufferRequest request;
  request.set_length(length);
  request.set_type(kind == MemoryKind::kDevice ? v1::MEMORY_TYPE_DEVICE : v1::MEMORY_TYPE_HOST);
  request.set_device_id(device_id);
  v1::AllocateBufferResponse response;
  const int64_t deadline = MonotonicNanos() + kTimeout;
  HIXLD_RETURN_IF_ERROR(session->rpc().AllocateBuffer(request, &response, deadline));

  std::unique_ptr<PoolBuffer> buffer(new PoolBuffer(connection, session, kind));
  buffer->buffer_id_ = response.buffer_id();  // from here on it is given back
  buffer->length_ = length;
  buffer->address_ = response.device_address();
  MemoryBacking backing;
  backing.session = session->number();
  backing.buffer_id = response.buffer_id();
  backing.file_offset = response.arena_offset();
  if (response.mappable()) {
    HIXLD_ASSIGN_OR_RETURN(buffer->arena_, session->GetArena(response.arena_id(), deadline));
    if (response.arena_offset() > buffer->arena_->size() ||
        response.length() > buffer->arena_->size() - response.arena_offset()) {
      return Failed("hixld lends a buffer outside its arena", {.object = "hixld"});
    }
    buffer->address_ = reinterpret_cast<uint64_t>(buffer->arena_->data()) + response.arena_offset();
    backing.arena = buffer->arena_;
    if (kind == MemoryKind::kDevice) {
      buffer->device_address_ = response.device_address();
      session->device_memory().Add(buffer->device_address_, response.length(), buffer->address_);
    }
  }
  connection->buffers().Add(buffer->address_, response.length(), std::move(backing));
  return buffer;
}

PoolBuffer::~PoolBuffer() {
  if (getpid() != owner_ || buffer_id_ == 0) return;
  connection_->buffers().Remove(address_);
  session_->device_memory().Remove(device_address_);
  if (!session_->alive()) return;
  v1::FreeBufferRequest request;
  request.set_buffer_id(buffer_id_);
  v1::FreeBufferResponse response;
  const absl::Status freed =
      session_->rpc().FreeBuffer(request, &response, MonotonicNanos() + kTimeout);
  if (!freed.ok() && !IsSessionLost(freed)) {
    Log(LogLevel::kWarning, absl::StrCat("buffer is not given back: ", freed.message()));
  }
}

}  // namespace hixld::client
