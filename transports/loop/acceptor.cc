#include "transports/loop/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace hixld {
namespace {

constexpr int kAcceptsPerTurn = 64;
// How long nothing is accepted after descriptors had run out.
constexpr int64_t kPauseNs = 100 * kNanosPerMilli;

UniqueFd Placeholder() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

int DescriptorLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur > INT32_MAX) return INT32_MAX;
  return static_cast<int>(files.rlim_cur);
}

}  // namespace

// All of it runs on the loop's thread.
class Acceptor::Core : public std::enable_shared_from_this<Acceptor::Core> {
 public:
  Core(Loop* loop, UniqueFd listener, Options options, Take take, Complain complain)
      : loop_(loop),
        options_(std::move(options)),
        take_(std::move(take)),
        complain_(std::move(complain)),
        listener_(std::move(listener)),
        placeholder_(Placeholder()) {}

  void Start() {
    const absl::Status added =
        loop_->AddFd(listener_.get(), EPOLLIN, [weak = weak_from_this()](uint32_t) {
          if (const auto self = weak.lock()) self->Accept();
        });
    if (!added.ok())
      complain_(absl::StrCat("cannot accept ", options_.what, ": ", added.message()));
  }

  void Stop() {
    if (!listener_.valid()) return;
    loop_->RemoveFd(listener_.get());
    listener_.reset();
    placeholder_.reset();
  }

 private:
  void Accept() {
    for (int i = 0; i < kAcceptsPerTurn && listener_.valid() && AcceptOne(); ++i) {
    }
  }

  // Returns whether there may be another connection to accept.
  bool AcceptOne() {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) return true;
      if (errno != EMFILE && errno != ENFILE) return false;
      // The connection in front is refused with the help of the placeholder, since it would wake
      // the loop for ever.
      placeholder_.reset();
      UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
      placeholder_ = Placeholder();
      Pause();
      return false;
    }
    // The kernel gives out the lowest number that is free.
    const int limit = DescriptorLimit();
    if (socket.get() >= limit - std::min(options_.spare_descriptors, limit / 4)) {
      socket.reset();
      Pause();
      return false;
    }
    take_(std::move(socket));
    return true;
  }

  void Pause() {
    complain_(absl::StrCat("no descriptors left for ", options_.what, " (RLIMIT_NOFILE is ",
                           DescriptorLimit(), ")"));
    if (!loop_->ModifyFd(listener_.get(), 0).ok()) return;
    loop_->AddTimer(MonotonicNanos() + kPauseNs, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr || !self->listener_.valid()) return;
      const absl::Status resumed = self->loop_->ModifyFd(self->listener_.get(), EPOLLIN);
      if (!resumed.ok()) self->complain_(std::string(resumed.message()));
    });
  }

  Loop* const loop_;
  const Options options_;
  Take take_;
  Complain complain_;
  UniqueFd listener_;
  UniqueFd placeholder_;  // given up to refuse a connection when there are no descriptors left
};

Acceptor::Acceptor(Loop* loop, UniqueFd listener, Options options, Take take, Complain complain)
    : loop_(loop),
      core_(std::make_shared<Core>(loop, std::move(listener), std::move(options), std::move(take),
                                   std::move(complain))) {
  loop_->Post([core = core_] { core->Start(); });
}

Acceptor::~Acceptor() {
  std::promise<void> stopped;
  loop_->Post([core = std::move(core_), &stopped]() mutable {
    core->Stop();
    core.reset();
    stopped.set_value();
  });
  stopped.get_future().wait();
}

}  // namespace hixld
