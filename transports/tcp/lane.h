// One TCP connection that carries frames: what both ends of a lane have in common.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "proto/wire/frame.h"
#include "transports/loop/loop.h"
#include "transports/tcp/body_receiver.h"
#include "transports/tcp/context.h"
#include "transports/tcp/out_queue.h"
#include "transports/transport.h"

namespace hixld {

// Belongs to one loop; only stats() may be called from elsewhere. The socket is watched
// edge-triggered, so no system call is spent on changing what is watched.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  virtual ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Loop* loop() const { return loop_; }
  uint32_t index() const { return index_; }
  LaneStats stats() const;

 protected:
  Lane(std::shared_ptr<TcpContext> context, Loop* loop, uint32_t index);

  // Takes over a connected or connecting socket. The first event starts the traffic.
  absl::Status Attach(UniqueFd socket);
  // Closes the socket abruptly and forgets what is half received. What was not sent stays in out()
  // until the next Attach, so that it can be given back.
  void Detach();
  bool attached() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }

  // A header and its pieces have come. Says with Receive*() where the body goes (by default it is
  // thrown away). An error closes the lane as malformed.
  virtual absl::Status OnFrame(const wire::FrameHeader& header,
                               const std::vector<wire::Piece>& pieces) = 0;
  // The body of that frame is complete.
  virtual absl::Status OnBodyEnd() = 0;
  // False: no further frame is read until there is room for answers again.
  virtual bool MayReadFrame() { return true; }
  // Whether what is received may still go to memory; if not, the lane is closed.
  virtual bool MayLand() { return true; }
  // There is room for more output.
  virtual void Refill() {}
  // The connection is gone, or was closed because of what came over it; Detach has been called.
  virtual void OnBroken(absl::Status reason) = 0;

  void ReceiveInto(BodyReceiver* receiver);
  void ReceiveInto(std::string* text, uint64_t bytes);
  // What is left of the current body is thrown away.
  void Divert();
  bool in_body() const { return state_ == State::kBody; }

  OutQueue& out() { return out_; }
  // Runs the lane soon: there is output, or what it waited for has come.
  void Schedule();
  // Closes the lane; not from within the callbacks above.
  void Break(absl::Status reason, bool malformed);
  // The current body waits for a staging buffer.
  bool waits_for_staging() const { return blocked_ && in_body(); }

  int64_t last_progress_ns() const { return last_progress_ns_; }
  void MarkProgress() { last_progress_ns_ = MonotonicNanos(); }
  void SetState(std::string state, std::string error = "");
  void CountReconnect() { reconnects_.fetch_add(1, std::memory_order_relaxed); }

  const std::shared_ptr<TcpContext> context_;

 private:
  enum class State { kHeader, kPieces, kBody };
  enum class Sink { kDiscard, kReceiver, kText };

  void OnEvents(uint32_t events);
  void Run();
  bool Receive();
  bool Send(uint64_t* budget);
  ssize_t SendFile(const OutPart& part, uint64_t limit);
  ssize_t SendGathered(uint64_t limit);

  absl::Status Parse();
  bool ParseHeader(absl::Status* error);
  bool ParsePieces();
  absl::Status StartBody();
  absl::Status EndBodyIfComplete();
  bool CopyBufferedBody();
  size_t BodyPlaces(iovec* out, size_t max, uint64_t limit, uint64_t* bytes);
  void BodyReceived(uint64_t bytes);
  ssize_t ReadMore();
  void AdjustLowWater();
  size_t buffered() const { return buffer_end_ - buffer_begin_; }

  Loop* const loop_;
  const uint32_t index_;
  UniqueFd socket_;
  bool readable_ = false;
  bool writable_ = false;
  int low_water_ = 1;     // SO_RCVLOWAT
  bool hung_up_ = false;  // the peer has ended its stream, or an error waits
  bool run_posted_ = false;
  bool running_ = false;
  bool blocked_ = false;  // input waits for staging or for room for answers

  State state_ = State::kHeader;
  wire::FrameHeader header_;
  std::vector<wire::Piece> pieces_;
  uint64_t body_left_ = 0;
  Sink sink_ = Sink::kDiscard;
  BodyReceiver* receiver_ = nullptr;
  std::string* text_ = nullptr;
  size_t text_at_ = 0;
  // Headers, tables and small bodies are read ahead into this.
  std::unique_ptr<uint8_t[]> buffer_;
  size_t buffer_begin_ = 0;
  size_t buffer_end_ = 0;

  OutQueue out_;
  int64_t last_progress_ns_ = 0;

  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> bytes_received_{0};
  std::atomic<uint64_t> bytes_uncopied_{0};
  std::atomic<uint64_t> reconnects_{0};
  mutable Mutex mutex_;
  std::string state_text_ ABSL_GUARDED_BY(mutex_);
  std::string error_ ABSL_GUARDED_BY(mutex_);
  std::string local_address_ ABSL_GUARDED_BY(mutex_);
  std::string remote_address_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld
