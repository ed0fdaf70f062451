// Registration of memory (contract 1.6).
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/engine.h"
#include "client/cpp/file_handles.h"
#include "client/cpp/log.h"
#include "client/cpp/shared_memory.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixld::client {
namespace {

// Pinning hundreds of gigabytes for a network card takes minutes.
constexpr int64_t kRegisterTimeout = 600 * kNanosPerSecond;
// How many registrations go into one request when everything is registered again.
constexpr size_t kAgainPerRequest = 4096;
// A session that is replaced during a registration makes it start over; more often is a fault.
constexpr int kMaxAttempts = 3;

absl::Status SetBacking(FileHandles* files, uint64_t session, const MemoryBacking& backing,
                        v1::MemoryRegistration* entry) {
  if (backing.memfd != nullptr) {
    HIXLD_ASSIGN_OR_RETURN(const uint64_t handle, files->Get(backing.memfd->get()));
    entry->mutable_shared_memory()->set_handle(handle);
    entry->mutable_shared_memory()->set_offset(backing.file_offset);
  } else if (backing.session != 0 && backing.session == session) {
    entry->mutable_pool_memory()->set_buffer_id(backing.buffer_id);
    entry->mutable_pool_memory()->set_offset(backing.buffer_offset);
  } else if (backing.arena != nullptr) {
    // The pool that it came from is gone with its daemon, the pages are not. Where they cannot
    // be handed over (huge pages) they are plain memory of this process.
    const absl::StatusOr<uint64_t> handle = files->Get(backing.arena->fd());
    if (IsSessionLost(handle.status())) return handle.status();
    if (!handle.ok()) return absl::OkStatus();
    entry->mutable_shared_memory()->set_handle(*handle);
    entry->mutable_shared_memory()->set_offset(backing.file_offset);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Engine::Register(const std::vector<MemoryRange>& ranges,
                              std::vector<uint64_t>* handles) {
  std::vector<Registration> wanted;
  wanted.reserve(ranges.size());
  for (const MemoryRange& range : ranges) {
    std::optional<MemoryBacking> backing = connection_->buffers().Find(range);
    if (!backing) backing = SharedMemory::Instance().Find(range);
    wanted.push_back({.range = range, .backing = std::move(backing).value_or(MemoryBacking{})});
  }
  return RegisterAll(std::move(wanted), handles);
}

absl::Status Engine::RegisterMemfd(const MemoryRange& range, int memfd, uint64_t offset,
                                   uint64_t* handle) {
  UniqueFd copy(fcntl(memfd, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) {
    return ParamInvalid(absl::StrCat("memory descriptor ", memfd, " is not open"),
                        {.object = "memory descriptor", .allowed = "an open memfd"});
  }
  Registration wanted;
  wanted.range = range;
  wanted.backing.memfd = std::make_shared<UniqueFd>(std::move(copy));
  wanted.backing.file_offset = offset;
  std::vector<uint64_t> handles;
  HIXLD_RETURN_IF_ERROR(RegisterAll({std::move(wanted)}, &handles));
  *handle = handles.front();
  return absl::OkStatus();
}

// Checks all against the table and each other; `missing` gets those that are not registered yet.
absl::Status Engine::CheckAll(const std::vector<Registration>& wanted,
                              std::vector<Registration>* missing) const {
  MutexLock lock(&attach_mutex_);
  MemoryTable among_themselves;
  for (const Registration& entry : wanted) {
    HIXLD_RETURN_IF_ERROR(memory_.Check(entry.range));
    HIXLD_RETURN_IF_ERROR(among_themselves.Check(entry.range));
    if (memory_.Find(entry.range) != 0 || among_themselves.Find(entry.range) != 0) continue;
    among_themselves.Add(entry);
    missing->push_back(entry);
  }
  return absl::OkStatus();
}

absl::Status Engine::RegisterAll(std::vector<Registration> wanted, std::vector<uint64_t>* handles) {
  return WithTextCode(TryRegisterAll(std::move(wanted), handles), kRegistrationFailed);
}

absl::Status Engine::TryRegisterAll(std::vector<Registration> wanted,
                                    std::vector<uint64_t>* handles) {
  MutexLock registering(&register_mutex_);
  std::vector<Registration> missing;
  HIXLD_RETURN_IF_ERROR(CheckAll(wanted, &missing));
  std::vector<Registration*> pointers;
  for (Registration& entry : missing) pointers.push_back(&entry);

  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    uint64_t session = 0;
    HIXLD_RETURN_IF_ERROR(Idempotent([&](const Attachment& live) {
      session = live.number();
      return SendRegistrations(live, pointers);
    }));
    MutexLock lock(&attach_mutex_);
    // A session that came meanwhile does not know these ranges.
    if (attachment_.number() != session) continue;
    for (Registration& entry : missing) memory_.Add(std::move(entry));
    if (!missing.empty()) direct_.ForgetLocal();
    handles->clear();
    for (const Registration& entry : wanted) handles->push_back(memory_.Find(entry.range));
    return absl::OkStatus();
  }
  return Failed("hixld was replaced several times during a registration", {.object = "hixld"});
}

absl::Status Engine::SendRegistrations(const Attachment& live,
                                       const std::vector<Registration*>& registrations) {
  if (registrations.empty()) return absl::OkStatus();
  // Dropped only after the daemon has registered what they name.
  FileHandles files(live.session.get());
  v1::RegisterMemoryRequest request;
  request.set_engine_handle(live.handle);
  for (const Registration* registration : registrations) {
    auto* entry = request.add_registrations();
    entry->set_address(registration->range.address);
    entry->set_length(registration->range.length);
    entry->set_type(registration->range.kind == MemoryKind::kDevice ? v1::MEMORY_TYPE_DEVICE
                                                                    : v1::MEMORY_TYPE_HOST);
    HIXLD_RETURN_IF_ERROR(SetBacking(&files, live.number(), registration->backing, entry));
  }
  v1::RegisterMemoryResponse response;
  HIXLD_RETURN_IF_ERROR(
      live.session->rpc().RegisterMemory(request, &response, MonotonicNanos() + kRegisterTimeout));
  if (response.region_ids_size() != request.registrations_size()) {
    return Failed("hixld answers a registration with another number of regions",
                  {.object = "hixld"});
  }
  for (size_t i = 0; i < registrations.size(); ++i) {
    registrations[i]->region_id = response.region_ids(static_cast<int>(i));
  }
  return absl::OkStatus();
}

// After a new session was opened. What the daemon refuses now is left out, so that one range
// that went with the old daemon (its device memory) does not take the others along.
absl::Status Engine::RegisterAgain(const Attachment& live) {
  std::vector<Registration*> all;
  for (auto& [handle, entry] : memory_.registrations()) {
    entry.region_id = 0;
    if (!entry.leaving) all.push_back(&entry);
  }
  for (size_t first = 0; first < all.size(); first += kAgainPerRequest) {
    const size_t last = std::min(first + kAgainPerRequest, all.size());
    const std::vector<Registration*> chunk(all.begin() + static_cast<ptrdiff_t>(first),
                                           all.begin() + static_cast<ptrdiff_t>(last));
    absl::Status status = SendRegistrations(live, chunk);
    if (status.ok()) continue;
    if (IsSessionLost(status)) return status;
    for (Registration* entry : chunk) {
      status = SendRegistrations(live, {entry});
      if (IsSessionLost(status)) return status;
      if (!status.ok()) {
        Log(LogLevel::kError, absl::StrCat("not registered again: ", status.message()));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> Engine::RegionsOf(const std::vector<uint64_t>& handles,
                                                        const Attachment& live) {
  std::vector<uint64_t> regions;
  MutexLock lock(&attach_mutex_);
  direct_.ForgetLocal();
  if (attachment_.number() != live.number()) return SessionLost("the session was replaced");
  for (const uint64_t handle : handles) {
    Registration* entry = memory_.Get(handle);
    if (entry == nullptr) {
      Log(LogLevel::kWarning, absl::StrCat("deregister: unknown handle ", handle));
      continue;
    }
    entry->leaving = true;
    if (entry->region_id != 0) regions.push_back(entry->region_id);
  }
  return regions;
}

absl::Status Engine::Deregister(const std::vector<uint64_t>& handles) {
  MutexLock registering(&register_mutex_);
  std::vector<uint64_t> known;
  {
    MutexLock lock(&attach_mutex_);
    for (const uint64_t handle : handles) {
      if (memory_.Get(handle) != nullptr) known.push_back(handle);
    }
  }
  if (known.size() < handles.size()) {
    Log(LogLevel::kWarning, absl::StrCat("deregister: ", handles.size() - known.size(),
                                         " unknown handles are ignored"));
  }
  if (known.empty()) return absl::OkStatus();
  if (kind() != EngineKind::kComm) {
    MutexLock lock(&mutex_);
    if (!links_.empty()) {
      return Failed(absl::StrCat("memory cannot be deregistered while the engine is linked to ",
                                 links_.begin()->first),
                    {.object = absl::StrCat("engine ", config_.local_engine),
                     .allowed = "deregister after Disconnect"});
    }
  }
  const absl::Status status = Idempotent([&](const Attachment& live) -> absl::Status {
    HIXLD_ASSIGN_OR_RETURN(const std::vector<uint64_t> regions, RegionsOf(known, live));
    if (regions.empty()) return absl::OkStatus();
    v1::DeregisterMemoryRequest request;
    request.set_engine_handle(live.handle);
    request.mutable_region_ids()->Assign(regions.begin(), regions.end());
    v1::DeregisterMemoryResponse response;
    return live.session->rpc().DeregisterMemory(request, &response,
                                                MonotonicNanos() + kRegisterTimeout);
  });
  MutexLock lock(&attach_mutex_);
  direct_.ForgetLocal();
  for (const uint64_t handle : known) {
    if (status.ok()) {
      memory_.Remove(handle);
    } else if (Registration* entry = memory_.Get(handle)) {
      entry->leaving = false;
    }
  }
  return status;
}

absl::StatusOr<std::unique_ptr<PoolBuffer>> Engine::Allocate(uint64_t length, MemoryKind kind) {
  if (length == 0) {
    return ParamInvalid("a buffer of 0 bytes", {.object = "buffer", .allowed = "1 byte and more"});
  }
  std::unique_ptr<PoolBuffer> buffer;
  HIXLD_RETURN_IF_ERROR(Idempotent([&](const Attachment& live) -> absl::Status {
    HIXLD_ASSIGN_OR_RETURN(
        buffer, PoolBuffer::Allocate(connection_, live.session, length, kind, config_.device_id));
    return absl::OkStatus();
  }));
  return buffer;
}

}  // namespace hixld::client
