#include "client/cpp/shared_memory.h"

#include <unistd.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld::client {

SharedMemory& SharedMemory::Instance() {
  static auto* instance = new SharedMemory;
  return *instance;
}

absl::StatusOr<uint64_t> SharedMemory::Allocate(size_t length) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (length == 0 || length > SIZE_MAX - page) {
    return ParamInvalid(absl::StrCat("memory of ", length, " bytes cannot be allocated"),
                        {.object = "memory", .allowed = "1 byte and more"});
  }
  const size_t size = (length + page - 1) / page * page;
  absl::StatusOr<UniqueFd> memfd = CreateSealedMemfd("hixl-memory", size);
  absl::StatusOr<Mapping> mapping =
      memfd.ok() ? MapShared(memfd->get(), 0, size) : absl::StatusOr<Mapping>(memfd.status());
  if (!mapping.ok()) {
    return ResourceExhausted(
        absl::StrCat("no memory of ", length, " bytes is left: ", mapping.status().message()),
        {.object = "memory"});
  }
  const auto address = reinterpret_cast<uint64_t>(mapping->data());
  MutexLock lock(&mutex_);
  entries_[address] = {.mapping = *std::move(mapping),
                       .memfd = std::make_shared<UniqueFd>(*std::move(memfd))};
  return address;
}

absl::Status SharedMemory::Free(uint64_t address) {
  Entry entry;  // unmapped outside the lock
  MutexLock lock(&mutex_);
  const auto found = entries_.find(address);
  if (found == entries_.end()) {
    return ParamInvalid(absl::StrFormat("0x%x is no memory of MallocMem, or was freed", address),
                        {.object = "memory", .allowed = "what MallocMem returned, once"});
  }
  entry = std::move(found->second);
  entries_.erase(found);
  return absl::OkStatus();
}

const SharedMemory::Entry* SharedMemory::EntryOf(uint64_t address, uint64_t* offset) const {
  const auto next = entries_.upper_bound(address);
  if (next == entries_.begin()) return nullptr;
  const auto& [start, entry] = *std::prev(next);
  *offset = address - start;
  return *offset < entry.mapping.size() ? &entry : nullptr;
}

bool SharedMemory::Contains(uint64_t address) const {
  MutexLock lock(&mutex_);
  uint64_t offset = 0;
  return EntryOf(address, &offset) != nullptr;
}

std::optional<MemoryBacking> SharedMemory::Find(const MemoryRange& range) const {
  MutexLock lock(&mutex_);
  uint64_t offset = 0;
  const Entry* entry = EntryOf(range.address, &offset);
  if (entry == nullptr || range.length > entry->mapping.size() - offset) return std::nullopt;
  MemoryBacking backing;
  backing.memfd = entry->memfd;
  backing.file_offset = offset;
  return backing;
}

}  // namespace hixld::client
