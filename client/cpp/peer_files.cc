#include "client/cpp/peer_files.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld::client {

absl::StatusOr<std::shared_ptr<const PeerFile>> PeerFiles::Map(UniqueFd fd, uint64_t size) {
  struct stat about;
  if (fstat(fd.get(), &about) != 0) return ErrnoError(errno, "fstat of a peer's memory");
  if (size == 0 || static_cast<uint64_t>(about.st_size) < size) {
    return Failed(absl::StrCat("a peer's memory has ", about.st_size, " bytes, not ", size),
                  {.object = "memory of a peer"});
  }
  MutexLock lock(&mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const PeerFile>& known = known_[{about.st_dev, about.st_ino}];
  std::shared_ptr<const PeerFile> file = known.lock();
  if (file != nullptr && file->size() >= size) return file;
  HIXLD_ASSIGN_OR_RETURN(Mapping mapped, MapShared(fd.get(), 0, size));
  // A child has no right to it, and must not keep the peer's memory alive. Without it the child
  // only has more than it needs.
  madvise(mapped.data(), mapped.size(), MADV_DONTFORK);
  file = std::make_shared<const PeerFile>(std::move(fd), std::move(mapped));
  known = file;
  return file;
}

}  // namespace hixld::client
