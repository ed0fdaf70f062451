// This process's session with a daemon: the fd channel, its token, and the thread that reads it.
// See docs/fd-channel.md.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/arena.h"
#include "client/cpp/device_memory.h"
#include "client/cpp/peer_files.h"
#include "client/cpp/process.h"
#include "client/cpp/rpc.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "proto/fdchannel/channel.h"
#include "proto/ring/producer.h"

namespace hixld::client {

// Thread-safe. Lives until the connection's last user lets go of it; all that the daemon keeps for
// it is released then. Must be destroyed in the process that opened it (OwnedByProcess).
class Session {
 public:
  // Connects to the fd channel at `fd_socket` and greets; `deadline` is in MonotonicNanos.
  // absl::StatusCode::kUnavailable when nobody listens. `on_lost` is called once, on any thread,
  // when the session ends; it must not destroy the session.
  static absl::StatusOr<std::shared_ptr<Session>> Open(const std::string& socket,
                                                       const std::string& fd_socket,
                                                       std::function<void()> on_lost,
                                                       int64_t deadline);
  ~Session();

  Rpc& rpc() { return *rpc_; }
  // The daemon was started with --private, as far as this process can see.
  bool private_daemon() const { return private_daemon_; }
  // Differs from session to session in this process; rises.
  uint64_t number() const { return number_; }
  // The session's shared-memory rings; nullptr where the daemon offers none. Asked for once, by
  // the first caller. They stay readable after the daemon's death.
  ring::Producer* rings();
  // False from the moment that the daemon's end is seen to be closed; never true again.
  bool alive() const { return alive_.load(std::memory_order_acquire); }
  // Called by whoever learns from an answer that the daemon has forgotten the session.
  void MarkLost(const std::string& reason);
  std::string lost_reason() const;

  // Hands a memfd of `size` bytes to the daemon; returns the handle for RegisterMemory.
  absl::StatusOr<uint64_t> PutMemory(int fd, uint64_t size, int64_t deadline);
  // Forgets such a handle; regions registered by it stay.
  void DropMemory(uint64_t handle);
  // The pool arena, asked for once and kept as long as the session lives.
  absl::StatusOr<std::shared_ptr<Arena>> GetArena(uint64_t arena_id, int64_t deadline);
  // Device memory of this session that this process has mapped, for copies which the daemon
  // leaves to the owner (ExecutionPlace::kClient).
  DeviceMemory& device_memory() { return device_memory_; }

  // Transfers of at most so many bytes may be copied by this process itself; 0: none.
  uint64_t direct_max_bytes() const { return direct_max_bytes_; }
  struct DirectGrant {
    uint64_t id = 0;
    Mapping gate;
    UniqueFd wake;
    UniqueFd target_pidfd;  // invalid: the gate's table has no plain memory
  };
  // The right to do so on a channel (docs/direct-copies.md). UNSUPPORTED: never on this one.
  absl::StatusOr<DirectGrant> GetDirectGrant(uint64_t engine_handle, uint64_t channel_id,
                                             int64_t deadline);
  // The whole of a memfd that the grant names, mapped; `known` may have it already.
  absl::StatusOr<std::shared_ptr<const PeerFile>> GetDirectFile(uint64_t grant_id, uint32_t file,
                                                                PeerFiles* known, int64_t deadline);

 private:
  using Message = hixl::fdchannel::v1::FdMessage;
  struct Waiter {
    bool done = false;
    absl::StatusOr<FdPacket> answer = absl::UnknownError("");
  };

  Session(UniqueFd fd, std::function<void()> on_lost)
      : number_(NextNumber()),
        fd_(std::move(fd)),
        close_on_fork_(fd_.get()),
        on_lost_(std::move(on_lost)) {}
  static uint64_t NextNumber();
  absl::Status Greet(int64_t deadline, std::string* token);
  absl::StatusOr<FdPacket> Ask(Message message, const std::vector<int>& fds, int64_t deadline);
  void Read();
  void Dispatch(FdPacket packet);
  void Answer(FdPacket packet);
  void ServeCopy(const Message& message);
  void ReplyCopyDone(uint64_t request_id, int error, uint64_t address);
  std::shared_ptr<Arena> KnownArena(uint64_t arena_id);
  absl::StatusOr<std::shared_ptr<Arena>> KeepArena(FdPacket packet);
  absl::Status Send(const Message& message, const std::vector<int>& fds = {});

  void SetUpRings();
  absl::StatusOr<std::unique_ptr<ring::Producer>> AskForRings();

  const uint64_t number_;
  const UniqueFd fd_;
  const CloseOnFork close_on_fork_;
  const std::function<void()> on_lost_;
  // What the daemon reads to learn whether it may touch our memory.
  std::array<std::byte, 16> probe_ = {};
  DeviceMemory device_memory_;
  uint64_t direct_max_bytes_ = 0;
  std::unique_ptr<Rpc> rpc_;
  bool private_daemon_ = false;
  std::atomic<bool> alive_{true};

  // One packet at a time.
  Mutex send_mutex_;
  // Guards the waiting askers, the arenas and why the session ended.
  mutable Mutex mutex_;
  CondVar answered_;
  uint64_t next_request_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Waiter*> waiters_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Arena>> arenas_ ABSL_GUARDED_BY(mutex_);
  // Copy commands that wait for the descriptor of their arena, by the request that asks for it.
  // Touched by the reading thread only.
  std::map<uint64_t, std::vector<Message>> copies_awaiting_arena_;
  std::string goodbye_ ABSL_GUARDED_BY(mutex_);
  std::string lost_reason_ ABSL_GUARDED_BY(mutex_);
  std::thread reader_;

  std::once_flag rings_asked_;
  std::unique_ptr<ring::Producer> owned_rings_;
  // Set once; read by MarkLost on any thread.
  std::atomic<ring::Producer*> rings_{nullptr};
};

}  // namespace hixld::client
