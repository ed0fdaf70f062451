#include "daemon/session/client_session.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/memory/mapped_access.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

constexpr uint64_t kPageBytes = 4096;

absl::Status CheckInside(absl::string_view object, uint64_t size, uint64_t offset,
                         uint64_t length) {
  // Written so that no sum can overflow.
  if (length != 0 && offset <= size && length <= size - offset) return absl::OkStatus();
  return ParamInvalid(
      absl::StrCat("bytes ", offset, "+", length, " are not inside ", object, " of ", size),
      {.object = std::string(object),
       .allowed = absl::StrCat("length > 0, offset + length <= ", size)});
}

std::string ProcessName(const PeerCredentials& credentials) {
  if (credentials.pid != 0) return absl::StrCat("pid ", credentials.pid);
  return absl::StrCat("a process of uid ", credentials.uid, " in another pid namespace");
}

// What keeps memory that a client passed mapped. The descriptor is for those that may copy to it
// by themselves.
struct SharedMemory {
  UniqueFd fd;
  Mapping mapping;
};

// Plain memory of a client that neither lets the daemon touch it nor copies for it. It can be
// registered, as any range can (contract 1.6); only copying fails.
class UnreachableAccess : public MemoryAccess {
 public:
  UnreachableAccess(std::string process, uint64_t length)
      : MemoryAccess(Kind::kProcess, nullptr, length),
        process_(std::move(process)),
        description_(absl::StrCat("memory of ", process_)) {}
  void Read(std::vector<Slice> slices, Done done) override { done(Error()); }
  void Write(std::vector<Slice> slices, Done done) override { done(Error()); }
  absl::string_view description() const override { return description_; }

 private:
  absl::Status Error() const {
    return Failed(absl::StrCat("plain memory of ", process_,
                               " is out of reach: process_vm_readv is refused and the client "
                               "serves no copy commands"),
                  {.object = description_, .allowed = "memory passed as a memfd, or a buffer"});
  }
  const std::string process_;
  const std::string description_;
};

}  // namespace

// Gives back what a buffer counts against the limits.
class ClientSession::Charge {
 public:
  Charge(std::shared_ptr<Usage> usage, uint64_t bytes) : usage_(std::move(usage)), bytes_(bytes) {}
  ~Charge() {
    MutexLock lock(&usage_->mutex);
    --usage_->buffers;
    usage_->bytes -= bytes_;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  const std::shared_ptr<Usage> usage_;
  const uint64_t bytes_;
};

// Destroyed from the bottom up: the access before the memory, the memory before its charge.
struct ClientSession::BufferMemory {
  std::unique_ptr<Charge> charge;
  std::unique_ptr<ArenaPool::Buffer> host;
  std::unique_ptr<DeviceAllocation> device;
  std::shared_ptr<MemoryAccess> access;
};

ClientSession::ClientSession(Identity identity, const SessionLimits& limits,
                             const SessionResources& resources,
                             std::shared_ptr<const ProcessTarget> target, uint64_t relay_slot_bytes,
                             Relay::Send send)
    : identity_(std::move(identity)),
      process_name_(ProcessName(identity_.credentials)),
      limits_(limits),
      resources_(resources),
      target_(std::move(target)),
      relay_(std::make_shared<Relay>(
          Relay::Options{
              .session_id = identity_.id, .client = process_name_, .slot_bytes = relay_slot_bytes},
          resources.relay_pool, resources.copies, std::move(send))),
      usage_(std::make_shared<Usage>()) {}

SessionDescription ClientSession::Describe() const {
  SessionDescription description = {
      .id = identity_.id,
      .credentials = identity_.credentials,
      .client_name = identity_.client_name,
      .library_version = identity_.library_version,
      .opened_at_ns = identity_.opened_at_ns,
      .process_memory_readable = target_ != nullptr,
      .state = open() ? "open" : "draining",
  };
  {
    MutexLock lock(&usage_->mutex);
    description.buffer_bytes = usage_->bytes;
  }
  MutexLock lock(&mutex_);
  if (!stuck_.empty()) {
    description.state = "stuck";
    description.detail = stuck_;
  } else if (!open()) {
    description.detail = "waits for its transfers to end";
  }
  return description;
}

absl::Status ClientSession::CheckOpen() const {
  if (open()) return absl::OkStatus();
  return Failed(absl::StrCat("session ", identity_.id, " has ended"),
                {.object = absl::StrCat("session ", identity_.id)});
}

absl::Status ClientSession::RunBlocking(std::string what, absl::AnyInvocable<void()> task) {
  HIXLD_RETURN_IF_ERROR(CheckOpen());
  return resources_.control->Submit(identity_.id, std::move(what),
                                    [task = std::move(task)]() mutable {
                                      task();
                                      return false;
                                    });
}

absl::StatusOr<uint64_t> ClientSession::PutMemory(UniqueFd fd, uint64_t size) {
  if (size == 0) {
    return ParamInvalid("memory of 0 bytes", {.object = "PutMemory.size", .allowed = "> 0"});
  }
  {
    MutexLock lock(&mutex_);
    if (handles_.size() >= limits_.max_memory_handles_per_session) {
      return ResourceExhausted(
          absl::StrCat("session ", identity_.id, " has ", handles_.size(), " memory handles"),
          {.object = absl::StrCat("session ", identity_.id),
           .limit = absl::StrCat(limits_.max_memory_handles_per_session, " memory handles"),
           .option = "limits.max_memory_handles_per_session"});
    }
  }
  HIXLD_RETURN_IF_ERROR(CheckSharedMemfd(fd.get(), size).status());
  HIXLD_ASSIGN_OR_RETURN(Mapping mapping, MapShared(fd.get(), 0, size));
  auto owner = std::make_shared<SharedMemory>();
  owner->mapping = std::move(mapping);
  owner->fd = std::move(fd);
  std::byte* data = owner->mapping.data();
  const MemoryAccess::SharedFile file = {.fd = owner->fd.get(), .size = size};
  // Unmapping takes long when many pages were touched, so the control executor does it.
  std::shared_ptr<MemoryAccess> access = resources_.control->DestroyHere(
      identity_.id,
      std::make_unique<MappedAccess>(data, size, std::move(owner),
                                     absl::StrCat("shared memory of ", process_name_), file));
  MutexLock lock(&mutex_);
  HIXLD_RETURN_IF_ERROR(CheckOpen());
  const uint64_t handle = next_id_++;
  handles_.emplace(handle, std::move(access));
  return handle;
}

void ClientSession::DropMemory(uint64_t handle) {
  std::shared_ptr<MemoryAccess> dropped;
  MutexLock lock(&mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  dropped = std::move(found->second);
  handles_.erase(found);
}

absl::StatusOr<std::shared_ptr<MemoryAccess>> ClientSession::SharedMemoryAccess(
    uint64_t handle, uint64_t offset, uint64_t length, uint64_t* access_offset) {
  std::shared_ptr<MemoryAccess> access;
  {
    MutexLock lock(&mutex_);
    HIXLD_RETURN_IF_ERROR(CheckOpen());
    const auto found = handles_.find(handle);
    if (found != handles_.end()) access = found->second;
  }
  if (access == nullptr) {
    return ParamInvalid(absl::StrCat("unknown memory handle ", handle),
                        {.object = absl::StrCat("memory handle ", handle),
                         .allowed = "handles that PutMemory gave this session"});
  }
  HIXLD_RETURN_IF_ERROR(
      CheckInside(absl::StrCat("memory handle ", handle), access->length(), offset, length));
  *access_offset = offset;
  return access;
}

absl::StatusOr<std::shared_ptr<MemoryAccess>> ClientSession::BufferAccess(uint64_t buffer_id,
                                                                          uint64_t offset,
                                                                          uint64_t length,
                                                                          uint64_t* access_offset) {
  std::shared_ptr<BufferMemory> memory;
  uint64_t size = 0;
  {
    MutexLock lock(&mutex_);
    HIXLD_RETURN_IF_ERROR(CheckOpen());
    const auto found = buffers_.find(buffer_id);
    if (found != buffers_.end()) {
      memory = found->second.memory;
      size = found->second.length;
    }
  }
  if (memory == nullptr) {
    return ParamInvalid(absl::StrCat("unknown buffer ", buffer_id),
                        {.object = absl::StrCat("buffer ", buffer_id),
                         .allowed = "buffers that AllocateBuffer gave this session"});
  }
  HIXLD_RETURN_IF_ERROR(CheckInside(absl::StrCat("buffer ", buffer_id), size, offset, length));
  *access_offset = offset;
  MemoryAccess* access = memory->access.get();
  return std::shared_ptr<MemoryAccess>(std::move(memory), access);
}

std::shared_ptr<MemoryAccess> ClientSession::PlainMemoryAccess(uint64_t address, uint64_t length) {
  if (target_ != nullptr) {
    return std::make_shared<ProcessAccess>(target_, resources_.copies, identity_.id, address,
                                           length);
  }
  if (identity_.serves_copy_commands) {
    return std::make_shared<RelayAccess>(relay_, ClientSpace{}, address, length,
                                         absl::StrCat("memory of ", process_name_));
  }
  return std::make_shared<UnreachableAccess>(process_name_, length);
}

absl::StatusOr<std::unique_ptr<ClientSession::Charge>> ClientSession::Reserve(uint64_t length) {
  const uint64_t limit = limits_.max_buffer_bytes_per_session;
  MutexLock lock(&usage_->mutex);
  if (usage_->buffers >= limits_.max_buffers_per_session) {
    return ResourceExhausted(
        absl::StrCat("session ", identity_.id, " has ", usage_->buffers, " buffers"),
        {.object = absl::StrCat("session ", identity_.id),
         .limit = absl::StrCat(limits_.max_buffers_per_session, " buffers"),
         .option = "limits.max_buffers_per_session"});
  }
  if (length > limit || usage_->bytes > limit - length) {
    return ResourceExhausted(absl::StrCat("session ", identity_.id, " has buffers of ",
                                          usage_->bytes, " bytes and asks for ", length, " more"),
                             {.object = absl::StrCat("session ", identity_.id),
                              .limit = absl::StrCat(limit, " bytes of buffers"),
                              .option = "limits.max_buffer_bytes_per_session"});
  }
  const uint64_t bytes = (length + kPageBytes - 1) / kPageBytes * kPageBytes;
  ++usage_->buffers;
  usage_->bytes += bytes;
  return std::make_unique<Charge>(usage_, bytes);
}

absl::Status ClientSession::FillHostBuffer(BufferMemory* memory, uint64_t length,
                                           uint64_t alignment, BufferGrant* grant) {
  HIXLD_ASSIGN_OR_RETURN(memory->host,
                         resources_.host_pool->Allocate(identity_.id, length, alignment));
  const ArenaPool::Buffer& buffer = *memory->host;
  // The memory that it points into is its owner's, so it needs none itself.
  memory->access = std::make_shared<MappedAccess>(
      buffer.data(), buffer.length(), nullptr, absl::StrCat("host buffer of ", process_name_),
      MemoryAccess::SharedFile{
          .fd = buffer.arena()->fd.get(), .size = buffer.arena()->size, .offset = buffer.offset()});
  grant->length = buffer.length();
  grant->arena_id = buffer.arena()->id;
  grant->arena_offset = buffer.offset();
  grant->arena_size = buffer.arena()->size;
  return absl::OkStatus();
}

absl::Status ClientSession::FillDeviceBuffer(BufferMemory* memory, uint64_t length,
                                             uint64_t alignment, int32_t device_id,
                                             BufferGrant* grant) {
  HIXLD_ASSIGN_OR_RETURN(DeviceBackend * backend, resources_.devices->Find(device_id));
  const DeviceCapabilities capabilities = resources_.devices->CapabilitiesOf(device_id);
  const bool by_client = capabilities.place == ExecutionPlace::kClient;
  if (by_client && !identity_.serves_copy_commands) {
    return Unsupported(
        absl::StrCat("memory of device ", device_id, " is copied by its owner's process, and ",
                     process_name_, " serves no copy commands"),
        {.object = absl::StrCat("device ", device_id)});
  }
  auto allocated = backend->Allocate(identity_.id, device_id, length, alignment);
  if (!allocated.ok()) return DeviceLayerError(backend->name(), device_id, allocated.status());
  memory->device = *std::move(allocated);
  DeviceAllocation& device = *memory->device;
  memory->access =
      by_client ? std::make_shared<RelayAccess>(
                      relay_, ClientSpace{.device = true, .device_id = device_id},
                      device.device_address(), device.size(),
                      absl::StrCat(backend->name(), " device ", device_id, " of ", process_name_))
                : device.access();
  grant->length = device.size();
  grant->device_address = device.device_address();
  const std::shared_ptr<const Arena> arena = device.arena();
  grant->mappable = capabilities.host_mappable && arena != nullptr;
  if (grant->mappable) {
    grant->arena_id = arena->id;
    grant->arena_offset = device.arena_offset();
    grant->arena_size = arena->size;
  }
  return absl::OkStatus();
}

absl::StatusOr<Session::BufferGrant> ClientSession::AllocateBuffer(uint64_t length, MemoryType type,
                                                                   uint64_t alignment,
                                                                   int32_t device_id) {
  HIXLD_RETURN_IF_ERROR(CheckOpen());
  // Whatever fails below, the control executor frees what was taken.
  std::shared_ptr<BufferMemory> memory =
      resources_.control->DestroyHere(identity_.id, std::make_unique<BufferMemory>());
  HIXLD_ASSIGN_OR_RETURN(memory->charge, Reserve(length));
  BufferGrant grant;
  HIXLD_RETURN_IF_ERROR(type == MemoryType::kHost
                            ? FillHostBuffer(memory.get(), length, alignment, &grant)
                            : FillDeviceBuffer(memory.get(), length, alignment, device_id, &grant));
  Buffer buffer = {.memory = memory, .length = grant.length};
  if (grant.mappable) {
    buffer.arena = type == MemoryType::kHost ? memory->host->arena() : memory->device->arena();
  }
  MutexLock lock(&mutex_);
  HIXLD_RETURN_IF_ERROR(CheckOpen());
  grant.buffer_id = next_id_++;
  if (buffer.arena != nullptr) {
    ArenaUse& use = arenas_[buffer.arena->id];
    use.arena = buffer.arena;
    ++use.buffers;
  }
  buffers_.emplace(grant.buffer_id, std::move(buffer));
  return grant;
}

void ClientSession::ForgetArena(const Buffer& buffer) {
  if (buffer.arena == nullptr) return;
  const auto found = arenas_.find(buffer.arena->id);
  if (--found->second.buffers == 0) arenas_.erase(found);
}

absl::Status ClientSession::FreeBuffer(uint64_t buffer_id) {
  Buffer freed;
  MutexLock lock(&mutex_);
  const auto found = buffers_.find(buffer_id);
  if (found == buffers_.end()) {
    return ParamInvalid(absl::StrCat("unknown buffer ", buffer_id),
                        {.object = absl::StrCat("buffer ", buffer_id),
                         .allowed = "buffers that AllocateBuffer gave this session"});
  }
  freed = std::move(found->second);
  buffers_.erase(found);
  ForgetArena(freed);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Arena>> ClientSession::FindArena(uint64_t arena_id) const {
  {
    MutexLock lock(&mutex_);
    const auto found = arenas_.find(arena_id);
    if (found != arenas_.end()) return found->second.arena;
  }
  if (std::shared_ptr<const Arena> arena = relay_->FindArena(arena_id)) return arena;
  return ParamInvalid(absl::StrCat("unknown arena ", arena_id),
                      {.object = absl::StrCat("arena ", arena_id),
                       .allowed = "arenas that hold a buffer of this session"});
}

void ClientSession::SetStuck(std::string what) {
  MutexLock lock(&mutex_);
  stuck_ = std::move(what);
}

void ClientSession::MarkClosed() {
  // Under the lock, so that nothing is added after it.
  MutexLock lock(&mutex_);
  open_.store(false, std::memory_order_release);
}

void ClientSession::ReleaseAll() {
  std::unordered_map<uint64_t, std::shared_ptr<MemoryAccess>> handles;
  std::unordered_map<uint64_t, Buffer> buffers;
  std::unordered_map<uint64_t, ArenaUse> arenas;
  MutexLock lock(&mutex_);
  handles.swap(handles_);
  buffers.swap(buffers_);
  arenas.swap(arenas_);
}

}  // namespace hixld
