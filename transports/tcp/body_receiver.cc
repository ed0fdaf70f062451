#include "transports/tcp/body_receiver.h"

#include <algorithm>
#include <utility>

namespace hixld {

BodyReceiver::~BodyReceiver() { Abandon(); }

void BodyReceiver::Reset() {
  Abandon();
  segments_.clear();
  pins_.clear();
  fences_.clear();
  at_ = 0;
  offset_ = 0;
  left_ = 0;
  resume_ = nullptr;
  quiet_ = nullptr;
  status_ = absl::OkStatus();
}

void BodyReceiver::Add(const MemoryRef& ref, uint64_t length) {
  if (length == 0) return;
  left_ += length;
  std::byte* mapped = ref.access->mapped();
  Segment segment = {.access = mapped == nullptr ? ref.access : nullptr,
                     .host = mapped == nullptr ? nullptr : mapped + ref.offset,
                     .offset = ref.offset,
                     .length = length};
  if (!segments_.empty()) {
    Segment& last = segments_.back();
    const bool joins = last.access == segment.access &&
                       (segment.access != nullptr ? last.offset + last.length == segment.offset
                                                  : last.host + last.length == segment.host);
    if (joins) {
      last.length += length;
      return;
    }
  }
  segments_.push_back(segment);
}

void BodyReceiver::Pin(std::shared_ptr<const void> pin) {
  if (pin != nullptr && (pins_.empty() || pins_.back() != pin)) pins_.push_back(std::move(pin));
}

bool BodyReceiver::HaveBuffer() {
  if (buffer_.valid()) return true;
  if (ticket_ != 0) return false;
  buffer_ = pool_->TryAcquire();
  filled_ = 0;
  return buffer_.valid();
}

size_t BodyReceiver::Places(iovec* out, size_t max, uint64_t limit, uint64_t* bytes) {
  size_t count = 0;
  *bytes = 0;
  uint64_t offset = offset_;
  uint64_t filled = filled_;
  for (size_t at = at_; at < segments_.size() && count < max && *bytes < limit; ++at, offset = 0) {
    const Segment& segment = segments_[at];
    uint64_t length = std::min(segment.length - offset, limit - *bytes);
    std::byte* place = segment.host + offset;
    if (segment.access != nullptr) {
      if (!HaveBuffer()) break;
      length = std::min(length, pool_->buffer_bytes() - filled);
      if (length == 0) break;
      place = buffer_.data() + filled;
      filled += length;
    }
    out[count++] = iovec{.iov_base = place, .iov_len = length};
    *bytes += length;
    if (length < segment.length - offset) break;
  }
  if (count == 0 && ticket_ == 0) {
    // The destructor forgets the ticket, so a plain pointer is safe.
    ticket_ = pool_->Wait([this](StagingBuffer granted) {
      ticket_ = 0;
      buffer_ = std::move(granted);
      filled_ = 0;
      if (resume_) resume_();
    });
  }
  return count;
}

void BodyReceiver::Received(uint64_t bytes) {
  left_ -= bytes;
  while (bytes > 0) {
    const Segment& segment = segments_[at_];
    uint64_t length = std::min(bytes, segment.length - offset_);
    if (segment.access != nullptr) {
      length = std::min(length, pool_->buffer_bytes() - filled_);
      Stage(segment, length);
    }
    bytes -= length;
    offset_ += length;
    if (offset_ == segment.length) {
      ++at_;
      offset_ = 0;
    }
    if (buffer_.valid() && filled_ == pool_->buffer_bytes()) Flush();
  }
  if (left_ == 0) Flush();
}

void BodyReceiver::Stage(const Segment& segment, uint64_t length) {
  const MemoryAccess::Slice slice = {
      .offset = segment.offset + offset_, .host = buffer_.data() + filled_, .length = length};
  filled_ += length;
  if (staged_.empty() || staged_.back().access != segment.access) {
    staged_.push_back({.access = segment.access, .slices = {}});
  }
  auto& slices = staged_.back().slices;
  if (!slices.empty() && slices.back().offset + slices.back().length == slice.offset) {
    slices.back().length += length;
  } else {
    slices.push_back(slice);
  }
}

void BodyReceiver::Flush() {
  if (staged_.empty()) return;
  auto buffer = std::make_shared<StagingBuffer>(std::move(buffer_));
  std::vector<Write> staged;
  staged.swap(staged_);
  writes_ += static_cast<uint32_t>(staged.size());
  for (Write& write : staged) {
    write.access->Write(std::move(write.slices),
                        [self = shared_from_this(), buffer](absl::Status status) mutable {
                          // Accesses answer on any thread.
                          Loop* loop = self->loop_;
                          loop->Post([self = std::move(self), buffer = std::move(buffer),
                                      status = std::move(status)]() mutable {
                            buffer.reset();
                            self->WriteDone(std::move(status));
                          });
                        });
  }
}

void BodyReceiver::WriteDone(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  if (--writes_ > 0 || !quiet_) return;
  auto quiet = std::move(quiet_);
  quiet_ = nullptr;
  quiet();
}

void BodyReceiver::WhenQuiet(absl::AnyInvocable<void()> quiet) {
  if (writes_ == 0) {
    quiet();
  } else {
    quiet_ = std::move(quiet);
  }
}

void BodyReceiver::Abandon() {
  if (ticket_ != 0) pool_->Forget(std::exchange(ticket_, 0));
  resume_ = nullptr;
  buffer_.reset();
  filled_ = 0;
  staged_.clear();
}

}  // namespace hixld
