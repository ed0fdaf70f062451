#include "transports/loop/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <future>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/descriptor_reserve.h"

namespace hixld {
namespace {

constexpr int kAcceptsPerTurn = 32;
// How long nothing is accepted after descriptors had run out.
constexpr int64_t kPauseNs = 100 * kNanosPerMilli;

UniqueFd Placeholder() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

// All of it runs on the loop's thread.
class Acceptor::Core : public std::enable_shared_from_this<Acceptor::Core> {
 public:
  Core(Loop* loop, UniqueFd listener, Options options, Callbacks callbacks)
      : loop_(loop),
        options_(options),
        callbacks_(std::move(callbacks)),
        listener_(std::move(listener)),
        placeholder_(Placeholder()) {}

  void Start() {
    if (!listener_.valid()) return;  // stopped already
    Check(loop_->AddFd(listener_.get(), EPOLLIN, [weak = weak_from_this()](uint32_t) {
      if (const auto self = weak.lock()) self->Accept();
    }));
  }

  void Stop() {
    if (!listener_.valid()) return;
    loop_->RemoveFd(listener_.get());
    listener_.reset();
    placeholder_.reset();
  }

 private:
  void Check(const absl::Status& watched) {
    if (!watched.ok()) callbacks_.fail(watched);
  }

  void Accept() {
    for (int i = 0; i < kAcceptsPerTurn && listener_.valid() && AcceptOne(); ++i) {
    }
  }

  UniqueFd Next() {
    return UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }

  // Returns whether there may be another connection to accept.
  bool AcceptOne() {
    UniqueFd socket = Next();
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) return true;
      if (errno != EMFILE && errno != ENFILE) return false;
      // The connection in front is refused with the help of the placeholder, since it would wake
      // the loop for ever.
      placeholder_.reset();
      callbacks_.refuse(Next());
      placeholder_ = Placeholder();
      Pause();
      return false;
    }
    if (options_.keep_reserve && IsReservedDescriptor(socket.get())) {
      callbacks_.refuse(std::move(socket));
      Pause();
      return false;
    }
    callbacks_.take(std::move(socket));
    return true;
  }

  void Pause() {
    if (!loop_->ModifyFd(listener_.get(), 0).ok()) return;
    loop_->AddTimer(MonotonicNanos() + kPauseNs, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr || !self->listener_.valid()) return;
      self->Check(self->loop_->ModifyFd(self->listener_.get(), EPOLLIN));
    });
  }

  Loop* const loop_;
  const Options options_;
  Callbacks callbacks_;
  UniqueFd listener_;
  UniqueFd placeholder_;  // given up to refuse a connection when there are no descriptors left
};

Acceptor::Acceptor(Loop* loop, UniqueFd listener, Options options, Callbacks callbacks)
    : loop_(loop),
      core_(std::make_shared<Core>(loop, std::move(listener), options, std::move(callbacks))) {
  loop_->Post([core = core_] { core->Start(); });
}

Acceptor::~Acceptor() {
  if (loop_->InLoopThread()) {
    core_->Stop();
    return;
  }
  std::promise<void> stopped;
  loop_->Post([core = std::move(core_), &stopped]() mutable {
    core->Stop();
    core.reset();
    stopped.set_value();
  });
  stopped.get_future().wait();
}

}  // namespace hixld
