#include "transports/tcp/lane_acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "proto/base/clock.h"
#include "proto/wire/frame.h"
#include "transports/tcp/socket.h"

namespace hixld {
namespace {

constexpr uint32_t kMaxWaiting = 256;
constexpr int64_t kHelloTimeoutNs = 5 * kNanosPerSecond;
constexpr size_t kHelloBytes = wire::kFrameHeaderBytes + wire::kLaneProofBytes;

}  // namespace

struct LaneAcceptor::Pending {
  Loop* loop = nullptr;
  UniqueFd socket;
  Loop::TimerId timer = 0;
  uint8_t bytes[kHelloBytes];
  size_t got = 0;
};

LaneAcceptor::LaneAcceptor(std::shared_ptr<TcpContext> context, OnHello on_hello)
    : context_(std::move(context)), on_hello_(std::move(on_hello)) {}

void LaneAcceptor::Accept(UniqueFd socket) {
  if (waiting_.fetch_add(1, std::memory_order_relaxed) >= kMaxWaiting) {
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    context_->refused_lanes.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  SetLaneOptions(socket.get(), IsLoopback(socket.get()), context_->options);
  Loop* loop = &context_->workers->at(context_->workers->Next());
  loop->Post([self = shared_from_this(), loop, socket = std::move(socket)]() mutable {
    self->Watch(loop, std::move(socket));
  });
}

void LaneAcceptor::Watch(Loop* loop, UniqueFd socket) {
  auto pending = std::make_shared<Pending>();
  pending->loop = loop;
  pending->socket = std::move(socket);
  pending->timer =
      loop->AddTimer(MonotonicNanos() + kHelloTimeoutNs, [self = shared_from_this(), pending] {
        pending->timer = 0;
        self->Refuse(pending);
      });
  const absl::Status status =
      loop->AddFd(pending->socket.get(), EPOLLIN | EPOLLRDHUP,
                  [self = shared_from_this(), pending](uint32_t) { self->OnReadable(pending); });
  if (!status.ok()) Refuse(pending);
}

void LaneAcceptor::OnReadable(const std::shared_ptr<Pending>& pending) {
  if (!pending->socket.valid()) return;
  // Never more than the hello: what follows belongs to the lane.
  const ssize_t got =
      recv(pending->socket.get(), pending->bytes + pending->got, kHelloBytes - pending->got, 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) {
    Refuse(pending);
    return;
  }
  pending->got += static_cast<size_t>(got);
  if (pending->got < wire::kFrameHeaderBytes) return;
  const auto header = wire::DecodeHeader(absl::MakeConstSpan(pending->bytes, pending->got));
  if (!header.ok() || header->type != wire::FrameType::kLaneHello || header->pieces != 0 ||
      header->body != wire::kLaneProofBytes || header->channel >= kMaxLanes) {
    context_->malformed_frames.fetch_add(1, std::memory_order_relaxed);
    Refuse(pending);
    return;
  }
  if (pending->got < kHelloBytes) return;
  Hello hello = {
      .link_id = header->transfer,
      .lane = static_cast<uint32_t>(header->channel),
      .generation = header->stripe,
      .proof = std::string(reinterpret_cast<const char*>(pending->bytes) + wire::kFrameHeaderBytes,
                           wire::kLaneProofBytes)};
  on_hello_(Release(pending), std::move(hello));
}

UniqueFd LaneAcceptor::Release(const std::shared_ptr<Pending>& pending) {
  if (pending->timer != 0) pending->loop->CancelTimer(std::exchange(pending->timer, 0));
  pending->loop->RemoveFd(pending->socket.get());
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return std::move(pending->socket);
}

void LaneAcceptor::Refuse(const std::shared_ptr<Pending>& pending) {
  context_->refused_lanes.fetch_add(1, std::memory_order_relaxed);
  Release(pending).reset();
}

}  // namespace hixld
