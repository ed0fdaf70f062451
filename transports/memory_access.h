// How the daemon touches one piece of registered memory, whatever backs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/mutex.h"

namespace hixld {

class MemoryAccess {
 public:
  enum class Kind : uint8_t {
    kMapped,    // the daemon has the same pages mapped
    kProcess,   // process_vm_readv / process_vm_writev on (pid, address)
    kExecutor,  // the owner's process copies by command, through the relay pool
    kDevice,    // the device backend's copy engine
  };

  // One contiguous copy between this memory and host memory of this process. `offset` counts from
  // the access's first byte; the caller has checked that [offset, offset + length) lies inside.
  struct Slice {
    uint64_t offset = 0;
    std::byte* host = nullptr;
    uint64_t length = 0;
  };

  // Called exactly once, on any thread, possibly before Read or Write returns. After it no byte
  // moves any more.
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~MemoryAccess() = default;

  Kind kind() const { return kind_; }
  uint64_t length() const { return length_; }
  // The first byte in this process, or nullptr when the memory can only be reached through Read
  // and Write. Valid as long as this object.
  std::byte* mapped() const { return mapped_; }

  // Memory -> host buffers. Mapped memory is copied by the caller's thread; every other kind
  // returns at once. The object and the host buffers must live until `done`.
  virtual void Read(std::vector<Slice> slices, Done done) = 0;
  // Host buffers -> memory.
  virtual void Write(std::vector<Slice> slices, Done done) = 0;

  // A descriptor by which a network card reaches device memory without a mapping. The card's
  // address of the memory's first byte is `offset` in the buffer.
  struct DmaBuf {
    int fd = -1;
    uint64_t offset = 0;
  };
  virtual std::optional<DmaBuf> dma_buf() const { return std::nullopt; }

  // How a client process of the same user reaches this memory without the daemon: the memfd in
  // which its first byte lies at `offset`, or the process whose plain memory it is. Descriptors
  // stay the memory's.
  struct SharedFile {
    int fd = -1;
    uint64_t size = 0;
    uint64_t offset = 0;
  };
  virtual std::optional<SharedFile> shared_file() const { return std::nullopt; }
  struct OwnerProcess {
    int32_t pid = 0;
    int pidfd = -1;
  };
  virtual std::optional<OwnerProcess> owner_process() const { return std::nullopt; }

  // Ties something to this memory that must not outlive it, such as a transport's registration:
  // it is let go when the memory goes. Thread-safe.
  void Attach(std::shared_ptr<const void> attachment) {
    MutexLock lock(&attachments_mutex_);
    attachments_.push_back(std::move(attachment));
  }

  // What an error message calls it: "host memory of pid 12", "sim device 0".
  virtual absl::string_view description() const = 0;

 protected:
  MemoryAccess(Kind kind, std::byte* mapped, uint64_t length)
      : kind_(kind), mapped_(mapped), length_(length) {}

 private:
  const Kind kind_;
  std::byte* const mapped_;
  const uint64_t length_;
  Mutex attachments_mutex_;
  std::vector<std::shared_ptr<const void>> attachments_ ABSL_GUARDED_BY(attachments_mutex_);
};

}  // namespace hixld
