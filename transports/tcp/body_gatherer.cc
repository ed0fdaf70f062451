#include "transports/tcp/body_gatherer.h"

#include <utility>

namespace hixld {

BodyGatherer::~BodyGatherer() { Abandon(); }

void BodyGatherer::Add(const MemoryRef& memory, uint64_t length) {
  segments_.push_back({.memory = memory, .length = length});
}

void BodyGatherer::Pin(std::shared_ptr<const void> pin) {
  if (pin != nullptr && (pins_.empty() || pins_.back() != pin)) pins_.push_back(std::move(pin));
}

void BodyGatherer::Start(Ready ready) {
  ready_ = std::move(ready);
  // The destructor forgets the ticket, so a plain pointer is safe.
  ticket_ = pool_->Wait([this](StagingBuffer buffer) {
    ticket_ = 0;
    ReadAll(std::move(buffer));
  });
}

void BodyGatherer::ReadAll(StagingBuffer buffer) {
  buffer_ = std::move(buffer);
  struct Read {
    MemoryAccess* access;
    std::vector<MemoryAccess::Slice> slices;
  };
  std::vector<Read> reads;
  std::byte* at = buffer_.data();
  for (const Segment& segment : segments_) {
    MemoryAccess* access = segment.memory.access;
    if (access->mapped() != nullptr) continue;
    if (reads.empty() || reads.back().access != access) reads.push_back({access, {}});
    reads.back().slices.push_back({segment.memory.offset, at, segment.length});
    at += segment.length;
  }
  reads_ = static_cast<uint32_t>(reads.size());
  for (Read& read : reads) {
    read.access->Read(std::move(read.slices),
                      [self = shared_from_this()](absl::Status status) mutable {
                        // Accesses answer on any thread.
                        Loop* loop = self->loop_;
                        loop->Post([self = std::move(self), status = std::move(status)]() mutable {
                          self->ReadDone(std::move(status));
                        });
                      });
  }
}

void BodyGatherer::ReadDone(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  if (--reads_ > 0 || !ready_) return;
  Ready ready = std::move(ready_);
  ready_ = nullptr;
  ready(status_);
}

void BodyGatherer::MoveTo(OutFrame* frame) {
  const std::byte* at = buffer_.data();
  for (const Segment& segment : segments_) {
    const std::byte* mapped = segment.memory.access->mapped();
    if (mapped != nullptr) {
      frame->AddBody(mapped + segment.memory.offset, segment.length);
    } else {
      frame->AddBody(at, segment.length);
      at += segment.length;
    }
  }
  for (auto& pin : pins_) frame->Pin(std::move(pin));
  frame->staging = std::move(buffer_);
  segments_.clear();
  pins_.clear();
}

void BodyGatherer::Abandon() {
  if (ticket_ != 0) pool_->Forget(std::exchange(ticket_, 0));
  ready_ = nullptr;
}

}  // namespace hixld
