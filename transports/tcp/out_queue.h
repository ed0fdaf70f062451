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

struct FilePlace {
  int fd = -1;  // -1: none
  uint64_t offset = 0;
};

// Bytes in memory, and where they lie in a file when they do.
struct OutPart {
  const std::byte* data = nullptr;
  size_t length = 0;
  int fd = -1;
  uint64_t file_offset = 0;
};

// One frame: what it consists of, and who keeps that alive.
struct OutFrame {
  wire::FrameHeader header;
  std::vector<uint8_t> table;  // encoded pieces
  std::vector<OutPart> body;   // joined where neighbours touch
  std::string text;            // a small body of its own
  std::vector<std::shared_ptr<const void>> pins;
  StagingBuffer staging;

  void AddPiece(const wire::Piece& piece);
  // Joins with the one before where they touch. With `file`, a socket may take the bytes from
  // there: then they must not change before the peer has answered.
  void AddBody(const std::byte* data, uint64_t length, FilePlace file = {});
  void Pin(std::shared_ptr<const void> pin);

 private:
  friend class OutQueue;
  uint8_t encoded_[wire::kFrameHeaderBytes];
  // Everything in order; [at_] is sent up to offset_.
  std::vector<OutPart> parts_;
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

  // The next bytes to send, from as many frames as fit, up to the first part that NextFile would
  // give. Returns the number of iovecs.
  size_t Gather(iovec* out, size_t max, uint64_t max_bytes) const;
  // The next bytes, when they lie in a file and are at least as many as set_file_bytes says.
  // fd -1 otherwise.
  OutPart NextFile() const;
  // 0: files are not used.
  void set_file_bytes(uint64_t bytes) { file_bytes_ = bytes; }
  // `bytes` of what Gather or NextFile gave are in the kernel.
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
  bool ByFile(const OutPart& part, size_t offset) const {
    return file_bytes_ > 0 && part.fd >= 0 && part.length - offset >= file_bytes_;
  }
  static void OwnBody(OutFrame* frame);
  void Recycle(std::unique_ptr<OutFrame> frame);

  std::deque<std::unique_ptr<OutFrame>> frames_;
  std::vector<std::unique_ptr<OutFrame>> free_;
  uint64_t bytes_ = 0;
  size_t pieces_ = 0;
  uint64_t file_bytes_ = 0;
};

}  // namespace hixld
