#include "daemon/link/listener.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"
#include "proto/base/descriptor_reserve.h"
#include "proto/base/no_descriptors.h"
#include "proto/base/status.h"
#include "proto/wire/frame.h"

namespace hixld {
namespace {

constexpr int kBacklog = 1024;
// Connections taken in before the loop looks at its other work.
constexpr int kMaxAcceptsPerEvent = 64;
// How long a listener rests when the process has no descriptor left.
constexpr int64_t kRestNanos = 100 * kNanosPerMilli;
constexpr int kFirstBytes = 4;

void SetLowWatermark(int fd, int bytes) {
  setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

}  // namespace

Greeter::Greeter(Loop* loop, Options options, Take lane, Take control)
    : loop_(loop), options_(options), lane_(std::move(lane)), control_(std::move(control)) {}

Greeter::~Greeter() = default;

void Greeter::Add(UniqueFd socket) {
  const int fd = socket.get();
  // Readable means from now on that all of the first bytes are there.
  SetLowWatermark(fd, kFirstBytes);
  const absl::Status status = loop_->AddFd(fd, EPOLLIN, [weak = weak_from_this(), fd](uint32_t) {
    if (auto self = weak.lock()) self->OnReadable(fd);
  });
  if (!status.ok()) return;
  if (silent_.size() >= options_.max_silent) Remove(silent_.front().socket.get());
  silent_.push_back({std::move(socket), MonotonicNanos() + options_.silence_ns});
  ArmTimer();
}

void Greeter::OnReadable(int fd) {
  UniqueFd socket = Remove(fd);
  uint32_t magic = 0;
  const ssize_t got = recv(fd, &magic, sizeof(magic), MSG_PEEK | MSG_DONTWAIT);
  if (got != kFirstBytes) return;
  SetLowWatermark(fd, 1);
  const char expected[] = {'H', 'I', 'L', 'X'};
  if (memcmp(&magic, expected, sizeof(expected)) == 0) {
    lane_(std::move(socket));
  } else {
    control_(std::move(socket));
  }
}

UniqueFd Greeter::Remove(int fd) {
  const auto found = std::find_if(silent_.begin(), silent_.end(),
                                  [fd](const Guest& guest) { return guest.socket.get() == fd; });
  if (found == silent_.end()) return {};
  loop_->RemoveFd(fd);
  UniqueFd socket = std::move(found->socket);
  silent_.erase(found);
  return socket;
}

void Greeter::ArmTimer() {
  if (armed_ || silent_.empty()) return;
  armed_ = true;
  loop_->AddTimer(silent_.front().deadline_ns, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->Expire();
  });
}

void Greeter::Expire() {
  armed_ = false;
  const int64_t now = MonotonicNanos();
  while (!silent_.empty() && silent_.front().deadline_ns <= now) {
    Remove(silent_.front().socket.get());
  }
  ArmTimer();
}

void Greeter::Stop() {
  while (!silent_.empty()) Remove(silent_.front().socket.get());
}

// The part of a listener that lives on the loop.
class TcpListener::Socket : public std::enable_shared_from_this<Socket> {
 public:
  Socket(Loop* loop, UniqueFd socket, std::function<void(UniqueFd)> accepted)
      : loop_(loop), socket_(std::move(socket)), accepted_(std::move(accepted)) {}

  void Watch() {
    if (!socket_.valid()) return;
    const absl::Status status =
        loop_->AddFd(socket_.get(), EPOLLIN, [weak = weak_from_this()](uint32_t) {
          if (auto self = weak.lock()) self->Accept();
        });
    watching_ = status.ok();
  }

  void Close() {
    if (watching_) loop_->RemoveFd(socket_.get());
    watching_ = false;
    socket_.reset();
  }

 private:
  void Accept() {
    for (int i = 0; i < kMaxAcceptsPerEvent && socket_.valid(); ++i) {
      UniqueFd accepted(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (accepted.valid() && IsReservedDescriptor(accepted.get())) {
        LogWarn("a connection of another node is refused",
                {{"reason", NoDescriptors("hixld cannot serve another node")}});
        continue;
      }
      if (accepted.valid()) {
        accepted_(std::move(accepted));
        continue;
      }
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) Rest();
      if (errno != EINTR && errno != ECONNABORTED) return;
    }
  }

  void Rest() {
    const int error = errno;
    LogWarn("a connection of another node waits", {{"reason", ErrnoError(error, "accept it")}});
    loop_->RemoveFd(socket_.get());
    watching_ = false;
    loop_->AddTimer(MonotonicNanos() + kRestNanos, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Watch();
    });
    errno = error;
  }

  Loop* const loop_;
  UniqueFd socket_;
  const std::function<void(UniqueFd)> accepted_;
  bool watching_ = false;
};

TcpListener::TcpListener(Loop* loop, std::shared_ptr<Socket> socket, uint16_t port)
    : loop_(loop), socket_(std::move(socket)), port_(port) {}

TcpListener::~TcpListener() {
  Close([] {});
}

absl::StatusOr<std::unique_ptr<EngineListener>> TcpListener::Start(
    Loop* loop, const Endpoint& endpoint, std::function<void(UniqueFd)> accepted) {
  const std::string name = endpoint.ToString();
  UniqueFd fd(
      socket(endpoint.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, absl::StrCat("create a socket for ", name));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (endpoint.ipv6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(fd.get(), endpoint.sockaddr_ptr(), endpoint.address_len) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return ErrnoError(errno, absl::StrCat("listen at ", name),
                      {.object = absl::StrCat("engine ", name)});
  }
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  const uint16_t port = EndpointFromSockaddr(bound, length).port;
  auto socket = std::make_shared<Socket>(loop, std::move(fd), std::move(accepted));
  loop->Post([socket] { socket->Watch(); });
  return std::unique_ptr<EngineListener>(new TcpListener(loop, std::move(socket), port));
}

void TcpListener::Close(absl::AnyInvocable<void()> closed) {
  loop_->Dispatch([socket = socket_, closed = std::move(closed)]() mutable {
    socket->Close();
    closed();
  });
}

}  // namespace hixld
