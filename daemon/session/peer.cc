#include "daemon/session/peer.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/telemetry/log.h"
#include "proto/base/no_descriptors.h"
#include "proto/base/status.h"
#include "proto/direct/gate.h"
#include "proto/ring/layout.h"

namespace hixld {
namespace {

using hixl::fdchannel::v1::CopyCommand;
using hixl::fdchannel::v1::FdMessage;
using hixl::fdchannel::v1::Hello;

constexpr size_t kProbeBytes = 16;
constexpr size_t kMaxNameBytes = 128;
// After so many packets that no honest client sends, the channel is closed.
constexpr uint32_t kMaxBadPackets = 16;

// Whether the 16 bytes at the client's probe address are the ones that it said: then the pid is
// the right process's, and the kernel lets the daemon read it. May block.
absl::Status ReadProbe(const ProcessTarget& target, const Hello& hello) {
  std::byte bytes[kProbeBytes] = {};
  const ProcessTarget::Part part = {
      .address = hello.probe_address(), .host = bytes, .length = kProbeBytes};
  HIXLD_ASSIGN_OR_RETURN(const uint64_t copied,
                         target.Copy(ProcessTarget::Direction::kFromProcess, &part, 1));
  if (copied == kProbeBytes && memcmp(bytes, hello.probe_value().data(), kProbeBytes) == 0) {
    return absl::OkStatus();
  }
  return Failed("the probe's bytes are others than the client said");
}

}  // namespace

Peer::Peer(PeerHost* host, uint64_t id, PeerCredentials credentials,
           std::shared_ptr<const void> seat)
    : host_(host),
      loop_(host->resources().loop),
      id_(id),
      credentials_(credentials),
      seat_(std::move(seat)) {}

absl::Status Peer::Start(UniqueFd socket, UniqueFd pidfd) {
  if (pidfd.valid()) {
    target_ = std::make_shared<ProcessTarget>(credentials_.pid, credentials_.uid, credentials_.gid,
                                              std::move(pidfd));
  }
  const auto weak = weak_from_this();
  FdConnection::Callbacks callbacks;
  callbacks.on_packet = [weak](FdPacket packet) {
    if (const auto self = weak.lock()) self->OnPacket(std::move(packet));
  };
  callbacks.on_refused = [weak](absl::Status error, std::vector<UniqueFd> fds) {
    if (const auto self = weak.lock()) self->OnRefused(std::move(error), std::move(fds));
  };
  callbacks.on_starved = [weak](uint64_t request_id, std::vector<UniqueFd> fds) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->CloseFds(std::move(fds));
    self->SendError(request_id, NoDescriptors("hixld cannot take a descriptor from the client"));
  };
  callbacks.on_broken = [weak](absl::Status reason) {
    if (const auto self = weak.lock()) self->Shut(std::string(reason.message()));
  };
  HIXLD_ASSIGN_OR_RETURN(connection_,
                         FdConnection::Start(loop_, std::move(socket), std::move(callbacks)));
  hello_timer_ = loop_->AddTimer(MonotonicNanos() + host_->options().hello_timeout_ns, [weak] {
    if (const auto self = weak.lock()) self->Close("no Hello came in time");
  });
  return absl::OkStatus();
}

void Peer::Close(const std::string& reason) {
  if (state_ == State::kClosed) return;
  FdMessage message;
  message.mutable_goodbye()->set_reason(reason);
  connection_->Send(std::move(message));
  Shut(reason);
}

void Peer::Shut(const std::string& reason) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  loop_->CancelTimer(hello_timer_);
  // Before the client can notice anything.
  if (session_ != nullptr) session_->MarkClosed();
  // What a dead client has left in its rings is nobody's wish any more.
  if (host_->resources().rings != nullptr) host_->resources().rings->Close(id_);
  // Frees what was sent and never received, on a thread that may wait for it.
  auto socket = std::make_shared<UniqueFd>(connection_->Close());
  host_->resources().control->Release(id_, "close the fd channel", [socket] { socket->reset(); });
  host_->OnPeerClosed(this, reason);
}

void Peer::CloseFds(std::vector<UniqueFd> fds) {
  if (fds.empty()) return;
  auto shared = std::make_shared<std::vector<UniqueFd>>(std::move(fds));
  host_->resources().control->Release(id_, "close descriptors of the client",
                                      [shared] { shared->clear(); });
}

void Peer::SendError(uint64_t request_id, const absl::Status& error) {
  FdMessage message;
  message.set_request_id(request_id);
  message.mutable_error()->set_detail(SerializeErrorDetail(error));
  message.mutable_error()->set_message(std::string(error.message()));
  connection_->Send(std::move(message));
}

void Peer::CountBad(const absl::Status& error) {
  if (++bad_packets_ < kMaxBadPackets) return;
  LogWarn("too many bad packets on an fd channel",
          {{"session", id_}, {"pid", credentials_.pid}, {"last", error}});
  Close("too many bad packets");
}

void Peer::OnRefused(absl::Status error, std::vector<UniqueFd> fds) {
  CloseFds(std::move(fds));
  SendError(0, error);
  // Whoever does not even greet in this protocol speaks another one.
  if (state_ == State::kHello) return Close(std::string(error.message()));
  CountBad(error);
}

void Peer::OnPacket(FdPacket packet) {
  switch (state_) {
    case State::kHello:
      CloseFds(std::move(packet.fds));
      return OnHello(packet.message);
    case State::kProbe:
      CloseFds(std::move(packet.fds));
      return Close("a packet came before the Welcome was sent");
    case State::kOpen:
      return OnRequest(std::move(packet));
    case State::kClosed:
      return CloseFds(std::move(packet.fds));
  }
}

absl::Status Peer::CheckHello(const FdMessage& message) const {
  if (!message.has_hello()) {
    return ParamInvalid("the first packet is no Hello",
                        {.object = "fd channel packet", .allowed = "Hello"});
  }
  const Hello& hello = message.hello();
  if (hello.protocol_version() < kFdChannelVersion) {
    return Unsupported(
        absl::StrCat("fd channel version ", hello.protocol_version(), " is not spoken here"),
        {.object = "Hello.protocol_version", .allowed = absl::StrCat(kFdChannelVersion)});
  }
  for (const std::string* text : {&hello.client_name(), &hello.library_version()}) {
    if (text->size() > kMaxNameBytes) {
      return ParamInvalid(absl::StrCat("a name of ", text->size(), " bytes in the Hello"),
                          {.object = "Hello.client_name, Hello.library_version",
                           .allowed = absl::StrCat("up to ", kMaxNameBytes, " bytes")});
    }
  }
  if (hello.probe_address() != 0 && hello.probe_value().size() != kProbeBytes) {
    return ParamInvalid(
        absl::StrCat("a probe value of ", hello.probe_value().size(), " bytes in the Hello"),
        {.object = "Hello.probe_value", .allowed = absl::StrCat(kProbeBytes, " bytes")});
  }
  return absl::OkStatus();
}

void Peer::OnHello(const FdMessage& message) {
  const absl::Status checked = CheckHello(message);
  if (!checked.ok()) {
    SendError(message.request_id(), checked);
    return Close(std::string(checked.message()));
  }
  state_ = State::kProbe;
  loop_->CancelTimer(hello_timer_);
  Probe(message.request_id(), message.hello());
}

void Peer::Probe(uint64_t request_id, Hello hello) {
  if (hello.probe_address() == 0) {
    return Welcome(request_id, hello, Failed("the client does not want it"));
  }
  if (target_ == nullptr) {
    return Welcome(request_id, hello, Failed("its process is not visible here"));
  }
  if (!host_->MayReadProcess(credentials_.uid)) {
    return Welcome(request_id, hello, Failed("a copy from a process of this user hangs"));
  }
  absl::Status queued = host_->resources().copies->Submit(
      id_, absl::StrCat("probe of pid ", credentials_.pid),
      [self = shared_from_this(), target = target_, request_id, hello] {
        absl::Status readable = ReadProbe(*target, hello);
        Loop* loop = self->loop_;
        loop->Post([self, request_id, hello, readable = std::move(readable)] {
          self->Welcome(request_id, hello, readable);
        });
        return false;
      });
  if (!queued.ok()) Welcome(request_id, hello, std::move(queued));
}

void Peer::Welcome(uint64_t request_id, const Hello& hello, absl::Status readable) {
  if (state_ == State::kClosed) return;
  state_ = State::kOpen;
  ClientSession::Identity identity = {.id = id_,
                                      .credentials = credentials_,
                                      .client_name = hello.client_name(),
                                      .library_version = hello.library_version(),
                                      .opened_at_ns = MonotonicNanos(),
                                      .serves_copy_commands = hello.serves_copy_commands()};
  session_ = std::make_shared<ClientSession>(
      std::move(identity), host_->options().limits, host_->resources(),
      readable.ok() ? target_ : nullptr, host_->options().relay_slot_bytes,
      [loop = loop_, weak = weak_from_this()](uint64_t id, CopyCommand command) {
        loop->Dispatch([weak, id, command = std::move(command)]() mutable {
          if (const auto self = weak.lock()) self->SendCommand(id, std::move(command));
        });
      });
  LogInfo("session opened", {{"session", id_},
                             {"pid", credentials_.pid},
                             {"uid", credentials_.uid},
                             {"client", hello.client_name()},
                             {"plain_memory", readable.ok()                  ? "process_vm"
                                              : hello.serves_copy_commands() ? "relay"
                                                                             : "none"},
                             {"reason", readable.ok() ? absl::string_view() : readable.message()}});

  FdMessage message;
  message.set_request_id(request_id);
  auto* welcome = message.mutable_welcome();
  welcome->set_protocol_version(kFdChannelVersion);
  welcome->set_session_id(id_);
  welcome->set_session_token(host_->OpenSession(this));
  welcome->set_daemon_version(host_->options().daemon_version);
  welcome->set_incarnation(host_->options().incarnation);
  welcome->set_process_memory_readable(readable.ok());
  welcome->set_max_packet_bytes(kMaxFdPacketBytes);
  // Whoever copies is watched until its process ends, so that process must be visible.
  if (host_->resources().direct != nullptr && target_ != nullptr) {
    welcome->set_direct_layout_version(direct::kLayoutVersion);
    welcome->set_direct_max_bytes(host_->resources().direct->max_bytes());
  }
  connection_->Send(std::move(message));
}

void Peer::OnRequest(FdPacket packet) {
  if (packet.message.has_put_memory()) return OnPutMemory(std::move(packet));
  CloseFds(std::move(packet.fds));
  const FdMessage& message = packet.message;
  switch (message.body_case()) {
    case FdMessage::kDropMemory:
      return session_->DropMemory(message.drop_memory().handle());
    case FdMessage::kGetArena:
      return OnGetArena(message);
    case FdMessage::kCopyDone:
    case FdMessage::kError:
      return OnCopyAnswer(message);
    case FdMessage::kSetupRings:
      return OnSetupRings(message);
    case FdMessage::kGetDirectGrant:
      return OnGetDirectGrant(message);
    case FdMessage::kGetDirectFile:
      return OnGetDirectFile(message);
    default:
      break;
  }
  const absl::Status error =
      ParamInvalid("a packet that no client sends now",
                   {.object = "fd channel packet",
                    .allowed = "PutMemory, DropMemory, GetArena, SetupRings, CopyDone, "
                               "GetDirectGrant, GetDirectFile"});
  SendError(message.request_id(), error);
  CountBad(error);
}

void Peer::OnPutMemory(FdPacket packet) {
  const uint64_t request_id = packet.message.request_id();
  if (packet.fds.size() != 1) {
    const absl::Status error =
        ParamInvalid(absl::StrCat("PutMemory with ", packet.fds.size(), " descriptors"),
                     {.object = "PutMemory", .allowed = "one descriptor"});
    CloseFds(std::move(packet.fds));
    SendError(request_id, error);
    return CountBad(error);
  }
  // What a stranger's descriptor does when it is looked at, nobody knows.
  auto fd = std::make_shared<UniqueFd>(std::move(packet.fds[0]));
  absl::Status queued = host_->resources().control->Submit(
      id_, "look at a memory descriptor",
      [self = shared_from_this(), session = session_, fd, request_id,
       size = packet.message.put_memory().size()] {
        absl::StatusOr<uint64_t> handle = session->PutMemory(std::move(*fd), size);
        Loop* loop = self->loop_;
        loop->Post([self, request_id, handle = std::move(handle)] {
          if (self->state_ != State::kOpen) return;
          if (!handle.ok()) return self->SendError(request_id, handle.status());
          FdMessage answer;
          answer.set_request_id(request_id);
          answer.mutable_memory_handle()->set_handle(*handle);
          self->connection_->Send(std::move(answer));
        });
        return false;
      });
  if (queued.ok()) return;
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(*fd));
  CloseFds(std::move(fds));
  SendError(request_id, queued);
}

void Peer::OnGetArena(const FdMessage& message) {
  const absl::StatusOr<std::shared_ptr<const Arena>> arena =
      session_->FindArena(message.get_arena().arena_id());
  if (!arena.ok()) return SendError(message.request_id(), arena.status());
  FdMessage answer;
  answer.set_request_id(message.request_id());
  answer.mutable_arena()->set_arena_id((*arena)->id);
  answer.mutable_arena()->set_size((*arena)->size);
  connection_->Send(std::move(answer), {(*arena)->fd.get()}, *arena);
}

absl::StatusOr<RingServer::Grant> Peer::OpenRings(uint32_t layout_version) {
  RingServer* const rings = host_->resources().rings;
  if (rings == nullptr || layout_version != ring::kLayoutVersion) {
    return Unsupported(
        absl::StrCat("rings of layout version ", layout_version, " are not offered here"),
        {.object = "SetupRings.layout_version",
         .allowed = rings == nullptr ? "none" : absl::StrCat(ring::kLayoutVersion)});
  }
  return rings->Open(id_, [loop = loop_, weak = weak_from_this()](const absl::Status& nonsense) {
    loop->Post([weak, reason = std::string(nonsense.message())] {
      if (const auto self = weak.lock()) self->Close(reason);
    });
  });
}

void Peer::OnSetupRings(const FdMessage& message) {
  const auto grant = OpenRings(message.setup_rings().layout_version());
  if (!grant.ok()) return SendError(message.request_id(), grant.status());
  FdMessage answer;
  answer.set_request_id(message.request_id());
  answer.mutable_rings()->set_layout_version(ring::kLayoutVersion);
  answer.mutable_rings()->set_size(grant->size);
  connection_->Send(std::move(answer), {grant->memory_fd, grant->wake_fd});
}

void Peer::OnCopyAnswer(const FdMessage& message) {
  hixl::fdchannel::v1::CopyDone answer = message.copy_done();
  // A client that could not even start says so with an Error.
  if (message.has_error()) answer.set_error_number(ECANCELED);
  const absl::Status known = session_->relay()->OnAnswer(message.request_id(), answer);
  if (!known.ok()) CountBad(known);
}

void Peer::SendCommand(uint64_t request_id, CopyCommand command) {
  if (state_ != State::kOpen) return;
  FdMessage message;
  message.set_request_id(request_id);
  *message.mutable_copy_command() = std::move(command);
  connection_->Send(std::move(message));
  WatchCommands();
}

absl::Status Peer::MakeCopier(uint32_t layout_version) {
  const bool offered = host_->resources().direct != nullptr && target_ != nullptr;
  if (!offered || layout_version != direct::kLayoutVersion) {
    return Unsupported(
        absl::StrCat("direct copies of layout version ", layout_version, " are not offered here"),
        {.object = "GetDirectGrant.layout_version",
         .option = "local.direct",
         .allowed = offered ? absl::StrCat(direct::kLayoutVersion) : "none"});
  }
  if (copier_ != nullptr) return absl::OkStatus();
  UniqueFd pidfd(fcntl(target_->pidfd(), F_DUPFD_CLOEXEC, 3));
  if (!pidfd.valid()) return ErrnoError(errno, "duplicate a pidfd");
  HIXLD_ASSIGN_OR_RETURN(
      copier_,
      DirectCopier::Create(loop_, absl::StrCat("pid ", credentials_.pid), std::move(pidfd)));
  return absl::OkStatus();
}

void Peer::OnGetDirectGrant(const FdMessage& message) {
  const uint64_t request_id = message.request_id();
  const auto& asked = message.get_direct_grant();
  const absl::Status watched = MakeCopier(asked.layout_version());
  if (!watched.ok()) return SendError(request_id, watched);
  // Many regions take a while.
  absl::Status queued = host_->resources().control->Submit(
      id_, "grant direct copies",
      [self = shared_from_this(), session = session_, request_id, copier = copier_,
       engine = asked.engine_handle(), channel = asked.channel_id()] {
        // Who is gone wants nothing any more.
        if (!session->open()) return false;
        auto grant = std::make_shared<absl::StatusOr<DirectGrant>>(
            self->host_->resources().direct->Grant(self->id_, engine, channel, copier));
        Loop* loop = self->loop_;
        loop->Post(
            [self, request_id, grant] { self->AnswerDirectGrant(request_id, std::move(*grant)); });
        return false;
      });
  if (!queued.ok()) SendError(request_id, queued);
}

void Peer::AnswerDirectGrant(uint64_t request_id, absl::StatusOr<DirectGrant> grant) {
  if (state_ != State::kOpen) return;
  if (!grant.ok()) return SendError(request_id, grant.status());
  FdMessage answer;
  answer.set_request_id(request_id);
  answer.mutable_direct_grant()->set_grant_id(copier_->Add(grant->gate));
  answer.mutable_direct_grant()->set_size(grant->gate->size());
  auto keep = std::make_shared<DirectGrant>(std::move(*grant));
  std::vector<int> fds = {keep->memory.get(), copier_->wake_fd()};
  if (keep->gate->target_pidfd() >= 0) fds.push_back(keep->gate->target_pidfd());
  connection_->Send(std::move(answer), std::move(fds), std::move(keep));
}

void Peer::OnGetDirectFile(const FdMessage& message) {
  const auto& asked = message.get_direct_file();
  const auto gate = copier_ == nullptr ? nullptr : copier_->Find(asked.grant_id());
  if (gate == nullptr) {
    return SendError(message.request_id(),
                     ParamInvalid(absl::StrCat("unknown grant ", asked.grant_id()),
                                  {.object = absl::StrCat("grant ", asked.grant_id()),
                                   .allowed = "grants that GetDirectGrant gave this session"}));
  }
  std::shared_ptr<const void> pin;
  const absl::StatusOr<DirectGate::File> file = gate->FindFile(asked.file(), &pin);
  if (!file.ok()) return SendError(message.request_id(), file.status());
  FdMessage answer;
  answer.set_request_id(message.request_id());
  answer.mutable_direct_file()->set_size(file->size);
  connection_->Send(std::move(answer), {file->fd}, std::move(pin));
}

// One timer for all commands: it looks at the oldest one.
void Peer::WatchCommands() {
  if (watching_commands_ || state_ != State::kOpen) return;
  const std::optional<int64_t> oldest = session_->relay()->OldestCommand();
  if (!oldest.has_value()) return;
  const int64_t deadline = *oldest + host_->options().copy_timeout_ns;
  if (MonotonicNanos() >= deadline) {
    session_->SetStuck("did not answer a CopyCommand in time");
    return Close("a CopyCommand was not answered in time");
  }
  watching_commands_ = true;
  loop_->AddTimer(deadline, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->watching_commands_ = false;
    self->WatchCommands();
  });
}

}  // namespace hixld
