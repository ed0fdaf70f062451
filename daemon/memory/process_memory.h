// Memory of another process, reached with process_vm_readv and process_vm_writev.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/memory/executor.h"
#include "proto/base/fd.h"
#include "transports/memory_access.h"

namespace hixld {

// One other process, pinned by a pidfd. Immutable; thread-safe.
class ProcessTarget {
 public:
  // `pidfd` refers to the process `pid`, which runs as `uid` and `gid`.
  ProcessTarget(pid_t pid, uid_t uid, gid_t gid, UniqueFd pidfd)
      : pid_(pid), uid_(uid), gid_(gid), pidfd_(std::move(pidfd)) {}

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  // Not yet ended. A pid may be given to another process only after this has turned false.
  bool alive() const;

  struct Part {
    uint64_t address = 0;
    std::byte* host = nullptr;
    uint64_t length = 0;
  };
  enum class Direction : uint8_t { kFromProcess, kToProcess };

  // Copies one batch (at most IOV_MAX parts) with one system call, and says how many bytes were
  // copied: fewer than asked where the process has no memory, 0 never. FAILED names pid and
  // address. Blocks as long as the process's memory does.
  //
  // The kernel's check is made with the rights of the process's own user, whatever rights the
  // daemon has: if the process turns into one with more rights (set-uid), it is out of reach.
  absl::StatusOr<uint64_t> Copy(Direction direction, const Part* parts, size_t count) const;

 private:
  const pid_t pid_;
  const uid_t uid_;
  const gid_t gid_;
  const UniqueFd pidfd_;
};

// A descriptor of the process at the other end of `socket` (SO_PEERCRED gave `pid`).
absl::StatusOr<UniqueFd> OpenPeerPidfd(int socket, pid_t pid);

// Plain memory of a client at [address, address + length).
class ProcessAccess : public MemoryAccess {
 public:
  // Copies run on `executor`, which outlives every access, under `key`.
  ProcessAccess(std::shared_ptr<const ProcessTarget> target, Executor* executor, uint64_t key,
                uint64_t address, uint64_t length);

  void Read(std::vector<Slice> slices, Done done) override;
  void Write(std::vector<Slice> slices, Done done) override;
  absl::string_view description() const override { return description_; }
  std::optional<OwnerProcess> owner_process() const override {
    return OwnerProcess{.pid = target_->pid(), .pidfd = target_->pidfd()};
  }

 private:
  void Start(ProcessTarget::Direction direction, std::vector<Slice> slices, Done done);

  const std::shared_ptr<const ProcessTarget> target_;
  Executor* const executor_;
  const uint64_t key_;
  const uint64_t address_;
  const std::string description_;
};

}  // namespace hixld
