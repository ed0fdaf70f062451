#include "client/cpp/connection.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/launcher.h"
#include "client/cpp/log.h"
#include "proto/base/clock.h"
#include "proto/base/socket_path.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

constexpr int64_t kGreetTimeout = 10 * kNanosPerSecond;
// Reserving large pools takes its time.
constexpr int64_t kStartTimeout = 60 * kNanosPerSecond;
// Between two looks at what another process does about the daemon.
constexpr useconds_t kPollMicros = 5000;
constexpr auto kFirstBackoff = std::chrono::milliseconds(20);
constexpr auto kLastBackoff = std::chrono::milliseconds(1000);

// The connections of this process by socket. Replaced in a forked child, which must not touch
// the parent's locks.
struct Registry {
  Mutex mutex;
  std::map<std::string, std::weak_ptr<Connection>> connections ABSL_GUARDED_BY(mutex);
};
std::atomic<Registry*> g_registry{nullptr};

Registry& CurrentRegistry() {
  static const bool installed =
      pthread_atfork(nullptr, nullptr, [] { g_registry.store(nullptr); }) == 0;
  (void)installed;
  Registry* registry = g_registry.load();
  if (registry == nullptr) {
    // Never deleted: engines may be finalised while the process exits.
    auto created = std::make_unique<Registry>();
    if (g_registry.compare_exchange_strong(registry, created.get())) registry = created.release();
  }
  return *registry;
}

absl::Status Unreachable(const DaemonAddress& address, absl::string_view reason) {
  return Failed(absl::StrCat("no hixld at ", address.socket, ": ", reason),
                {.object = absl::StrCat("socket ", address.socket), .option = "HIXLD_SOCKET"});
}

// Serialises processes that would start the daemon.
absl::StatusOr<UniqueFd> LockStart(const std::string& socket, int64_t deadline) {
  const std::string path = socket + ".start";
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoError(errno, absl::StrCat("open ", path));
  // The holder waits for its daemon at most as long; after that it is ours to try.
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return ErrnoError(errno, absl::StrCat("lock ", path));
    if (MonotonicNanos() > deadline) return Timeout(absl::StrCat("another process holds ", path));
    usleep(kPollMicros);
  }
  return fd;
}

}  // namespace

std::shared_ptr<Connection> Connection::Get(const DaemonAddress& address) {
  Registry& registry = CurrentRegistry();
  MutexLock lock(&registry.mutex);
  std::weak_ptr<Connection>& known = registry.connections[address.socket];
  std::shared_ptr<Connection> connection = known.lock();
  if (connection == nullptr) {
    connection = OwnedByProcess(std::unique_ptr<Connection>(new Connection(address)));
    known = connection;
  }
  return connection;
}

Connection::Connection(DaemonAddress address)
    : address_(std::move(address)), recovery_([this] { RecoverLoop(); }) {}

Connection::~Connection() {
  {
    MutexLock lock(&loss_->mutex);
    loss_->stopping = true;
    loss_->changed.SignalAll();
  }
  recovery_.join();
}

std::shared_ptr<Session> Connection::Living() {
  MutexLock lock(&session_mutex_);
  return session_ != nullptr && session_->alive() ? session_ : nullptr;
}

bool Connection::MayStart() {
  MutexLock lock(&session_mutex_);
  return private_daemon_;
}

absl::StatusOr<std::shared_ptr<Session>> Connection::Acquire(Start start) {
  if (std::shared_ptr<Session> session = Living()) return session;
  MutexLock opening(&opening_mutex_);
  if (std::shared_ptr<Session> session = Living()) return session;
  HIXLD_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, OpenSession(start));
  MutexLock lock(&session_mutex_);
  session_ = session;
  private_daemon_ = session->private_daemon();
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> Connection::TryOpen(int64_t deadline) {
  const std::shared_ptr<Loss> loss = loss_;
  return Session::Open(
      address_.socket, FdSocketPath(address_.socket),
      [loss] {
        MutexLock lock(&loss->mutex);
        loss->lost = true;
        loss->changed.SignalAll();
      },
      deadline);
}

absl::StatusOr<std::shared_ptr<Session>> Connection::OpenSession(Start start) {
  auto session = TryOpen(MonotonicNanos() + kGreetTimeout);
  if (session.ok() || session.status().code() != absl::StatusCode::kUnavailable) return session;
  if (!address_.may_start) {
    return Unreachable(address_, address_.socket == kSystemSocketPath
                                     ? "the system service does not run"
                                     : "nobody listens, and HIXLD_NO_AUTOSTART forbids a start");
  }
  if (start == Start::kForbidden) return Unreachable(address_, "nobody listens");
  if (!MayStart()) return Unreachable(address_, "it is gone, and not back yet");
  return StartAndOpen();
}

absl::StatusOr<std::shared_ptr<Session>> Connection::StartAndOpen() {
  const int64_t deadline = MonotonicNanos() + kStartTimeout;
  // Before anything is made beside it.
  HIXLD_RETURN_IF_ERROR(CheckSocketPlace(address_.socket));
  HIXLD_ASSIGN_OR_RETURN(const UniqueFd lock, LockStart(address_.socket, deadline));
  // Who waited for the lock finds the daemon that its holder started.
  auto session = TryOpen(MonotonicNanos() + kGreetTimeout);
  if (session.ok() || session.status().code() != absl::StatusCode::kUnavailable) return session;
  HIXLD_ASSIGN_OR_RETURN(const std::string binary, FindDaemonBinary());
  Log(LogLevel::kInfo, absl::StrCat("starting ", binary, " at ", address_.socket));
  const absl::Status started = StartDaemon(binary, address_.socket, deadline);
  if (absl::IsAlreadyExists(started)) return AwaitOther(started.message(), deadline);
  HIXLD_RETURN_IF_ERROR(started);
  session = TryOpen(deadline);
  if (session.status().code() == absl::StatusCode::kUnavailable) {
    return Unreachable(address_, "the private hixld is gone again");
  }
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> Connection::AwaitOther(absl::string_view reason,
                                                                int64_t deadline) {
  while (true) {
    auto session = TryOpen(deadline);
    if (session.ok() || session.status().code() != absl::StatusCode::kUnavailable) return session;
    if (MonotonicNanos() >= deadline) return Unreachable(address_, reason);
    usleep(kPollMicros);
  }
}

void Connection::Enroll(Recoverable* recoverable) {
  MutexLock lock(&enrolled_mutex_);
  enrolled_.insert(recoverable);
}

void Connection::Withdraw(Recoverable* recoverable) {
  MutexLock lock(&enrolled_mutex_);
  enrolled_.erase(recoverable);
  while (recovering_ == recoverable) recovered_.Wait(&enrolled_mutex_);
}

// Waits for the loss of a session; false = the connection ends.
bool Connection::AwaitLoss() {
  MutexLock lock(&loss_->mutex);
  while (!loss_->lost && !loss_->stopping) loss_->changed.Wait(&loss_->mutex);
  loss_->lost = false;
  return !loss_->stopping;
}

// An engine that only serves makes no calls, so nobody else would bring it back.
void Connection::RecoverLoop() {
  while (AwaitLoss()) {
    auto backoff = kFirstBackoff;
    while (!RecoverAll()) {
      const auto deadline = std::chrono::steady_clock::now() + backoff;
      MutexLock lock(&loss_->mutex);
      while (!loss_->stopping && loss_->changed.WaitUntil(&loss_->mutex, deadline)) {
      }
      if (loss_->stopping) return;
      backoff = std::min(backoff * 2, kLastBackoff);
    }
  }
}

// False: somebody is still without a session.
bool Connection::RecoverAll() {
  std::set<Recoverable*> todo;
  {
    MutexLock lock(&enrolled_mutex_);
    todo = enrolled_;
  }
  if (todo.empty()) return true;
  // A private daemon is only started when somebody wants something of it.
  if (!Acquire(Start::kForbidden).ok()) return false;
  bool all = true;
  for (Recoverable* recoverable : todo) {
    {
      MutexLock lock(&enrolled_mutex_);
      if (enrolled_.count(recoverable) == 0) continue;
      recovering_ = recoverable;
    }
    all = recoverable->Recover() && all;
    MutexLock lock(&enrolled_mutex_);
    recovering_ = nullptr;
    recovered_.SignalAll();
  }
  return all;
}

}  // namespace hixld::client
