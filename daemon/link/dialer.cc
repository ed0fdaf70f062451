#include "daemon/link/dialer.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {

Dialer::Dialer(Loop* loop, const Endpoint& endpoint, Done done)
    : loop_(loop), endpoint_(endpoint), done_(std::move(done)) {}

Dialer::~Dialer() = default;

std::shared_ptr<Dialer> Dialer::Start(Loop* loop, const Endpoint& endpoint, Done done) {
  std::shared_ptr<Dialer> dialer(new Dialer(loop, endpoint, std::move(done)));
  dialer->Begin();
  return dialer;
}

void Dialer::Begin() {
  socket_.reset(
      socket(endpoint_.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid()) return Fail(errno);
  if (connect(socket_.get(), endpoint_.sockaddr_ptr(), endpoint_.address_len) != 0 &&
      errno != EINPROGRESS) {
    return Fail(errno);
  }
  const absl::Status status =
      loop_->AddFd(socket_.get(), EPOLLOUT, [weak = weak_from_this()](uint32_t) {
        if (auto self = weak.lock()) self->OnWritable();
      });
  if (!status.ok()) return Finish(status, false);
  watching_ = true;
}

void Dialer::OnWritable() {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return Fail(error);
  // The kernel may have picked the very port that was asked for as our own.
  sockaddr_storage own = {};
  length = sizeof(own);
  getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &length);
  if (EndpointFromSockaddr(own, length).ToString() == endpoint_.ToString()) {
    return Fail(ECONNREFUSED);
  }
  loop_->RemoveFd(socket_.get());
  watching_ = false;
  Finish(std::move(socket_), false);
}

void Dialer::Fail(int error) {
  Finish(ErrnoError(error, absl::StrCat("connect to ", endpoint_.ToString()),
                    {.object = absl::StrCat("address ", endpoint_.ToString())}),
         error == ECONNREFUSED);
}

void Dialer::Finish(absl::StatusOr<UniqueFd> socket, bool refused) {
  const auto self = shared_from_this();
  auto done = std::exchange(done_, nullptr);
  Cancel();
  if (done) done(std::move(socket), refused);
}

void Dialer::Cancel() {
  done_ = nullptr;
  if (watching_) loop_->RemoveFd(socket_.get());
  watching_ = false;
  socket_.reset();
}

}  // namespace hixld
