#include "client/bench/side_channel.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

constexpr size_t kMaxLine = 64 << 10;
// Filling and verifying many gigabytes takes its time; a dead peer is noticed at once anyway.
constexpr int kAnswerTimeoutMs = 600'000;
constexpr int kConnectTimeoutMs = 10'000;
constexpr int kBacklog = 64;

// Waits until `events` or an error is there; false when the time is over.
absl::StatusOr<bool> Wait(int fd, short events, int timeout_ms) {
  const int64_t deadline =
      timeout_ms < 0 ? kNoDeadline : MonotonicNanos() + int64_t{timeout_ms} * kNanosPerMilli;
  while (true) {
    pollfd entry = {.fd = fd, .events = events, .revents = 0};
    const int64_t left = (deadline - MonotonicNanos()) / kNanosPerMilli;
    const int wait = timeout_ms < 0 ? -1 : static_cast<int>(std::max<int64_t>(left, 0));
    const int ready = ::poll(&entry, 1, wait);
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return ErrnoError(errno, "poll");
  }
}

absl::StatusOr<Endpoint> AddressOf(int fd, int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (get(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return ErrnoError(errno, "address of a socket");
  }
  return EndpointFromSockaddr(address, length);
}

}  // namespace

absl::StatusOr<UniqueFd> Listen(const Endpoint& address) {
  UniqueFd fd(::socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd.get(), address.sockaddr_ptr(), address.address_len) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return ErrnoError(errno, absl::StrCat("listen on ", address.ToString()));
  }
  return fd;
}

absl::StatusOr<UniqueFd> Accept(int listen_fd, int timeout_ms) {
  HIXLD_ASSIGN_OR_RETURN(const bool ready, Wait(listen_fd, POLLIN, timeout_ms));
  if (!ready) return Timeout("nobody has connected");
  UniqueFd fd(::accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, "accept");
  return fd;
}

absl::StatusOr<UniqueFd> ConnectTo(const Endpoint& address) {
  UniqueFd fd(::socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(errno, "socket");
  const std::string what = absl::StrCat("connect to ", address.ToString());
  if (::connect(fd.get(), address.sockaddr_ptr(), address.address_len) != 0) {
    if (errno != EINPROGRESS) return ErrnoError(errno, what);
    HIXLD_ASSIGN_OR_RETURN(const bool ready, Wait(fd.get(), POLLOUT, kConnectTimeoutMs));
    if (!ready) return Timeout(absl::StrCat(what, ": no answer"));
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return ErrnoError(error, what);
  }
  if (::fcntl(fd.get(), F_SETFL, 0) != 0) return ErrnoError(errno, "fcntl");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

absl::StatusOr<Endpoint> LocalAddress(int fd) { return AddressOf(fd, &::getsockname); }
absl::StatusOr<Endpoint> PeerAddress(int fd) { return AddressOf(fd, &::getpeername); }

absl::Status LineSocket::Send(absl::string_view line) {
  const std::string text = absl::StrCat(line, "\n");
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(fd_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError(errno, "side channel");
    sent += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LineSocket::Receive(int timeout_ms) {
  while (true) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    if (received_.size() > kMaxLine) return Failed("side channel: a line is too long");
    HIXLD_ASSIGN_OR_RETURN(const bool ready, Wait(fd_.get(), POLLIN, timeout_ms));
    if (!ready) return Timeout("side channel: no answer");
    char buffer[4096];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError(errno, "side channel");
    if (n == 0) return Failed("side channel: the other side has gone");
    received_.append(buffer, static_cast<size_t>(n));
  }
}

absl::StatusOr<std::string> LineSocket::Answer() {
  HIXLD_ASSIGN_OR_RETURN(const std::string line, Receive(kAnswerTimeoutMs));
  if (line == "ok") return std::string();
  if (absl::StartsWith(line, "ok ")) return line.substr(3);
  if (absl::StartsWith(line, "error ")) return Failed(absl::StrCat("target: ", line.substr(6)));
  return Failed(absl::StrCat("target: unexpected answer \"", line, "\""));
}

absl::StatusOr<std::string> LineSocket::Ask(absl::string_view line) {
  HIXLD_RETURN_IF_ERROR(Send(line));
  return Answer();
}

bool LineSocket::PeerGone(int wait_ms) const {
  pollfd entry = {.fd = fd_.get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, wait_ms) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace hixld::bench
