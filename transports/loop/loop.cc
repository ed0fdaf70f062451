#include "transports/loop/loop.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/barrier.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"
#include "transports/loop/task_queue.h"
#include "transports/loop/timer_queue.h"

namespace hixld {
namespace {

constexpr int kMaxEvents = 64;
// A busy loop looks at its descriptors this often.
constexpr int64_t kBusyFdCheckNs = 50'000;
// A spinning loop looks at its descriptors this often, since a system call costs more than a poll;
// and more often while that is where its work comes from.
constexpr int64_t kSpinFdCheckNs = 5'000;
constexpr int64_t kActiveFdCheckNs = 1'000;
constexpr int64_t kFdsActiveNs = 1'000'000;
constexpr int64_t kMinSpinNs = 1'000;
constexpr int kMaxShutdownRounds = 64;

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Lets others run on this core. False when they kept it for longer than a wake-up takes.
bool YieldBriefly(int64_t* now) {
  constexpr int64_t kBriefNs = 50'000;
  const int64_t before = *now;
  sched_yield();
  *now = MonotonicNanos();
  return *now - before < kBriefNs;
}

// epoll's event carries the descriptor and the registration it belongs to, so that an event of a
// descriptor that was closed and reused meanwhile is recognised.
uint64_t EventTag(int fd, uint32_t generation) {
  return (static_cast<uint64_t>(generation) << 32) | static_cast<uint32_t>(fd);
}

constexpr uint64_t kWakeTag = UINT64_MAX;

}  // namespace

class Loop::Impl {
 public:
  static absl::StatusOr<std::unique_ptr<Impl>> Create(Options options);
  ~Impl();

  void Stop();
  bool DropTasks();
  void Post(Task task);
  bool InLoopThread() const { return current_ == this; }

  absl::Status AddFd(int fd, uint32_t events, FdCallback callback);
  absl::Status ModifyFd(int fd, uint32_t events);
  void RemoveFd(int fd);
  TimerId AddTimer(int64_t deadline_ns, Task task) {
    return timers_.Add(deadline_ns, std::move(task));
  }
  void CancelTimer(TimerId id) { timers_.Cancel(id); }
  void AddPoller(Poller* poller) { pollers_.push_back(poller); }
  void RemovePoller(Poller* poller);
  void AddStep(absl::AnyInvocable<bool()> step) { new_steps_.push_back(std::move(step)); }
  Stats stats() const;

 private:
  struct Handler {
    uint32_t generation = 0;
    FdCallback callback;
  };

  explicit Impl(Options options) : options_(std::move(options)) {}

  void Run();
  void ShutDown();
  bool RunTasks();
  bool RunPollers();
  bool RunSteps();
  bool Spin();
  void Sleep();
  bool PollersMaySleep();
  void GrowSpin();
  // Returns whether a descriptor had something; the wake-up by Post is none.
  bool WaitForEvents(int64_t timeout_ns);
  int EpollWait(epoll_event* events, int64_t timeout_ns);
  void HandleEvent(const epoll_event& event);
  void DropRemovedPollers();
  void BuryHandlers();

  static thread_local const Impl* current_;

  const Options options_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::thread thread_;

  TaskQueue tasks_;
  // Set by the loop before its last look at the queue; a producer that sees it takes it back and
  // wakes the loop, so a burst of posts costs one wake.
  alignas(64) std::atomic<bool> sleeping_{false};

  // Everything below belongs to the loop's thread.
  alignas(64) bool stopping_ = false;
  std::vector<std::unique_ptr<Handler>> handlers_;   // by descriptor
  std::vector<std::unique_ptr<Handler>> graveyard_;  // removed while events are handled
  uint32_t next_generation_ = 0;
  TimerQueue timers_;
  std::vector<Poller*> pollers_;  // nullptr = removed, dropped between rounds
  std::vector<absl::AnyInvocable<bool()>> steps_;
  std::vector<absl::AnyInvocable<bool()>> new_steps_;
  int64_t now_ns_ = 0;
  int64_t fds_checked_ns_ = 0;
  int64_t fds_worked_ns_ = 0;
  int64_t woken_ns_ = 0;  // when the last look at the descriptors returned
  int64_t spin_ns_ = 0;
  // How long the last sleep took, until a round has told what it was woken for; 0 = no sleep.
  int64_t last_sleep_ns_ = 0;
  bool pwait2_ = true;

  std::atomic<uint64_t> wakeups_{0};
  std::atomic<uint64_t> task_count_{0};
  std::atomic<uint64_t> spins_{0};
};

thread_local const Loop::Impl* Loop::Impl::current_ = nullptr;

absl::StatusOr<std::unique_ptr<Loop::Impl>> Loop::Impl::Create(Options options) {
  std::unique_ptr<Impl> impl(new Impl(std::move(options)));
  impl->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!impl->epoll_.valid()) return ErrnoError(errno, "epoll_create1 for an event loop");
  impl->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!impl->wake_.valid()) return ErrnoError(errno, "eventfd for an event loop");
  // Edge-triggered: every write is a new edge, so the counter never needs to be read.
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = kWakeTag;
  if (epoll_ctl(impl->epoll_.get(), EPOLL_CTL_ADD, impl->wake_.get(), &event) != 0) {
    return ErrnoError(errno, "epoll_ctl for an event loop");
  }
  impl->thread_ = std::thread([loop = impl.get()] { loop->Run(); });
  return impl;
}

Loop::Impl::~Impl() {
  Stop();
  while (DropTasks()) {
  }
}

void Loop::Impl::Stop() {
  if (!thread_.joinable()) return;
  Post([this] { stopping_ = true; });
  thread_.join();
}

// Only after Stop: destroys what was posted too late to run.
bool Loop::Impl::DropTasks() { return tasks_.DropAll() > 0; }

void Loop::Impl::Post(Task task) {
  tasks_.Push(std::move(task));
  StoreLoadBarrier();
  // Both loads and the push are sequentially consistent: either this thread sees that the loop
  // sleeps, or the loop's last look sees the task.
  if (!sleeping_.load(std::memory_order_seq_cst)) return;
  if (!sleeping_.exchange(false, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  ssize_t written;
  do {
    written = write(wake_.get(), &one, sizeof(one));
  } while (written < 0 && errno == EINTR);
}

absl::Status Loop::Impl::AddFd(int fd, uint32_t events, FdCallback callback) {
  if (fd < 0) return ParamInvalid(absl::StrCat("descriptor ", fd, " cannot be watched"));
  if (static_cast<size_t>(fd) >= handlers_.size()) handlers_.resize(fd + 1);
  if (handlers_[fd] != nullptr) {
    return ParamInvalid(absl::StrCat("descriptor ", fd, " is watched already"));
  }
  auto handler = std::make_unique<Handler>();
  handler->generation = ++next_generation_;
  handler->callback = std::move(callback);
  epoll_event event = {};
  event.events = events;
  event.data.u64 = EventTag(fd, handler->generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return ErrnoError(errno, absl::StrCat("watch descriptor ", fd));
  }
  handlers_[fd] = std::move(handler);
  return absl::OkStatus();
}

absl::Status Loop::Impl::ModifyFd(int fd, uint32_t events) {
  if (fd < 0 || static_cast<size_t>(fd) >= handlers_.size() || handlers_[fd] == nullptr) {
    return ParamInvalid(absl::StrCat("descriptor ", fd, " is not watched"));
  }
  epoll_event event = {};
  event.events = events;
  event.data.u64 = EventTag(fd, handlers_[fd]->generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    return ErrnoError(errno, absl::StrCat("change watch of descriptor ", fd));
  }
  return absl::OkStatus();
}

void Loop::Impl::RemoveFd(int fd) {
  if (fd < 0 || static_cast<size_t>(fd) >= handlers_.size() || handlers_[fd] == nullptr) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  // The callback may be the one that runs now.
  graveyard_.push_back(std::move(handlers_[fd]));
}

void Loop::Impl::RemovePoller(Poller* poller) {
  std::replace(pollers_.begin(), pollers_.end(), poller, static_cast<Poller*>(nullptr));
}

void Loop::Impl::DropRemovedPollers() {
  pollers_.erase(std::remove(pollers_.begin(), pollers_.end(), nullptr), pollers_.end());
}

Loop::Stats Loop::Impl::stats() const {
  return Stats{.wakeups = wakeups_.load(std::memory_order_relaxed),
               .tasks = task_count_.load(std::memory_order_relaxed),
               .spins = spins_.load(std::memory_order_relaxed)};
}

void Loop::Impl::Run() {
  current_ = this;
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  // Signals are for the main thread; only those that a fault raises stay here.
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&signals, fault);
  pthread_sigmask(SIG_SETMASK, &signals, nullptr);

  while (!stopping_) {
    now_ns_ = MonotonicNanos();
    bool worked = RunTasks();
    worked |= RunPollers();
    worked |= timers_.RunDue(now_ns_) > 0;
    worked |= RunSteps();
    BuryHandlers();
    last_sleep_ns_ = 0;
    if (worked) {
      if (now_ns_ - fds_checked_ns_ >= kBusyFdCheckNs) WaitForEvents(0);
    } else if (!Spin()) {
      Sleep();
    }
  }
  ShutDown();
}

// Runs what is queued, with what follows from it within a bound, and drops the rest while the
// loop can still be called: destructors of captures may do so.
void Loop::Impl::ShutDown() {
  for (int round = 0; round < kMaxShutdownRounds && !tasks_.empty(); ++round) RunTasks();
  const auto steps = std::move(steps_);
  const auto new_steps = std::move(new_steps_);
  const auto handlers = std::move(handlers_);
  handlers_.clear();
  BuryHandlers();
  timers_.Clear();
}

void Loop::Impl::BuryHandlers() {
  if (graveyard_.empty()) return;
  // Destructors of captures may remove further descriptors.
  const auto dead = std::move(graveyard_);
  graveyard_.clear();
}

bool Loop::Impl::RunTasks() {
  const size_t count = tasks_.RunAll();
  if (count == 0) return false;
  task_count_.fetch_add(count, std::memory_order_relaxed);
  return true;
}

bool Loop::Impl::RunPollers() {
  if (pollers_.empty()) return false;
  bool worked = false;
  bool removed = false;
  const size_t count = pollers_.size();  // those added meanwhile wait for the next round
  for (size_t i = 0; i < count; ++i) {
    if (pollers_[i] != nullptr) worked |= pollers_[i]->Poll();
    removed |= pollers_[i] == nullptr;
  }
  if (removed) DropRemovedPollers();
  // A short sleep that ended in work for a poller would have been caught by spinning.
  if (worked && last_sleep_ns_ > 0 && last_sleep_ns_ < options_.max_spin_ns) GrowSpin();
  return worked;
}

void Loop::Impl::GrowSpin() {
  spin_ns_ = std::min(options_.max_spin_ns, std::max(2 * spin_ns_, 2 * last_sleep_ns_));
}

bool Loop::Impl::RunSteps() {
  if (!new_steps_.empty()) {
    for (auto& step : new_steps_) steps_.push_back(std::move(step));
    new_steps_.clear();
  }
  if (steps_.empty()) return false;
  size_t kept = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!steps_[i]()) continue;
    if (kept != i) steps_[kept] = std::move(steps_[i]);
    ++kept;
  }
  steps_.erase(steps_.begin() + static_cast<ptrdiff_t>(kept), steps_.end());
  return true;
}

// Looks again for a while before the loop sleeps. Returns true when there is something to do.
bool Loop::Impl::Spin() {
  if (spin_ns_ < kMinSpinNs) return false;
  spins_.fetch_add(1, std::memory_order_relaxed);
  const int64_t end_ns = std::min(now_ns_ + spin_ns_, timers_.NextDeadline());
  const int64_t fd_check_ns =
      now_ns_ - fds_worked_ns_ < kFdsActiveNs ? kActiveFdCheckNs : kSpinFdCheckNs;
  int64_t next_fd_check_ns = now_ns_ + fd_check_ns;
  for (int64_t now = now_ns_; now < end_ns; now = MonotonicNanos()) {
    if (!tasks_.empty()) return true;
    bool worked = RunPollers();
    if (!worked && now >= next_fd_check_ns) {
      worked = WaitForEvents(0);
      next_fd_check_ns = now + fd_check_ns;
      // Whoever the work is to come from may need this core. Others need it too when it comes back
      // late: who sleeps is given it sooner than who yields.
      if (!worked && !YieldBriefly(&now)) break;
    }
    if (worked) {
      spin_ns_ = std::min(options_.max_spin_ns, spin_ns_ + spin_ns_ / 8);
      return true;
    }
    CpuRelax();
  }
  spin_ns_ /= 4;
  return false;
}

// Announces the sleep to every poller; when one of them has work, all take it back.
bool Loop::Impl::PollersMaySleep() {
  for (size_t i = 0; i < pollers_.size(); ++i) {
    if (pollers_[i] == nullptr || pollers_[i]->TrySleep()) continue;
    for (size_t j = 0; j <= i; ++j) {
      if (pollers_[j] != nullptr) pollers_[j]->Wake();
    }
    return false;
  }
  return true;
}

void Loop::Impl::Sleep() {
  if (!PollersMaySleep()) return;
  sleeping_.store(true, std::memory_order_seq_cst);
  StoreLoadBarrier();
  if (tasks_.empty()) {
    const int64_t start_ns = MonotonicNanos();
    const int64_t deadline_ns = timers_.NextDeadline();
    const bool worked = WaitForEvents(
        deadline_ns == kNoDeadline ? -1 : std::max<int64_t>(0, deadline_ns - start_ns));
    wakeups_.fetch_add(1, std::memory_order_relaxed);
    last_sleep_ns_ = std::max<int64_t>(1, woken_ns_ - start_ns);
    // A short sleep that ended in work would have been caught by spinning.
    if (worked && last_sleep_ns_ < options_.max_spin_ns) GrowSpin();
  }
  sleeping_.store(false, std::memory_order_relaxed);
  for (Poller* poller : pollers_) {
    if (poller != nullptr) poller->Wake();
  }
}

bool Loop::Impl::WaitForEvents(int64_t timeout_ns) {
  epoll_event events[kMaxEvents];
  const int count = EpollWait(events, timeout_ns);
  if (count <= 0) {
    woken_ns_ = fds_checked_ns_ = MonotonicNanos();
    return false;
  }
  woken_ns_ = MonotonicNanos();
  // Whoever posts while the callbacks run need not wake this loop.
  if (timeout_ns != 0) sleeping_.store(false, std::memory_order_relaxed);
  bool worked = false;
  for (int i = 0; i < count; ++i) {
    HandleEvent(events[i]);
    worked |= events[i].data.u64 != kWakeTag;
  }
  BuryHandlers();
  fds_checked_ns_ = MonotonicNanos();
  if (worked) fds_worked_ns_ = fds_checked_ns_;
  return worked;
}

int Loop::Impl::EpollWait(epoll_event* events, int64_t timeout_ns) {
  if (timeout_ns == 0) return epoll_wait(epoll_.get(), events, kMaxEvents, 0);
  if (pwait2_) {
    timespec timeout = {.tv_sec = timeout_ns / kNanosPerSecond,
                        .tv_nsec = timeout_ns % kNanosPerSecond};
    const int count = epoll_pwait2(epoll_.get(), events, kMaxEvents,
                                   timeout_ns < 0 ? nullptr : &timeout, nullptr);
    // Old kernels lack it and some sandboxes refuse it.
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
    pwait2_ = false;
  }
  int64_t timeout_ms = -1;
  if (timeout_ns > 0) {
    timeout_ms = std::min<int64_t>((timeout_ns + kNanosPerMilli - 1) / kNanosPerMilli, INT32_MAX);
  }
  return epoll_wait(epoll_.get(), events, kMaxEvents, static_cast<int>(timeout_ms));
}

void Loop::Impl::HandleEvent(const epoll_event& event) {
  if (event.data.u64 == kWakeTag) return;
  const size_t fd = static_cast<uint32_t>(event.data.u64);
  const uint32_t generation = static_cast<uint32_t>(event.data.u64 >> 32);
  if (fd >= handlers_.size() || handlers_[fd] == nullptr) return;
  Handler* handler = handlers_[fd].get();
  if (handler->generation == generation) handler->callback(event.events);
}

absl::StatusOr<std::unique_ptr<Loop>> Loop::Start(Options options) {
  HIXLD_ASSIGN_OR_RETURN(auto impl, Impl::Create(std::move(options)));
  return std::unique_ptr<Loop>(new Loop(std::move(impl)));
}

Loop::Loop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loop::~Loop() = default;

void Loop::Post(Task task) { impl_->Post(std::move(task)); }
void Loop::Dispatch(Task task) {
  if (InLoopThread()) {
    task();
  } else {
    Post(std::move(task));
  }
}
void Loop::Stop() { impl_->Stop(); }
bool Loop::DropTasks() { return impl_->DropTasks(); }
bool Loop::InLoopThread() const { return impl_->InLoopThread(); }
absl::Status Loop::AddFd(int fd, uint32_t events, FdCallback callback) {
  return impl_->AddFd(fd, events, std::move(callback));
}
absl::Status Loop::ModifyFd(int fd, uint32_t events) { return impl_->ModifyFd(fd, events); }
void Loop::RemoveFd(int fd) { impl_->RemoveFd(fd); }
Loop::TimerId Loop::AddTimer(int64_t deadline_ns, Task task) {
  return impl_->AddTimer(deadline_ns, std::move(task));
}
void Loop::CancelTimer(TimerId id) { impl_->CancelTimer(id); }
void Loop::AddPoller(Poller* poller) { impl_->AddPoller(poller); }
void Loop::RemovePoller(Poller* poller) { impl_->RemovePoller(poller); }
void Loop::AddStep(absl::AnyInvocable<bool()> step) { impl_->AddStep(std::move(step)); }
Loop::Stats Loop::stats() const { return impl_->stats(); }

}  // namespace hixld
