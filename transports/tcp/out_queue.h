// Frames on their way out of one lane.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/wire/frame.h"
#include "transports/staging/staging_pool.h"

namespace hixld {

// One frame: what it consists of, and who keeps that alive.
struct OutFrame {
  wire::FrameHeader header;
  std::vector<uint8_t> table;  // encoded pieces
  std::vector<iovec> body;     // joined where neighbours touch
  std::string text;            // a small body of its own
  std::vector<std::shared_ptr<const void>> pins;
  StagingBuffer staging;

  void AddPiece(const wire::Piece& piece);
  // Joins with the one before where they touch.
  void AddBody(const std::byte* data, uint64_t length);
  void Pin(std::shared_ptr<const void> pin);

 private:
  friend class OutQueue;
  uint8_t encoded_[wire::kFrameHeaderBytes];
  // Everything in order; [at_] is sent up to offset_.
  std::vector<iovec> parts_;
  std::unique_ptr<std::byte[]> own_;
  size_t body_at_ = 0;  // the first part that is body
  size_t at_ = 0;
  size_t offset_ = 0;
  uint64_t left_ = 0;
  bool started_ = false;
};

class OutQueue {
 public:
  // An empty frame, with the capacity of an earlier one.
  std::unique_ptr<OutFrame> New();
  void Push(std::unique_ptr<OutFrame> frame);

  // The next bytes to send, from as many frames as fit. Returns the number of iovecs.
  size_t Gather(iovec* out, size_t max, uint64_t max_bytes) const;
  // `bytes` of what Gather gave are in the kernel.
  void Sent(uint64_t bytes);

  bool empty() const { return frames_.empty(); }
  size_t frames() const { return frames_.size(); }
  uint64_t bytes() const { return bytes_; }
  size_t pieces() const { return pieces_; }

  using Match = absl::FunctionRef<bool(const wire::FrameHeader&)>;
  // Takes matching frames of which nothing has been sent out of the queue. A matching frame that
  // is partly sent cannot be broken off: it goes on with a copy and lets its memory go.
  void Abandon(Match match, absl::FunctionRef<void(const wire::FrameHeader&)> dropped);
  void Clear();

 private:
  static void OwnBody(OutFrame* frame);
  void Recycle(std::unique_ptr<OutFrame> frame);

  std::deque<std::unique_ptr<OutFrame>> frames_;
  std::vector<std::unique_ptr<OutFrame>> free_;
  uint64_t bytes_ = 0;
  size_t pieces_ = 0;
};

}  // namespace hixld
