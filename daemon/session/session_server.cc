#include "daemon/session/session_server.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/memory/process_memory.h"
#include "daemon/session/peer.h"
#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"
#include "proto/base/descriptor_reserve.h"
#include "proto/base/mutex.h"
#include "proto/base/no_descriptors.h"
#include "proto/base/socket_path.h"
#include "proto/base/status.h"
#include "transports/loop/acceptor.h"

namespace hixld {
namespace {

using hixl::fdchannel::v1::FdMessage;

constexpr size_t kTokenBytes = 32;
// The first half finds the session; only the second half is a secret that must match, and it is
// compared in constant time. So a look-up tells nothing about a token that it refuses.
constexpr size_t kSelectorBytes = 16;
constexpr size_t kIncarnationBytes = 16;
constexpr int64_t kDestructorPatienceNs = 5 * kNanosPerSecond;

// Whether it can be told or not, it is refused.
void TellRefused(int socket, const absl::Status& why) {
  FdMessage message;
  message.mutable_error()->set_detail(SerializeErrorDetail(why));
  message.mutable_error()->set_message(std::string(why.message()));
  SendFdPacket(socket, message).IgnoreError();
}
// Marks the queue of a session's end. It is another one than the session's own, so that a client
// whose descriptor hangs when it is looked at cannot delay the fence of its transfers.
constexpr uint64_t kEndKey = uint64_t{1} << 63;

absl::StatusOr<std::string> RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  size_t filled = 0;
  while (filled < size) {
    const ssize_t got = getrandom(bytes.data() + filled, size - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "getrandom");
    filled += static_cast<size_t>(got);
  }
  return bytes;
}

bool EqualInConstantTime(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace

class SessionServer::Core : public PeerHost, public std::enable_shared_from_this<Core> {
 public:
  Core(SessionServerOptions options, SessionResources resources)
      : options_(std::move(options)), resources_(std::move(resources)) {}

  void Start();
  void Stop();
  void AddObserver(SessionObserver* observer) { observers_.push_back(observer); }
  absl::Status Listen();
  bool Shutdown(const std::string& reason, int64_t deadline_ns);

  absl::StatusOr<std::shared_ptr<Session>> Find(absl::string_view token);
  std::vector<SessionDescription> List() const;
  size_t size() const;

  // PeerHost.
  const SessionServerOptions& options() const override { return options_; }
  const SessionResources& resources() const override { return resources_; }
  bool MayReadProcess(uid_t uid) const override;
  std::string OpenSession(Peer* peer) override;
  void OnPeerClosed(Peer* peer, const std::string& reason) override;

 private:
  // A connection that counts against the limits, until the last thing that works for it has gone.
  class Seat {
   public:
    Seat(std::weak_ptr<Core> core, uint64_t id) : core_(std::move(core)), id_(id) {}
    ~Seat() {
      if (const auto core = core_.lock()) core->LeaveSeat(id_);
    }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    const std::weak_ptr<Core> core_;
    const uint64_t id_;
  };
  struct TokenEntry {
    std::string verifier;
    std::shared_ptr<ClientSession> session;
  };
  struct SessionEntry {
    std::shared_ptr<ClientSession> session;
    std::shared_ptr<const void> seat;
    std::string selector;
  };

  // On the loop's thread.
  void LogRefused(const PeerCredentials& credentials, const absl::Status& why);
  void RefuseForDescriptors(const UniqueFd& socket);
  void Admit(UniqueFd socket);
  void StopListening();
  void CloseAll(const std::string& reason);

  absl::StatusOr<std::shared_ptr<const void>> TakeSeat(uint64_t id, uid_t uid);
  void LeaveSeat(uint64_t id);
  void OnStuck(uint64_t key, const std::string& what, bool close);
  void OnRecovered(uint64_t key);
  std::shared_ptr<ClientSession> SessionOf(uint64_t id) const;

  // The end of a session, on control threads.
  void NotifyEnd(const std::shared_ptr<ClientSession>& session);
  void Release(const std::shared_ptr<ClientSession>& session);
  void Forget(uint64_t id);

  const SessionServerOptions options_;
  const SessionResources resources_;
  std::vector<SessionObserver*> observers_;  // fixed once it listens
  LogLimiter refused_log_{kNanosPerSecond};

  // The loop's thread only.
  std::unique_ptr<Acceptor> acceptor_;  // made before the loop knows of it
  std::unordered_map<uint64_t, std::shared_ptr<Peer>> peers_;

  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, uid_t> seats_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uid_t, uint64_t> seats_per_uid_ ABSL_GUARDED_BY(mutex_);
  // Whose copies hang, until they come back.
  std::unordered_map<uint64_t, uid_t> stuck_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, TokenEntry> tokens_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, SessionEntry> sessions_ ABSL_GUARDED_BY(mutex_);
  bool listening_ ABSL_GUARDED_BY(mutex_) = false;
};

void SessionServer::Core::Start() {
  const auto weak = weak_from_this();
  const auto callbacks = [&weak](bool close) {
    return Executor::StuckCallbacks{
        .on_stuck =
            [weak, close](uint64_t id, const std::string& what) {
              if (const auto self = weak.lock()) self->OnStuck(id, what, close);
            },
        .on_recovered =
            [weak](uint64_t id) {
              if (const auto self = weak.lock()) self->OnRecovered(id);
            },
    };
  };
  // A hanging copy is the client's doing and ends its session; a slow device call is not.
  resources_.copies->SetStuckCallbacks(callbacks(/*close=*/true));
  resources_.control->SetStuckCallbacks(callbacks(/*close=*/false));
}

void SessionServer::Core::Stop() {
  resources_.copies->SetStuckCallbacks({});
  resources_.control->SetStuckCallbacks({});
}

absl::Status SessionServer::Core::Listen() {
  const std::string path = FdSocketPath(options_.socket_path);
  HIXLD_ASSIGN_OR_RETURN(UniqueFd listener, ListenFdSocket(path, options_.mode, options_.group));
  {
    MutexLock lock(&mutex_);
    listening_ = true;
  }
  Acceptor::Callbacks callbacks;
  callbacks.take = [weak = weak_from_this()](UniqueFd socket) {
    if (const auto self = weak.lock()) self->Admit(std::move(socket));
  };
  callbacks.refuse = [weak = weak_from_this()](const UniqueFd& socket) {
    if (const auto self = weak.lock()) self->RefuseForDescriptors(socket);
  };
  callbacks.fail = [](const absl::Status& error) {
    LogError("cannot accept sessions", {{"error", error}});
  };
  acceptor_ = std::make_unique<Acceptor>(resources_.loop, std::move(listener), Acceptor::Options{},
                                         std::move(callbacks));
  return absl::OkStatus();
}

// A client that knocks in a loop shall not fill the log.
void SessionServer::Core::LogRefused(const PeerCredentials& credentials, const absl::Status& why) {
  uint64_t suppressed = 0;
  if (!refused_log_.Allow(MonotonicNanos(), &suppressed)) return;
  LogWarn("session refused", {{"pid", credentials.pid},
                              {"uid", credentials.uid},
                              {"reason", why},
                              {"not_logged", suppressed}});
}

void SessionServer::Core::RefuseForDescriptors(const UniqueFd& socket) {
  const absl::Status why = NoDescriptors("hixld cannot serve a new session");
  LogRefused({}, why);
  if (socket.valid()) TellRefused(socket.get(), why);
}

void SessionServer::Core::Admit(UniqueFd socket) {
  const absl::StatusOr<PeerCredentials> credentials = PeerCredentialsOf(socket.get());
  if (!credentials.ok()) return;
  uint64_t id;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
  }
  absl::StatusOr<std::shared_ptr<const void>> seat =
      IsReservedDescriptor(socket.get()) ? NoDescriptors("hixld cannot serve a new session")
                                         : TakeSeat(id, credentials->uid);
  if (!seat.ok()) {
    LogRefused(*credentials, seat.status());
    return TellRefused(socket.get(), seat.status());
  }
  UniqueFd pidfd;
  if (credentials->pid != 0) {
    absl::StatusOr<UniqueFd> opened = OpenPeerPidfd(socket.get(), credentials->pid);
    if (opened.ok()) pidfd = *std::move(opened);
  }
  auto peer = std::make_shared<Peer>(this, id, *credentials, *std::move(seat));
  absl::Status started = peer->Start(std::move(socket), std::move(pidfd));
  if (!started.ok()) {
    LogError("cannot serve a new session", {{"pid", credentials->pid}, {"error", started}});
    return;
  }
  peers_.emplace(id, std::move(peer));
}

absl::StatusOr<std::shared_ptr<const void>> SessionServer::Core::TakeSeat(uint64_t id, uid_t uid) {
  {
    MutexLock lock(&mutex_);
    if (seats_.size() >= options_.limits.max_sessions) {
      return ResourceExhausted("the daemon has all the sessions that it may have",
                               {.object = "sessions",
                                .limit = absl::StrCat(options_.limits.max_sessions, " sessions"),
                                .option = "limits.max_sessions"});
    }
    uint64_t& of_uid = seats_per_uid_[uid];
    if (of_uid >= options_.limits.max_sessions_per_uid) {
      return ResourceExhausted(
          absl::StrCat("user ", uid, " has all the sessions that one user may have"),
          {.object = absl::StrCat("sessions of uid ", uid),
           .limit = absl::StrCat(options_.limits.max_sessions_per_uid, " sessions"),
           .option = "limits.max_sessions_per_uid"});
    }
    ++of_uid;
    seats_.emplace(id, uid);
  }
  return std::make_shared<const Seat>(weak_from_this(), id);
}

void SessionServer::Core::LeaveSeat(uint64_t id) {
  MutexLock lock(&mutex_);
  const auto seat = seats_.find(id);
  const auto of_uid = seats_per_uid_.find(seat->second);
  if (--of_uid->second == 0) seats_per_uid_.erase(of_uid);
  seats_.erase(seat);
  changed_.SignalAll();
}

bool SessionServer::Core::MayReadProcess(uid_t uid) const {
  MutexLock lock(&mutex_);
  return std::none_of(stuck_.begin(), stuck_.end(),
                      [uid](const auto& entry) { return entry.second == uid; });
}

std::string SessionServer::Core::OpenSession(Peer* peer) {
  // Without randomness there are no tokens; the kernel gives some since early boot.
  absl::StatusOr<std::string> token = RandomBytes(kTokenBytes);
  if (!token.ok()) {
    LogError("no random bytes for a session token", {{"error", token.status()}});
    abort();
  }
  const std::string selector = token->substr(0, kSelectorBytes);
  MutexLock lock(&mutex_);
  tokens_[selector] = {.verifier = token->substr(kSelectorBytes), .session = peer->session()};
  sessions_[peer->id()] = {.session = peer->session(), .seat = peer->seat(), .selector = selector};
  return *std::move(token);
}

absl::StatusOr<std::shared_ptr<Session>> SessionServer::Core::Find(absl::string_view token) {
  if (token.size() == kTokenBytes) {
    const std::string selector(token.substr(0, kSelectorBytes));
    MutexLock lock(&mutex_);
    const auto found = tokens_.find(selector);
    if (found != tokens_.end() && found->second.session->open() &&
        EqualInConstantTime(found->second.verifier, token.substr(kSelectorBytes))) {
      return std::shared_ptr<Session>(found->second.session);
    }
  }
  return absl::UnauthenticatedError(token.empty()
                                        ? "the call carries no session token"
                                        : "the session token is unknown, or its session has ended");
}

std::shared_ptr<ClientSession> SessionServer::Core::SessionOf(uint64_t id) const {
  MutexLock lock(&mutex_);
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.session;
}

void SessionServer::Core::OnStuck(uint64_t key, const std::string& what, bool close) {
  const uint64_t id = key & ~kEndKey;
  {
    MutexLock lock(&mutex_);
    const auto seat = seats_.find(id);
    if (close && seat != seats_.end()) stuck_[id] = seat->second;
  }
  LogWarn("session is stuck", {{"session", id}, {"detail", what}});
  if (const auto session = SessionOf(id)) session->SetStuck(what);
  if (!close) return;
  resources_.loop->Post([self = shared_from_this(), id, what] {
    const auto found = self->peers_.find(id);
    if (found != self->peers_.end()) {
      const auto peer = found->second;
      peer->Close(absl::StrCat("a copy hangs: ", what));
    }
  });
}

void SessionServer::Core::OnRecovered(uint64_t key) {
  const uint64_t id = key & ~kEndKey;
  {
    MutexLock lock(&mutex_);
    stuck_.erase(id);
  }
  LogInfo("session is no longer stuck", {{"session", id}});
  if (const auto session = SessionOf(id)) session->SetStuck("");
}

void SessionServer::Core::OnPeerClosed(Peer* peer, const std::string& reason) {
  const std::shared_ptr<ClientSession> session = peer->session();
  const uint64_t id = peer->id();
  const PeerCredentials credentials = peer->credentials();
  peers_.erase(id);
  if (session == nullptr) return;
  {
    MutexLock lock(&mutex_);
    tokens_.erase(sessions_.at(id).selector);
  }
  LogInfo("session ended", {{"session", id}, {"pid", credentials.pid}, {"reason", reason}});
  resources_.control->Release(id | kEndKey, "end the session",
                              [self = shared_from_this(), session] { self->NotifyEnd(session); });
}

void SessionServer::Core::NotifyEnd(const std::shared_ptr<ClientSession>& session) {
  const uint64_t id = session->id();
  // Commands that the client will not answer any more end here, so that transfers can.
  session->relay()->Close(
      Failed(absl::StrCat("session ", id, " has ended"), {.object = absl::StrCat("session ", id)}));
  // The last one to let go releases the session; one count is this function's own.
  auto remaining = std::make_shared<std::atomic<size_t>>(observers_.size() + 1);
  const auto released = [self = shared_from_this(), session, remaining] {
    if (remaining->fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    self->resources_.control->Release(session->id(), "release the session",
                                      [self, session] { self->Release(session); });
  };
  for (SessionObserver* observer : observers_) observer->OnSessionEnd(id, released);
  released();
}

void SessionServer::Core::Release(const std::shared_ptr<ClientSession>& session) {
  session->ReleaseAll();
  // Behind everything that ReleaseAll has handed to this session's queue.
  resources_.control->Release(
      session->id(), "forget the session",
      [self = shared_from_this(), id = session->id()] { self->Forget(id); });
}

void SessionServer::Core::Forget(uint64_t id) {
  SessionEntry entry;
  bool last;
  {
    MutexLock lock(&mutex_);
    auto node = sessions_.extract(id);
    if (!node.empty()) entry = std::move(node.mapped());
    last = sessions_.empty();
    changed_.SignalAll();
  }
  entry = {};
  LogDebug("session released", {{"session", id}});
  if (last && options_.on_last_session_gone) options_.on_last_session_gone();
}

std::vector<SessionDescription> SessionServer::Core::List() const {
  std::vector<std::shared_ptr<ClientSession>> sessions;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, entry] : sessions_) sessions.push_back(entry.session);
  }
  std::vector<SessionDescription> result;
  result.reserve(sessions.size());
  for (const auto& session : sessions) result.push_back(session->Describe());
  return result;
}

size_t SessionServer::Core::size() const {
  MutexLock lock(&mutex_);
  return sessions_.size();
}

void SessionServer::Core::StopListening() {
  if (acceptor_ == nullptr) return;
  acceptor_.reset();
  // The lock is held, so the socket is still this daemon's.
  unlink((options_.socket_path + ".fd").c_str());
}

void SessionServer::Core::CloseAll(const std::string& reason) {
  const auto peers = peers_;
  for (const auto& [id, peer] : peers) peer->Close(reason);
}

bool SessionServer::Core::Shutdown(const std::string& reason, int64_t deadline_ns) {
  resources_.host_pool->KeepContents();
  resources_.loop->Post([self = shared_from_this(), reason] {
    self->StopListening();
    self->CloseAll(reason);
    MutexLock lock(&self->mutex_);
    self->listening_ = false;
    self->changed_.SignalAll();
  });
  const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
  MutexLock lock(&mutex_);
  while (listening_ || !seats_.empty()) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return !listening_ && seats_.empty();
  }
  return true;
}

absl::StatusOr<std::unique_ptr<SessionServer>> SessionServer::Create(SessionServerOptions options,
                                                                     SessionResources resources) {
  if (options.incarnation.empty()) {
    HIXLD_ASSIGN_OR_RETURN(options.incarnation, RandomBytes(kIncarnationBytes));
  }
  const std::string& path = options.socket_path;
  for (const std::string& place : {path, FdSocketPath(path)}) {
    HIXLD_RETURN_IF_ERROR(CheckSocketPlace(place));
  }
  HIXLD_ASSIGN_OR_RETURN(LockFile lock, LockFile::Acquire(LockFilePath(path)));
  auto core = std::make_shared<Core>(std::move(options), std::move(resources));
  core->Start();
  return std::unique_ptr<SessionServer>(new SessionServer(std::move(lock), std::move(core)));
}

SessionServer::SessionServer(LockFile lock, std::shared_ptr<Core> core)
    : lock_(std::move(lock)), core_(std::move(core)) {}

SessionServer::~SessionServer() {
  core_->Shutdown("the daemon is stopping", MonotonicNanos() + kDestructorPatienceNs);
  core_->Stop();
}

void SessionServer::AddObserver(SessionObserver* observer) { core_->AddObserver(observer); }
absl::Status SessionServer::Listen() { return core_->Listen(); }
bool SessionServer::Shutdown(const std::string& reason, int64_t deadline_ns) {
  return core_->Shutdown(reason, deadline_ns);
}
absl::StatusOr<std::shared_ptr<Session>> SessionServer::Find(absl::string_view token) {
  return core_->Find(token);
}
std::vector<SessionDescription> SessionServer::List() const { return core_->List(); }
size_t SessionServer::size() const { return core_->size(); }
const std::string& SessionServer::incarnation() const { return core_->options().incarnation; }

}  // namespace hixld
