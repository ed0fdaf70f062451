#include "client/cpp/session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/log.h"
#include "proto/base/clock.h"
#include "proto/base/memfd.h"
#include "proto/base/no_descriptors.h"
#include "proto/base/status.h"
#include "proto/base/version.h"
#include "proto/direct/gate.h"

namespace hixld::client {
namespace {

using hixl::fdchannel::v1::FdMessage;

constexpr size_t kMaxClientNameBytes = 128;
constexpr int64_t kRingsTimeout = 5 * kNanosPerSecond;

std::chrono::steady_clock::time_point ToTimePoint(int64_t deadline) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline));
}

// "python3 (pid 4711)": what operators see.
std::string ClientName() {
  std::ifstream file("/proc/self/comm");
  std::string name;
  std::getline(file, name);
  return absl::StrCat(name, " (pid ", getpid(), ")").substr(0, kMaxClientNameBytes);
}

// Where Yama lets only ancestors look into a process, the daemon has to be named; without it
// every copy would go through the relay.
void AllowDaemonToReadMemory(int socket) {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  if (!(file >> scope) || scope != 1) return;
  const auto peer = PeerCredentialsOf(socket);
  if (peer.ok() && peer->pid > 0) prctl(PR_SET_PTRACER, peer->pid, 0, 0, 0);
}

// Whether the process at the other end was started as `hixld --private`.
bool IsPrivateDaemon(int socket) {
  const auto peer = PeerCredentialsOf(socket);
  if (!peer.ok() || peer->pid <= 0) return false;
  std::ifstream file(absl::StrCat("/proc/", peer->pid, "/cmdline"));
  std::string argument;
  while (std::getline(file, argument, '\0')) {
    if (argument == "--private") return true;
  }
  return false;
}

absl::Status FromError(const hixl::fdchannel::v1::Error& error) {
  return StatusFromErrorDetail(error.message(), error.detail(), absl::StatusCode::kInternal);
}

// Waits until the socket has a packet.
absl::Status AwaitPacket(int socket, int64_t deadline) {
  while (true) {
    const int64_t left = (deadline - MonotonicNanos()) / kNanosPerMilli;
    if (left <= 0) break;
    pollfd poll_fd = {.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return ErrnoError(errno, "poll the fd channel");
  }
  return Timeout("hixld does not answer on its fd channel", {.object = "hixld"});
}

// gRPC ends the process when it finds no descriptor for itself, so some must be free. `fd` is any.
absl::Status CheckDescriptorsForRpc(int fd) {
  constexpr int kForRpc = 16;
  std::vector<UniqueFd> probes;
  for (int i = 0; i < kForRpc; ++i) {
    probes.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!probes.back().valid()) return NoDescriptors("no session with hixld can be opened");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const std::string& socket,
                                                       const std::string& fd_socket,
                                                       std::function<void()> on_lost,
                                                       int64_t deadline) {
  HIXLD_ASSIGN_OR_RETURN(UniqueFd fd, ConnectFdSocket(fd_socket));
  HIXLD_RETURN_IF_ERROR(CheckDescriptorsForRpc(fd.get()));
  AllowDaemonToReadMemory(fd.get());
  std::shared_ptr<Session> session =
      OwnedByProcess(std::unique_ptr<Session>(new Session(std::move(fd), std::move(on_lost))));
  session->private_daemon_ = IsPrivateDaemon(session->fd_.get());
  std::string token;
  HIXLD_RETURN_IF_ERROR(session->Greet(deadline, &token));
  session->rpc_ = Rpc::Create(socket, token);
  session->reader_ = std::thread([raw = session.get()] { raw->Read(); });
  return session;
}

uint64_t Session::NextNumber() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

absl::Status Session::Greet(int64_t deadline, std::string* token) {
  if (getrandom(probe_.data(), probe_.size(), 0) != static_cast<ssize_t>(probe_.size())) {
    return ErrnoError(errno, "getrandom");
  }
  Message message;
  message.set_request_id(1);
  auto* hello = message.mutable_hello();
  hello->set_protocol_version(kFdChannelVersion);
  hello->set_client_name(ClientName());
  hello->set_library_version(kVersion);
  hello->set_probe_address(reinterpret_cast<uint64_t>(probe_.data()));
  hello->set_probe_value(probe_.data(), probe_.size());
  hello->set_serves_copy_commands(true);
  const absl::Status sent = SendFdPacket(fd_.get(), message);
  // A daemon that refuses at once may have closed before it was greeted; its reason is there.
  if (!sent.ok() && sent.code() != absl::StatusCode::kUnavailable) return sent;
  HIXLD_RETURN_IF_ERROR(AwaitPacket(fd_.get(), deadline));
  HIXLD_ASSIGN_OR_RETURN(const FdPacket answer, ReceiveFdPacket(fd_.get()));
  if (answer.message.has_error()) return FromError(answer.message.error());
  if (answer.message.has_goodbye()) {
    return Failed(absl::StrCat("hixld refuses the session: ", answer.message.goodbye().reason()),
                  {.object = "hixld"});
  }
  if (!answer.message.has_welcome()) {
    return Failed("hixld answers the greeting with something else", {.object = "hixld"});
  }
  *token = answer.message.welcome().session_token();
  if (answer.message.welcome().direct_layout_version() == direct::kLayoutVersion) {
    direct_max_bytes_ = answer.message.welcome().direct_max_bytes();
  }
  return absl::OkStatus();
}

Session::~Session() {
  // Wakes the reader; it marks the session lost and ends.
  shutdown(fd_.get(), SHUT_RDWR);
  if (reader_.joinable()) reader_.join();
}

void Session::MarkLost(const std::string& reason) {
  {
    MutexLock lock(&mutex_);
    if (!alive_.load(std::memory_order_relaxed)) return;
    lost_reason_ = goodbye_.empty() ? reason : goodbye_;
    alive_.store(false, std::memory_order_release);
    for (auto& [id, waiter] : waiters_) {
      waiter->done = true;
      waiter->answer = SessionLost(lost_reason_);
    }
    waiters_.clear();
    answered_.SignalAll();
  }
  // The daemon, should it still be there, releases what was ours.
  shutdown(fd_.get(), SHUT_RDWR);
  rpc_->Close();
  if (ring::Producer* const rings = rings_.load(std::memory_order_seq_cst)) rings->Abandon();
  on_lost_();
}

std::string Session::lost_reason() const {
  MutexLock lock(&mutex_);
  return lost_reason_;
}

absl::Status Session::Send(const Message& message, const std::vector<int>& fds) {
  MutexLock lock(&send_mutex_);
  absl::Status sent = SendFdPacket(fd_.get(), message, fds);
  if (sent.code() == absl::StatusCode::kUnavailable) return SessionLost(sent.message());
  return sent;
}

absl::StatusOr<FdPacket> Session::Ask(Message message, const std::vector<int>& fds,
                                      int64_t deadline) {
  Waiter waiter;
  {
    MutexLock lock(&mutex_);
    if (!alive()) return SessionLost(lost_reason_);
    message.set_request_id(++next_request_);
    waiters_[message.request_id()] = &waiter;
  }
  const absl::Status sent = Send(message, fds);
  MutexLock lock(&mutex_);
  if (!sent.ok()) {
    waiters_.erase(message.request_id());
    return sent;
  }
  while (!waiter.done) {
    if (!answered_.WaitUntil(&mutex_, ToTimePoint(deadline)) && !waiter.done) {
      waiters_.erase(message.request_id());
      return Timeout("hixld does not answer on its fd channel", {.object = "hixld"});
    }
  }
  return std::move(waiter.answer);
}

void Session::Read() {
  while (true) {
    absl::StatusOr<FdPacket> packet = ReceiveFdPacket(fd_.get());
    if (!packet.ok()) {
      MarkLost(std::string(packet.status().message()));
      return;
    }
    Dispatch(*std::move(packet));
  }
}

void Session::Dispatch(FdPacket packet) {
  const Message& message = packet.message;
  if (message.has_copy_command()) {
    ServeCopy(message);
  } else if (message.has_goodbye()) {
    // Calls in progress may still be answered; the end of the connection ends the session.
    MutexLock lock(&mutex_);
    goodbye_ = absl::StrCat("hixld said goodbye: ", message.goodbye().reason());
  } else {
    Answer(std::move(packet));
  }
}

void Session::Answer(FdPacket packet) {
  const uint64_t id = packet.message.request_id();
  const auto copies = copies_awaiting_arena_.find(id);
  if (copies != copies_awaiting_arena_.end()) {
    const std::vector<Message> commands = std::move(copies->second);
    copies_awaiting_arena_.erase(copies);
    const auto arena = KeepArena(std::move(packet));
    for (const Message& command : commands) {
      if (arena.ok()) {
        ServeCopy(command);
      } else {
        ReplyCopyDone(command.request_id(), ENXIO, 0);
      }
    }
    return;
  }
  MutexLock lock(&mutex_);
  const auto waiter = waiters_.find(id);
  if (waiter == waiters_.end()) return;  // its asker gave up
  waiter->second->done = true;
  if (packet.fds_lost) {
    waiter->second->answer = NoDescriptors("no descriptor can be taken from hixld");
  } else {
    waiter->second->answer = std::move(packet);
  }
  waiters_.erase(waiter);
  answered_.SignalAll();
}

// Runs on the reading thread, which therefore must not wait for an answer itself: a command for
// an arena that is not known yet is put aside until the arena is there.
void Session::ServeCopy(const Message& message) {
  const auto& command = message.copy_command();
  const std::shared_ptr<Arena> arena = KnownArena(command.arena_id());
  if (arena == nullptr) {
    Message ask;
    ask.mutable_get_arena()->set_arena_id(command.arena_id());
    {
      MutexLock lock(&mutex_);
      ask.set_request_id(++next_request_);
    }
    copies_awaiting_arena_[ask.request_id()].push_back(message);
    if (!Send(ask).ok()) copies_awaiting_arena_.erase(ask.request_id());
    return;
  }
  for (const auto& slice : command.slices()) {
    const std::optional<uint64_t> address =
        command.device_memory() ? device_memory_.Find(slice.client_address(), slice.length())
                                : slice.client_address();
    // Device memory that has been freed meanwhile is as unreachable as an unmapped page.
    const int error = !address.has_value() ? EFAULT
                      : command.to_arena()
                          ? arena->CopyFromMemory(*address, slice.arena_offset(), slice.length())
                          : arena->CopyToMemory(*address, slice.arena_offset(), slice.length());
    if (error != 0) {
      ReplyCopyDone(message.request_id(), error, slice.client_address());
      return;
    }
  }
  ReplyCopyDone(message.request_id(), 0, 0);
}

void Session::ReplyCopyDone(uint64_t request_id, int error, uint64_t address) {
  Message reply;
  reply.set_request_id(request_id);
  reply.mutable_copy_done()->set_error_number(error);
  reply.mutable_copy_done()->set_failed_address(address);
  const absl::Status sent = Send(reply);
  if (!sent.ok()) Log(LogLevel::kDebug, absl::StrCat("copy answer not sent: ", sent.message()));
}

std::shared_ptr<Arena> Session::KnownArena(uint64_t arena_id) {
  MutexLock lock(&mutex_);
  const auto found = arenas_.find(arena_id);
  return found == arenas_.end() ? nullptr : found->second;
}

absl::StatusOr<std::shared_ptr<Arena>> Session::KeepArena(FdPacket packet) {
  if (packet.fds_lost) return NoDescriptors("no memory can be taken from hixld");
  if (packet.message.has_error()) return FromError(packet.message.error());
  if (!packet.message.has_arena() || packet.fds.size() != 1) {
    return Failed("hixld answers GetArena without an arena", {.object = "hixld"});
  }
  const auto& description = packet.message.arena();
  HIXLD_ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                         Arena::Map(std::move(packet.fds.front()), description.size()));
  MutexLock lock(&mutex_);
  // Two askers at once: the first mapping stays.
  return arenas_.emplace(description.arena_id(), std::move(arena)).first->second;
}

ring::Producer* Session::rings() {
  std::call_once(rings_asked_, [this] { SetUpRings(); });
  return rings_.load(std::memory_order_acquire);
}

void Session::SetUpRings() {
  absl::StatusOr<std::unique_ptr<ring::Producer>> rings = AskForRings();
  if (!rings.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("transfers go over gRPC: ", rings.status().message()));
    return;
  }
  owned_rings_ = *std::move(rings);
  rings_.store(owned_rings_.get(), std::memory_order_seq_cst);
  // Lost meanwhile: MarkLost may not have seen them.
  if (!alive()) owned_rings_->Abandon();
}

absl::StatusOr<std::unique_ptr<ring::Producer>> Session::AskForRings() {
  Message message;
  message.mutable_setup_rings()->set_layout_version(ring::kLayoutVersion);
  HIXLD_ASSIGN_OR_RETURN(FdPacket answer,
                         Ask(std::move(message), {}, MonotonicNanos() + kRingsTimeout));
  if (answer.message.has_error()) return FromError(answer.message.error());
  if (!answer.message.has_rings() || answer.fds.size() != 2) {
    return Failed("hixld answers SetupRings without rings", {.object = "hixld"});
  }
  const uint64_t size = answer.message.rings().size();
  HIXLD_RETURN_IF_ERROR(CheckSharedMemfd(answer.fds[0].get(), size).status());
  HIXLD_ASSIGN_OR_RETURN(Mapping memory, MapShared(answer.fds[0].get(), 0, size));
  return ring::Producer::Attach(std::move(memory), std::move(answer.fds[1]));
}

absl::StatusOr<uint64_t> Session::PutMemory(int fd, uint64_t size, int64_t deadline) {
  Message message;
  message.mutable_put_memory()->set_size(size);
  HIXLD_ASSIGN_OR_RETURN(const FdPacket answer, Ask(std::move(message), {fd}, deadline));
  if (answer.message.has_error()) return FromError(answer.message.error());
  if (!answer.message.has_memory_handle()) {
    return Failed("hixld answers PutMemory without a handle", {.object = "hixld"});
  }
  return answer.message.memory_handle().handle();
}

void Session::DropMemory(uint64_t handle) {
  Message message;
  message.mutable_drop_memory()->set_handle(handle);
  const absl::Status sent = Send(message);
  if (!sent.ok()) Log(LogLevel::kDebug, absl::StrCat("handle not dropped: ", sent.message()));
}

absl::StatusOr<std::shared_ptr<Arena>> Session::GetArena(uint64_t arena_id, int64_t deadline) {
  if (std::shared_ptr<Arena> arena = KnownArena(arena_id)) return arena;
  Message message;
  message.mutable_get_arena()->set_arena_id(arena_id);
  HIXLD_ASSIGN_OR_RETURN(FdPacket answer, Ask(std::move(message), {}, deadline));
  return KeepArena(std::move(answer));
}

absl::StatusOr<Session::DirectGrant> Session::GetDirectGrant(uint64_t engine_handle,
                                                             uint64_t channel_id,
                                                             int64_t deadline) {
  Message message;
  message.mutable_get_direct_grant()->set_engine_handle(engine_handle);
  message.mutable_get_direct_grant()->set_channel_id(channel_id);
  message.mutable_get_direct_grant()->set_layout_version(direct::kLayoutVersion);
  HIXLD_ASSIGN_OR_RETURN(FdPacket answer, Ask(std::move(message), {}, deadline));
  if (answer.message.has_error()) return FromError(answer.message.error());
  if (!answer.message.has_direct_grant() || answer.fds.size() < 2) {
    return Failed("hixld answers GetDirectGrant without a gate", {.object = "hixld"});
  }
  const uint64_t size = answer.message.direct_grant().size();
  HIXLD_RETURN_IF_ERROR(CheckSharedMemfd(answer.fds[0].get(), size).status());
  DirectGrant grant;
  grant.id = answer.message.direct_grant().grant_id();
  HIXLD_ASSIGN_OR_RETURN(grant.gate, MapShared(answer.fds[0].get(), 0, size));
  grant.wake = std::move(answer.fds[1]);
  if (answer.fds.size() > 2) grant.target_pidfd = std::move(answer.fds[2]);
  return grant;
}

absl::StatusOr<std::shared_ptr<const PeerFile>> Session::GetDirectFile(uint64_t grant_id,
                                                                       uint32_t file,
                                                                       PeerFiles* known,
                                                                       int64_t deadline) {
  Message message;
  message.mutable_get_direct_file()->set_grant_id(grant_id);
  message.mutable_get_direct_file()->set_file(file);
  HIXLD_ASSIGN_OR_RETURN(FdPacket answer, Ask(std::move(message), {}, deadline));
  if (answer.message.has_error()) return FromError(answer.message.error());
  if (!answer.message.has_direct_file() || answer.fds.size() != 1) {
    return Failed("hixld answers GetDirectFile without a file", {.object = "hixld"});
  }
  return known->Map(std::move(answer.fds[0]), answer.message.direct_file().size());
}

}  // namespace hixld::client
