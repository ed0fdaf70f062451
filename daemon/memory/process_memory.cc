#include "daemon/memory/process_memory.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace hixld {
namespace {

// What one step copies: a millisecond or so, so that sessions take turns.
constexpr uint64_t kStepBytes = 4 << 20;
constexpr size_t kStepParts = IOV_MAX;

// For the lifetime of the object, this thread (not the process) acts with the rights of another
// user. libc's setresuid would change all threads, hence the bare system calls.
class ScopedUser {
 public:
  ScopedUser(uid_t uid, gid_t gid) {
    if (getresuid(&real_uid_, &uid_, &saved_uid_) != 0) return;
    if (getresgid(&real_gid_, &gid_, &saved_gid_) != 0) return;
    // The same user: the kernel's own check is all that is needed, and root has no other user's
    // rights to lose. Both ids are compared because the kernel compares both.
    if (uid_ == uid && gid_ == gid) {
      ok_ = true;
      return;
    }
    // The saved ids stay, so that the way back is allowed.
    if (syscall(SYS_setresgid, gid, gid, saved_gid_) != 0) return;
    changed_gid_ = true;
    if (syscall(SYS_setresuid, uid, uid, saved_uid_) != 0) return;
    changed_uid_ = true;
    ok_ = true;
  }
  ~ScopedUser() {
    if (changed_uid_) syscall(SYS_setresuid, real_uid_, uid_, saved_uid_);
    if (changed_gid_) syscall(SYS_setresgid, real_gid_, gid_, saved_gid_);
  }
  ScopedUser(const ScopedUser&) = delete;
  ScopedUser& operator=(const ScopedUser&) = delete;
  bool ok() const { return ok_; }

 private:
  uid_t real_uid_ = 0, uid_ = 0, saved_uid_ = 0;
  gid_t real_gid_ = 0, gid_ = 0, saved_gid_ = 0;
  bool changed_uid_ = false;
  bool changed_gid_ = false;
  bool ok_ = false;
};

absl::string_view CallName(ProcessTarget::Direction direction) {
  return direction == ProcessTarget::Direction::kFromProcess ? "process_vm_readv"
                                                             : "process_vm_writev";
}

absl::Status CopyError(int error_number, ProcessTarget::Direction direction, pid_t pid,
                       uint64_t address) {
  const std::string what =
      absl::StrFormat("%s of pid %d at 0x%x", CallName(direction), pid, address);
  const ErrorInfo info = {.object = absl::StrFormat("memory 0x%x of pid %d", address, pid)};
  switch (error_number) {
    case EFAULT:
      return Failed(absl::StrCat(what, ": the process has no such memory"), info);
    case ESRCH:
      return Failed(absl::StrCat(what, ": the process has ended"), info);
    case EPERM:
      return Failed(absl::StrCat(what, ": not permitted; the memory can be passed as a memfd"),
                    info);
    default:
      return ErrnoError(error_number, what, info);
  }
}

// One Read or Write, copied in steps.
class CopyOperation {
 public:
  CopyOperation(std::shared_ptr<const ProcessTarget> target, ProcessTarget::Direction direction,
                uint64_t address, std::vector<MemoryAccess::Slice> slices, MemoryAccess::Done done)
      : target_(std::move(target)),
        direction_(direction),
        address_(address),
        slices_(std::move(slices)),
        done_(std::move(done)) {}

  // Copies one batch; returns whether there is more.
  bool Step() {
    ProcessTarget::Part parts[kStepParts];
    const size_t count = Gather(parts);
    if (count == 0) return Finish(absl::OkStatus());
    const absl::StatusOr<uint64_t> copied = target_->Copy(direction_, parts, count);
    if (!copied.ok()) return Finish(copied.status());
    Advance(*copied);
    return next_ < slices_.size() || Finish(absl::OkStatus());
  }

  void Fail(absl::Status status) { done_(std::move(status)); }

 private:
  bool Finish(absl::Status status) {
    std::exchange(done_, nullptr)(std::move(status));
    return false;
  }

  size_t Gather(ProcessTarget::Part* parts) {
    size_t count = 0;
    uint64_t bytes = 0;
    uint64_t skip = offset_;
    for (size_t i = next_; i < slices_.size() && count < kStepParts && bytes < kStepBytes; ++i) {
      const MemoryAccess::Slice& slice = slices_[i];
      const uint64_t length = std::min(slice.length - skip, kStepBytes - bytes);
      if (length > 0) {
        parts[count++] = {
            .address = address_ + slice.offset + skip, .host = slice.host + skip, .length = length};
      }
      bytes += length;
      skip = 0;
    }
    return count;
  }

  void Advance(uint64_t copied) {
    while (next_ < slices_.size() && copied >= slices_[next_].length - offset_) {
      copied -= slices_[next_].length - offset_;
      offset_ = 0;
      ++next_;
    }
    offset_ += copied;
  }

  const std::shared_ptr<const ProcessTarget> target_;
  const ProcessTarget::Direction direction_;
  const uint64_t address_;
  const std::vector<MemoryAccess::Slice> slices_;
  MemoryAccess::Done done_;
  // Everything before this place has been copied.
  size_t next_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace

bool ProcessTarget::alive() const {
  pollfd entry = {.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  // A pidfd becomes readable when its process ends.
  return poll(&entry, 1, 0) == 0;
}

absl::StatusOr<uint64_t> ProcessTarget::Copy(Direction direction, const Part* parts,
                                             size_t count) const {
  iovec local[kStepParts];
  iovec remote[kStepParts];
  for (size_t i = 0; i < count; ++i) {
    local[i] = {.iov_base = parts[i].host, .iov_len = parts[i].length};
    remote[i] = {.iov_base = reinterpret_cast<void*>(parts[i].address), .iov_len = parts[i].length};
  }
  if (!alive()) return CopyError(ESRCH, direction, pid_, parts[0].address);
  ssize_t copied;
  int error_number;
  {
    const ScopedUser user(uid_, gid_);
    if (!user.ok()) return CopyError(EPERM, direction, pid_, parts[0].address);
    copied = direction == Direction::kFromProcess
                 ? process_vm_readv(pid_, local, count, remote, count, 0)
                 : process_vm_writev(pid_, local, count, remote, count, 0);
    error_number = errno;
  }
  if (copied < 0) return CopyError(error_number, direction, pid_, parts[0].address);
  if (copied == 0) return CopyError(EFAULT, direction, pid_, parts[0].address);
  return static_cast<uint64_t>(copied);
}

absl::StatusOr<UniqueFd> OpenPeerPidfd(int socket, pid_t pid) {
  int fd = -1;
  socklen_t length = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) return UniqueFd(fd);
  // Before Linux 6.5 there is a moment in which the pid could be another process's already; the
  // probe of the session tells, and the kernel's rights check holds for whoever it is.
  fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) {
    return ErrnoError(errno, absl::StrCat("pidfd_open of pid ", pid),
                      {.object = absl::StrCat("pid ", pid)});
  }
  return UniqueFd(fd);
}

ProcessAccess::ProcessAccess(std::shared_ptr<const ProcessTarget> target, Executor* executor,
                             uint64_t key, uint64_t address, uint64_t length)
    : MemoryAccess(Kind::kProcess, nullptr, length),
      target_(std::move(target)),
      executor_(executor),
      key_(key),
      address_(address),
      description_(absl::StrCat("memory of pid ", target_->pid())) {}

void ProcessAccess::Read(std::vector<Slice> slices, Done done) {
  Start(ProcessTarget::Direction::kFromProcess, std::move(slices), std::move(done));
}

void ProcessAccess::Write(std::vector<Slice> slices, Done done) {
  Start(ProcessTarget::Direction::kToProcess, std::move(slices), std::move(done));
}

void ProcessAccess::Start(ProcessTarget::Direction direction, std::vector<Slice> slices,
                          Done done) {
  const uint64_t first = address_ + (slices.empty() ? 0 : slices[0].offset);
  auto operation = std::make_shared<CopyOperation>(target_, direction, address_, std::move(slices),
                                                   std::move(done));
  absl::Status queued = executor_->Submit(
      key_, absl::StrFormat("%s of pid %d at 0x%x", CallName(direction), target_->pid(), first),
      [operation] { return operation->Step(); });
  if (!queued.ok()) operation->Fail(std::move(queued));
}

}  // namespace hixld
