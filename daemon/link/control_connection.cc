#include "daemon/link/control_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

using hixl::wire::v1::PeerMessage;

constexpr uint32_t kReadable = EPOLLIN;
constexpr uint32_t kWritable = EPOLLOUT;
constexpr size_t kReadBytes = 64 << 10;
// What one event may take in before the loop looks at its other work.
constexpr size_t kMaxReadPerEvent = 1 << 20;

uint32_t LengthAt(const std::string& bytes, size_t at) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data() + at);
  return p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24;
}

std::string Frame(const PeerMessage& message) {
  std::string frame(4, '\0');
  message.AppendToString(&frame);
  const auto length = static_cast<uint32_t>(frame.size() - 4);
  for (int i = 0; i < 4; ++i) frame[i] = static_cast<char>(length >> (8 * i));
  return frame;
}

Endpoint NameOf(int fd, int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  get(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return EndpointFromSockaddr(address, length);
}

}  // namespace

void ConfigureControlSocket(int fd) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

ControlConnection::ControlConnection(Loop* loop, UniqueFd socket)
    : loop_(loop),
      socket_(std::move(socket)),
      local_(NameOf(socket_.get(), getsockname)),
      peer_(NameOf(socket_.get(), getpeername)) {
  ConfigureControlSocket(socket_.get());
}

ControlConnection::~ControlConnection() = default;

void ControlConnection::SetHandler(Handler handler) {
  const bool first = handler_ == nullptr;
  handler_ = std::make_shared<Handler>(std::move(handler));
  const uint32_t out = out_.empty() ? 0 : kWritable;
  if (first) Watch(kReadable | out);
}

void ControlConnection::Watch(uint32_t events) {
  if (closed() || (watching_ && events == events_)) return;
  absl::Status status;
  if (watching_) {
    status = loop_->ModifyFd(socket_.get(), events);
  } else {
    status = loop_->AddFd(socket_.get(), events, [weak = weak_from_this()](uint32_t happened) {
      if (auto self = weak.lock()) self->OnEvents(happened);
    });
  }
  watching_ = status.ok();
  events_ = events;
  if (!status.ok()) End(status, ConnectionEnd::kError);
}

void ControlConnection::OnEvents(uint32_t events) {
  const auto self = shared_from_this();
  if (!reading_ && (events & (EPOLLHUP | EPOLLERR)) != 0) {
    // Nothing more can be sent, and nobody wants to know why.
    loop_->RemoveFd(socket_.get());
    watching_ = false;
    return;
  }
  if ((events & EPOLLOUT) != 0) Flush();
  if (!closed() && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read();
}

void ControlConnection::Read() {
  size_t taken = 0;
  while (!closed() && reading_ && taken < kMaxReadPerEvent) {
    const size_t old = in_.size();
    in_.resize(old + kReadBytes);
    const ssize_t got = recv(socket_.get(), in_.data() + old, kReadBytes, 0);
    const int error = errno;
    in_.resize(old + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got > 0) {
      taken += static_cast<size_t>(got);
      if (draining_) {
        in_.clear();
      } else {
        Dispatch();
      }
      continue;
    }
    if (got == 0) {
      return End(absl::UnavailableError("the peer closed the connection"), ConnectionEnd::kEof);
    }
    if (error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    return End(ErrnoError(error, "receive from the peer"),
               error == ECONNRESET ? ConnectionEnd::kReset : ConnectionEnd::kError);
  }
  // Nobody wants to read any more; only an error can still happen.
  if (!closed() && !reading_) Watch(events_ & ~kReadable);
}

void ControlConnection::Dispatch() {
  size_t at = 0;
  while (!closed() && reading_ && !draining_ && in_.size() - at >= 4) {
    const uint32_t length = LengthAt(in_, at);
    if (length > kMaxPeerMessageBytes) {
      return End(ParamInvalid(absl::StrCat("the peer sent a message of ", length,
                                           " bytes; allowed: up to ", kMaxPeerMessageBytes),
                              {.object = "peer message"}),
                 ConnectionEnd::kProtocol);
    }
    if (in_.size() - at - 4 < length) break;
    PeerMessage message;
    if (!message.ParseFromArray(in_.data() + at + 4, static_cast<int>(length)) ||
        message.body_case() == PeerMessage::BODY_NOT_SET) {
      return End(ParamInvalid("the peer sent what is no message of this protocol",
                              {.object = "peer message"}),
                 ConnectionEnd::kProtocol);
    }
    at += 4 + length;
    // The handler may replace itself.
    const std::shared_ptr<Handler> handler = handler_;
    handler->on_message(std::move(message));
  }
  in_.erase(0, at);
}

void ControlConnection::Send(const PeerMessage& message) {
  std::string frame = Frame(message);
  queued_.fetch_add(frame.size(), std::memory_order_relaxed);
  loop_->Dispatch([self = shared_from_this(), frame = std::move(frame)] {
    if (self->closed()) return;
    if (self->queued_.load(std::memory_order_relaxed) > kMaxPeerQueueBytes) {
      return self->End(Failed("the peer does not read its control connection"),
                       ConnectionEnd::kProtocol);
    }
    self->out_ += frame;
    self->Flush();
  });
}

void ControlConnection::Flush() {
  while (!closed() && sent_ < out_.size()) {
    const ssize_t sent =
        send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (sent >= 0) {
      sent_ += static_cast<size_t>(sent);
      queued_.fetch_sub(static_cast<size_t>(sent), std::memory_order_relaxed);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    // What the peer sent before it closed is still there to be read, and says more than this
    // error; reading ends the connection.
    if (errno == EPIPE || errno == ECONNRESET) {
      out_.clear();
      sent_ = 0;
      return Watch(reading_ ? kReadable : 0);
    }
    return End(ErrnoError(errno, "send to the peer"), ConnectionEnd::kError);
  }
  if (closed()) return;
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
    if (draining_ && !shut_) {
      shut_ = true;
      shutdown(socket_.get(), SHUT_WR);
    }
  }
  if (handler_ != nullptr) {
    const uint32_t in = reading_ ? kReadable : 0;
    const uint32_t out = out_.empty() ? 0 : kWritable;
    Watch(in | out);
  }
}

void ControlConnection::StopReading() { reading_ = false; }

void ControlConnection::Close() {
  if (closed()) return;
  if (watching_) loop_->RemoveFd(socket_.get());
  watching_ = false;
  socket_.reset();
}

void ControlConnection::CloseFlushed() {
  if (closed()) return;
  reading_ = true;
  draining_ = true;
  SetHandler({});
  loop_->AddTimer(MonotonicNanos() + kNanosPerSecond,
                  [self = shared_from_this()] { self->Close(); });
  Flush();
}

void ControlConnection::End(const absl::Status& status, ConnectionEnd end) {
  if (closed()) return;
  Close();
  const std::shared_ptr<Handler> handler = handler_;
  if (handler != nullptr && handler->on_end) std::exchange(handler->on_end, nullptr)(status, end);
}

}  // namespace hixld
