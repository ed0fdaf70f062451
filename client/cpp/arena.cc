#include "client/cpp/arena.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

// The kernel moves at most 0x7ffff000 bytes a call.
constexpr uint64_t kMaxPerCall = 1UL << 30;

// Calls move(done, bytes) until `length` bytes are moved; it returns what it moved or -1. The
// kernel moves up to a bad page and reports EFAULT only when nothing could be moved.
template <typename Move>
int MoveAll(uint64_t length, Move move) {
  uint64_t done = 0;
  while (done < length) {
    const ssize_t moved = move(done, std::min(length - done, kMaxPerCall));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    if (moved == 0) return EFAULT;
    done += static_cast<uint64_t>(moved);
  }
  return 0;
}

iovec Piece(uint64_t address, uint64_t bytes) {
  return {.iov_base = reinterpret_cast<void*>(address), .iov_len = bytes};
}

}  // namespace

absl::StatusOr<std::shared_ptr<Arena>> Arena::Map(UniqueFd fd, uint64_t size) {
  HIXLD_ASSIGN_OR_RETURN(Mapping mapping, MapShared(fd.get(), 0, size));
  return std::shared_ptr<Arena>(new Arena(std::move(fd), std::move(mapping)));
}

// File reads and writes check the memory's address and work where process_vm_readv is forbidden.
// Files on huge pages cannot be written to; for them the process copies to itself.
int Arena::CopyFromMemory(uint64_t address, uint64_t arena_offset, uint64_t length) const {
  if (!Contains(arena_offset, length)) return ERANGE;
  const int error = MoveAll(length, [&](uint64_t done, uint64_t bytes) {
    return pwrite(fd_.get(), reinterpret_cast<const void*>(address + done), bytes,
                  static_cast<off_t>(arena_offset + done));
  });
  if (error != EINVAL && error != EOPNOTSUPP && error != EBADF) return error;
  const uint64_t base = reinterpret_cast<uint64_t>(data()) + arena_offset;
  return MoveAll(length, [&](uint64_t done, uint64_t bytes) {
    const iovec local = Piece(base + done, bytes);
    const iovec remote = Piece(address + done, bytes);
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  });
}

int Arena::CopyToMemory(uint64_t address, uint64_t arena_offset, uint64_t length) const {
  if (!Contains(arena_offset, length)) return ERANGE;
  return MoveAll(length, [&](uint64_t done, uint64_t bytes) {
    return pread(fd_.get(), reinterpret_cast<void*>(address + done), bytes,
                 static_cast<off_t>(arena_offset + done));
  });
}

}  // namespace hixld::client
