// The one interface of the data movers. A transport knows memory, lanes and bytes; it knows no
// sessions, engines or gRPC.
//
// A transfer is one batch of one-sided copies with one completion. Whatever happens, `done` is
// called exactly once, and when it has been called no byte of the transfer can land any more:
// after OK every byte is visible in the target memory; after an error the target ranges hold an
// unknown mix and the source is untouched.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/clock.h"
#include "transports/memory_access.h"

namespace hixld {

enum class CopyDirection : uint8_t {
  kRead,   // remote -> local
  kWrite,  // local -> remote
};

// A place in memory that this daemon reaches.
struct MemoryRef {
  MemoryAccess* access = nullptr;
  uint64_t offset = 0;
};

// One contiguous copy of a transfer.
struct CopyPiece {
  MemoryRef local;
  // Set when the remote engine lives in this daemon too.
  MemoryRef remote;
  // The address in the remote engine's process, for links to other daemons.
  uint64_t remote_address = 0;
  uint64_t length = 0;
};

// One block is the commonest transfer: its piece needs no memory of its own.
using CopyPieces = absl::InlinedVector<CopyPiece, 1>;

struct TransferJob {
  // Unique in this daemon; names the transfer on the wire and in the logs.
  uint64_t id = 0;
  CopyDirection direction = CopyDirection::kRead;
  // The target's id of the channel (unused by the local transport).
  uint64_t channel = 0;
  CopyPieces pieces;
  uint64_t bytes = 0;
  // CLOCK_MONOTONIC nanoseconds; when it passes, the transport fences the transfer and ends it
  // with TIMEOUT.
  int64_t deadline_ns = kNoDeadline;
  // Keeps everything that `pieces` points to alive until `done` has run.
  absl::InlinedVector<std::shared_ptr<const void>, 4> pins;
  absl::AnyInvocable<void(absl::Status)> done;

  // Progress, for operators.
  std::atomic<uint64_t> bytes_done{0};
  // Set before `done` runs with PARAM_INVALID, which a target answers to a range that it has not
  // registered: some other byte of the transfer may have landed.
  std::atomic<bool> moved{false};
  // Which worker the channel belongs to.
  uint32_t worker = 0;
  // The sink's own record of the transfer; set by Submit.
  std::weak_ptr<void> sink_state;
};

// Where the pieces of transfers go: the local transport, or one link to another daemon.
class TransferSink {
 public:
  virtual ~TransferSink() = default;
  // "local", "tcp", "rdma".
  virtual absl::string_view transport() const = 0;
  // Starts the transfer. Never blocks; thread-safe.
  virtual void Submit(std::shared_ptr<TransferJob> job) = 0;
  // Ends the transfer early with `reason`, unless it has ended already; `done` runs once the
  // transfer is fenced. Thread-safe.
  virtual void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) = 0;
};

// The target side's answer to "may this channel touch this range?". Lock-free; called on the
// data workers for every piece that arrives.
class TargetResolver {
 public:
  struct Part {
    MemoryRef memory;
    uint64_t length = 0;
    // Bytes of the same region before and after this part, for a transport that prepares whole
    // regions.
    uint64_t before = 0;
    uint64_t after = 0;
    // Keeps `memory` alive while the caller uses it.
    std::shared_ptr<const void> pin;
  };
  virtual ~TargetResolver() = default;
  // [address, address + length) lies in registered memory of the engine that `channel` leads to;
  // otherwise PARAM_INVALID that names the range (NOT_CONNECTED for an unknown channel). A range
  // that spans adjacent regions yields several parts, in order.
  virtual absl::Status Resolve(uint64_t channel, uint64_t address, uint64_t length,
                               std::vector<Part>* parts) = 0;
  // False once the initiator may take the link for fenced, such as after the target was frozen for
  // longer than its lease: then nothing that is still in the sockets may reach memory. Asked before
  // every receive.
  virtual bool MayLand() const { return true; }
};

// The control connection of a link, as its transport sees it: ordered, reliable, small messages.
class ControlPath {
 public:
  virtual ~ControlPath() = default;
  // Sends `payload` to the transport's other end. Thread-safe; never blocks. A broken connection
  // drops it: the link is closed then anyway.
  virtual void SendToPeer(std::string payload) = 0;
};

struct LaneStats {
  uint32_t index = 0;
  std::string transport;  // set by the link
  std::string local_address;
  std::string remote_address;
  std::string state;  // "up", "connecting", "down"
  std::string error;  // why it is not up; the last failure otherwise
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t bytes_uncopied = 0;  // of those sent: from the memory's own pages, without a copy
  uint64_t reconnects = 0;
};

// The initiator's end of one link: carries transfers to one other daemon.
class InitiatorLink : public TransferSink {
 public:
  // A message from the target's end. Thread-safe.
  virtual void OnControlMessage(absl::string_view payload) = 0;
  // The control connection is gone or the link is being closed: every transfer ends with `reason`
  // once it is fenced, further submissions fail at once. `fenced_at_ns` is when the target is
  // known to have dropped the link too (its keep-alive lease); a transfer that might still land
  // there does not end before that. Returns at once.
  virtual void Close(absl::Status reason, int64_t fenced_at_ns) = 0;
  virtual std::vector<LaneStats> Lanes() const = 0;
};

// The target's end of one link: serves what the other daemon asks.
class TargetLink {
 public:
  virtual ~TargetLink() = default;
  // Thread-safe.
  virtual void OnControlMessage(absl::string_view payload) = 0;
  // Stops serving; `closed` runs when no byte that came over this link can land any more.
  virtual void Close(absl::Status reason, absl::AnyInvocable<void()> closed) = 0;
  // Fences one channel: `fenced` runs when no byte for it can land any more. Later pieces for it
  // are refused by the resolver.
  virtual void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) = 0;
  virtual std::vector<LaneStats> Lanes() const = 0;
};

}  // namespace hixld
