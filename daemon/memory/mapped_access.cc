#include "daemon/memory/mapped_access.h"

#include <cstring>
#include <utility>

namespace hixld {

MappedAccess::MappedAccess(std::byte* data, uint64_t length, std::shared_ptr<const void> owner,
                           std::string description, std::optional<SharedFile> file)
    : MemoryAccess(Kind::kMapped, data, length),
      owner_(std::move(owner)),
      description_(std::move(description)),
      file_(file) {}

void MappedAccess::Read(std::vector<Slice> slices, Done done) {
  for (const Slice& slice : slices) memcpy(slice.host, mapped() + slice.offset, slice.length);
  done(absl::OkStatus());
}

void MappedAccess::Write(std::vector<Slice> slices, Done done) {
  for (const Slice& slice : slices) memcpy(mapped() + slice.offset, slice.host, slice.length);
  done(absl::OkStatus());
}

}  // namespace hixld
