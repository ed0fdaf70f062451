#include "daemon/session/fd_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_reserve.h"

namespace hixld {
namespace {

// Packets taken per wake-up, so that one peer's flood does not keep the others waiting.
constexpr int kPacketsPerTurn = 16;

bool TakesReserve(const std::vector<UniqueFd>& fds) {
  return std::any_of(fds.begin(), fds.end(),
                     [](const UniqueFd& fd) { return IsReservedDescriptor(fd.get()); });
}

}  // namespace

absl::StatusOr<std::shared_ptr<FdConnection>> FdConnection::Start(Loop* loop, UniqueFd socket,
                                                                  Callbacks callbacks) {
  const int fd = socket.get();
  auto connection = std::shared_ptr<FdConnection>(
      new FdConnection(loop, std::move(socket), std::move(callbacks)));
  absl::Status added = loop->AddFd(fd, EPOLLIN, [weak = connection->weak_from_this()](uint32_t e) {
    if (const auto self = weak.lock()) self->OnEvents(e);
  });
  if (!added.ok()) {
    connection->socket_.reset();
    return added;
  }
  return connection;
}

FdConnection::~FdConnection() {
  if (socket_.valid()) loop_->RemoveFd(socket_.get());
}

UniqueFd FdConnection::Close() {
  if (socket_.valid()) loop_->RemoveFd(socket_.get());
  queue_.clear();
  queued_bytes_ = 0;
  return std::move(socket_);
}

void FdConnection::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Receive();
}

void FdConnection::Receive() {
  for (int i = 0; i < kPacketsPerTurn && !closed() && !broken_; ++i) {
    std::vector<UniqueFd> refused;
    absl::StatusOr<FdPacket> packet = ReceiveFdPacket(socket_.get(), &refused);
    if (packet.ok() && (packet->fds_lost || TakesReserve(packet->fds))) {
      for (UniqueFd& fd : packet->fds) refused.push_back(std::move(fd));
      callbacks_.on_starved(packet->message.request_id(), std::move(refused));
    } else if (packet.ok()) {
      callbacks_.on_packet(*std::move(packet));
    } else if (absl::IsAborted(packet.status())) {
      return;
    } else if (absl::IsInvalidArgument(packet.status())) {
      callbacks_.on_refused(packet.status(), std::move(refused));
    } else {
      Break(packet.status());
    }
  }
}

void FdConnection::Send(hixl::fdchannel::v1::FdMessage message, std::vector<int> fds,
                        std::shared_ptr<const void> keep) {
  if (closed() || broken_) return;
  if (queue_.empty()) {
    const absl::Status sent = SendFdPacket(socket_.get(), message, fds);
    if (sent.ok()) return;
    if (!absl::IsResourceExhausted(sent)) return Break(sent);
  }
  Outgoing outgoing = {
      .message = std::move(message), .fds = std::move(fds), .keep = std::move(keep)};
  outgoing.bytes = outgoing.message.ByteSizeLong();
  if (queue_.size() >= kMaxQueuedPackets || queued_bytes_ + outgoing.bytes > kMaxQueuedBytes) {
    return Break(absl::ResourceExhaustedError(
        absl::StrCat("the peer does not read its fd channel: ", queue_.size(), " packets wait")));
  }
  queued_bytes_ += outgoing.bytes;
  queue_.push_back(std::move(outgoing));
  if (queue_.size() == 1) {
    absl::Status modified = loop_->ModifyFd(socket_.get(), EPOLLIN | EPOLLOUT);
    if (!modified.ok()) Break(std::move(modified));
  }
}

void FdConnection::Flush() {
  while (!queue_.empty()) {
    const absl::Status sent =
        SendFdPacket(socket_.get(), queue_.front().message, queue_.front().fds);
    if (absl::IsResourceExhausted(sent)) return;
    if (!sent.ok()) return Break(sent);
    queued_bytes_ -= queue_.front().bytes;
    queue_.pop_front();
  }
  absl::Status modified = loop_->ModifyFd(socket_.get(), EPOLLIN);
  if (!modified.ok()) Break(std::move(modified));
}

// Tells of the end later and not from inside Send, whose caller may be in the middle of something.
void FdConnection::Break(absl::Status reason) {
  if (broken_) return;
  broken_ = true;
  loop_->Post([weak = weak_from_this(), reason = std::move(reason)] {
    const auto self = weak.lock();
    if (self != nullptr && !self->closed()) self->callbacks_.on_broken(reason);
  });
}

}  // namespace hixld
