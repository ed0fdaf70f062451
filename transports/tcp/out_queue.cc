#include "transports/tcp/out_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hixld {
namespace {

constexpr size_t kMaxFree = 32;

OutPart Part(const void* data, size_t length) {
  return {.data = static_cast<const std::byte*>(data), .length = length};
}

}  // namespace

void OutFrame::AddPiece(const wire::Piece& piece) {
  const size_t at = table.size();
  table.resize(at + wire::kPieceBytes);
  wire::EncodePiece(piece, table.data() + at);
}

void OutFrame::AddBody(const std::byte* data, uint64_t length, FilePlace file) {
  if (!body.empty()) {
    OutPart& last = body.back();
    const bool same_file =
        last.fd == file.fd && (file.fd < 0 || last.file_offset + last.length == file.offset);
    if (last.data + last.length == data && same_file) {
      last.length += length;
      return;
    }
  }
  body.push_back({.data = data, .length = length, .fd = file.fd, .file_offset = file.offset});
}

void OutFrame::Pin(std::shared_ptr<const void> pin) {
  if (pin != nullptr && (pins.empty() || pins.back() != pin)) pins.push_back(std::move(pin));
}

std::unique_ptr<OutFrame> OutQueue::New() {
  if (free_.empty()) return std::make_unique<OutFrame>();
  std::unique_ptr<OutFrame> frame = std::move(free_.back());
  free_.pop_back();
  return frame;
}

void OutQueue::Recycle(std::unique_ptr<OutFrame> frame) {
  bytes_ -= frame->left_;
  pieces_ -= frame->body.size();
  if (free_.size() >= kMaxFree) return;
  frame->header = wire::FrameHeader();
  frame->table.clear();
  frame->body.clear();
  frame->text.clear();
  frame->pins.clear();
  frame->staging.reset();
  frame->own_.reset();
  frame->parts_.clear();
  frame->at_ = 0;
  frame->offset_ = 0;
  frame->left_ = 0;
  frame->started_ = false;
  free_.push_back(std::move(frame));
}

void OutQueue::Push(std::unique_ptr<OutFrame> frame) {
  wire::EncodeHeader(frame->header, frame->encoded_);
  frame->parts_.push_back(Part(frame->encoded_, wire::kFrameHeaderBytes));
  if (!frame->table.empty()) {
    frame->parts_.push_back(Part(frame->table.data(), frame->table.size()));
  }
  if (!frame->text.empty()) frame->parts_.push_back(Part(frame->text.data(), frame->text.size()));
  frame->body_at_ = frame->parts_.size();
  frame->parts_.insert(frame->parts_.end(), frame->body.begin(), frame->body.end());
  for (const OutPart& part : frame->parts_) frame->left_ += part.length;
  bytes_ += frame->left_;
  pieces_ += frame->body.size();
  frames_.push_back(std::move(frame));
}

size_t OutQueue::Gather(iovec* out, size_t max, uint64_t max_bytes) const {
  size_t count = 0;
  uint64_t bytes = 0;
  for (const auto& frame : frames_) {
    size_t offset = frame->offset_;
    for (size_t at = frame->at_; at < frame->parts_.size(); ++at, offset = 0) {
      const OutPart& part = frame->parts_[at];
      if (count == max || bytes >= max_bytes || ByFile(part, offset)) return count;
      const size_t length = std::min<uint64_t>(part.length - offset, max_bytes - bytes);
      out[count++] = {.iov_base = const_cast<std::byte*>(part.data) + offset, .iov_len = length};
      bytes += length;
    }
  }
  return count;
}

OutPart OutQueue::NextFile() const {
  if (frames_.empty()) return {};
  const OutFrame& frame = *frames_.front();
  const OutPart& part = frame.parts_[frame.at_];
  if (!ByFile(part, frame.offset_)) return {};
  return {.data = part.data + frame.offset_,
          .length = part.length - frame.offset_,
          .fd = part.fd,
          .file_offset = part.file_offset + frame.offset_};
}

void OutQueue::Sent(uint64_t bytes) {
  bytes_ -= bytes;
  while (bytes > 0) {
    OutFrame& frame = *frames_.front();
    frame.started_ = true;
    const size_t step = std::min<uint64_t>(bytes, frame.parts_[frame.at_].length - frame.offset_);
    bytes -= step;
    frame.left_ -= step;
    frame.offset_ += step;
    if (frame.offset_ == frame.parts_[frame.at_].length) {
      ++frame.at_;
      frame.offset_ = 0;
    }
    if (frame.left_ == 0) {
      std::unique_ptr<OutFrame> done = std::move(frames_.front());
      frames_.pop_front();
      Recycle(std::move(done));
    }
  }
}

// Copies what is left of the body, so that the memory it comes from can go.
void OutQueue::OwnBody(OutFrame* frame) {
  uint64_t left = 0;
  for (size_t i = std::max(frame->at_, frame->body_at_); i < frame->parts_.size(); ++i) {
    left += frame->parts_[i].length;
  }
  size_t at = frame->body_at_;
  size_t offset = 0;
  if (frame->at_ >= frame->body_at_) {
    at = frame->at_;
    offset = frame->offset_;
    left -= offset;
    frame->at_ = frame->body_at_;
    frame->offset_ = 0;
  }
  auto own = std::make_unique<std::byte[]>(left);
  uint64_t copied = 0;
  for (; at < frame->parts_.size(); ++at, offset = 0) {
    const OutPart& part = frame->parts_[at];
    memcpy(own.get() + copied, part.data + offset, part.length - offset);
    copied += part.length - offset;
  }
  frame->parts_.resize(frame->body_at_);
  if (left > 0) frame->parts_.push_back(Part(own.get(), left));
  frame->own_ = std::move(own);
  frame->pins.clear();
  frame->staging.reset();
}

void OutQueue::Abandon(Match match, absl::FunctionRef<void(const wire::FrameHeader&)> dropped) {
  std::vector<wire::FrameHeader> headers;
  for (size_t i = 0; i < frames_.size();) {
    OutFrame& frame = *frames_[i];
    if (!match(frame.header)) {
      ++i;
    } else if (!frame.started_) {
      headers.push_back(frame.header);
      std::unique_ptr<OutFrame> gone = std::move(frames_[i]);
      frames_.erase(frames_.begin() + static_cast<ptrdiff_t>(i));
      Recycle(std::move(gone));
    } else {
      OwnBody(&frame);
      ++i;
    }
  }
  for (const wire::FrameHeader& header : headers) dropped(header);
}

void OutQueue::Clear() {
  while (!frames_.empty()) {
    std::unique_ptr<OutFrame> gone = std::move(frames_.front());
    frames_.pop_front();
    Recycle(std::move(gone));
  }
}

}  // namespace hixld
