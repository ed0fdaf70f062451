// One fd channel on a loop: packets in, packets out through a bounded queue.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/fd.h"
#include "proto/fdchannel/channel.h"
#include "transports/loop/loop.h"

namespace hixld {

// Lives on its loop's thread: every call is made and every callback runs there.
class FdConnection : public std::enable_shared_from_this<FdConnection> {
 public:
  // At most this much waits for a peer that does not read.
  static constexpr size_t kMaxQueuedPackets = 1024;
  static constexpr size_t kMaxQueuedBytes = 4 << 20;

  struct Callbacks {
    std::function<void(FdPacket)> on_packet;
    // A packet that was no FdMessage, and the descriptors that came with it.
    std::function<void(absl::Status, std::vector<UniqueFd>)> on_refused;
    // A request whose descriptors this process has no room for, and those that it got.
    std::function<void(uint64_t request_id, std::vector<UniqueFd>)> on_starved;
    // The peer is gone, or does not read. The connection is still to be closed.
    std::function<void(absl::Status)> on_broken;
  };

  // `socket` is connected and non-blocking.
  static absl::StatusOr<std::shared_ptr<FdConnection>> Start(Loop* loop, UniqueFd socket,
                                                             Callbacks callbacks);
  ~FdConnection();

  // Sends a packet, with descriptors that `keep` owns.
  void Send(hixl::fdchannel::v1::FdMessage message, std::vector<int> fds = {},
            std::shared_ptr<const void> keep = nullptr);
  // Leaves the loop; no callback runs any more. The socket is the caller's to close, since closing
  // it frees descriptors that were never received, which may block.
  UniqueFd Close();
  bool closed() const { return !socket_.valid(); }

 private:
  struct Outgoing {
    hixl::fdchannel::v1::FdMessage message;
    std::vector<int> fds;
    std::shared_ptr<const void> keep;
    size_t bytes = 0;
  };

  FdConnection(Loop* loop, UniqueFd socket, Callbacks callbacks)
      : loop_(loop), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {}

  void OnEvents(uint32_t events);
  void Receive();
  void Flush();
  void Break(absl::Status reason);

  Loop* const loop_;
  UniqueFd socket_;
  Callbacks callbacks_;
  std::deque<Outgoing> queue_;
  size_t queued_bytes_ = 0;
  bool broken_ = false;
};

}  // namespace hixld
