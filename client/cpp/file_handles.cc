#include "client/cpp/file_handles.h"

#include <sys/stat.h>

#include <cerrno>

#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

constexpr int64_t kTimeout = 10 * kNanosPerSecond;

}  // namespace

FileHandles::~FileHandles() {
  for (const auto& [file, handle] : handles_) session_->DropMemory(handle);
}

absl::StatusOr<uint64_t> FileHandles::Get(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoError(errno, "fstat of a memory descriptor");
  const std::pair<uint64_t, uint64_t> key(st.st_dev, st.st_ino);
  const auto known = handles_.find(key);
  if (known != handles_.end()) return known->second;
  HIXLD_ASSIGN_OR_RETURN(
      const uint64_t handle,
      session_->PutMemory(fd, static_cast<uint64_t>(st.st_size), MonotonicNanos() + kTimeout));
  handles_[key] = handle;
  return handle;
}

}  // namespace hixld::client
