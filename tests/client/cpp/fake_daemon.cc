#include "tests/client/cpp/fake_daemon.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/memfd.h"
#include "proto/base/rpc_status.h"
#include "proto/base/status.h"
#include "proto/hixl/v1/engine.grpc.pb.h"

#if defined(__SANITIZE_THREAD__)
// Client and server share this process, and neither gRPC nor absl of the system are instrumented:
// the sanitizer does not see how they hand messages from thread to thread.
extern "C" const char* __tsan_default_suppressions() {
  return "race:^grpc::\nrace:libgrpc\nrace:libgpr\nrace:libabsl_\n";
}
#endif

namespace hixld::testing {
namespace {

using hixl::fdchannel::v1::CopyDone;
using hixl::fdchannel::v1::FdMessage;

constexpr uint64_t kArenaId = 7;
constexpr size_t kArenaBytes = 4 << 20;

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      SerializeRpcDetails(status));
}

std::string TokenOf(const grpc::ServerContext& context) {
  const auto found = context.client_metadata().find("hixl-session-bin");
  return found == context.client_metadata().end()
             ? ""
             : std::string(found->second.data(), found->second.size());
}

bool Inside(const std::map<uint64_t, v1::MemoryRegistration>& regions, uint64_t address,
            uint64_t length) {
  for (const auto& [id, region] : regions) {
    if (address >= region.address() && length <= region.length() &&
        address - region.address() <= region.length() - length) {
      return true;
    }
  }
  return false;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "hixl.XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}

TemporaryDirectory::~TemporaryDirectory() { std::filesystem::remove_all(path_); }

class FakeDaemon::Service : public v1::EngineService::Service {
 public:
  explicit Service(FakeDaemon* daemon) : daemon_(*daemon) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + daemon->socket_, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Service() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status OpenEngine(grpc::ServerContext* context, const v1::OpenEngineRequest* request,
                          v1::OpenEngineResponse* response) override {
    return Run(*context, *request, [&](const std::string& token) -> absl::Status {
      MutexLock lock(&daemon_.mutex_);
      daemon_.last_open_ = *request;
      std::string id = request->local_engine();
      if (request->listen_on_any_port()) id += ":40001";
      const uint64_t handle = daemon_.next_id_++;
      daemon_.engines_[handle] = {.id = id, .token = token};
      response->set_engine_handle(handle);
      response->set_engine_id(id);
      return absl::OkStatus();
    });
  }

  grpc::Status CloseEngine(grpc::ServerContext* context, const v1::CloseEngineRequest* request,
                           v1::CloseEngineResponse*) override {
    return Run(*context, *request, [&](const std::string&) {
      MutexLock lock(&daemon_.mutex_);
      daemon_.engines_.erase(request->engine_handle());
      return absl::OkStatus();
    });
  }

  grpc::Status RegisterMemory(grpc::ServerContext* context,
                              const v1::RegisterMemoryRequest* request,
                              v1::RegisterMemoryResponse* response) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      MutexLock lock(&daemon_.mutex_);
      Engine* engine = daemon_.FindEngine(request->engine_handle());
      if (engine == nullptr) return ParamInvalid("unknown engine");
      for (const auto& registration : request->registrations()) {
        const uint64_t id = daemon_.next_id_++;
        engine->regions[id] = registration;
        response->add_region_ids(id);
      }
      return absl::OkStatus();
    });
  }

  grpc::Status DeregisterMemory(grpc::ServerContext* context,
                                const v1::DeregisterMemoryRequest* request,
                                v1::DeregisterMemoryResponse*) override {
    return Run(*context, *request, [&](const std::string&) {
      MutexLock lock(&daemon_.mutex_);
      Engine* engine = daemon_.FindEngine(request->engine_handle());
      for (const uint64_t id : request->region_ids()) engine->regions.erase(id);
      return absl::OkStatus();
    });
  }

  grpc::Status AllocateBuffer(grpc::ServerContext* context,
                              const v1::AllocateBufferRequest* request,
                              v1::AllocateBufferResponse* response) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      if (request->length() > kArenaBytes / 2) {
        return ResourceExhausted("the pool is exhausted", {.option = "pools.host.max_bytes"});
      }
      MutexLock lock(&daemon_.mutex_);
      response->set_buffer_id(daemon_.next_id_++);
      response->set_arena_id(kArenaId);
      response->set_arena_offset(4096);
      response->set_arena_size(kArenaBytes);
      response->set_mappable(true);
      response->set_length((request->length() + 4095) & ~uint64_t{4095});
      daemon_.buffers_.insert(response->buffer_id());
      return absl::OkStatus();
    });
  }

  grpc::Status FreeBuffer(grpc::ServerContext* context, const v1::FreeBufferRequest* request,
                          v1::FreeBufferResponse*) override {
    return Run(*context, *request, [&](const std::string&) {
      MutexLock lock(&daemon_.mutex_);
      daemon_.buffers_.erase(request->buffer_id());
      return absl::OkStatus();
    });
  }

  grpc::Status Connect(grpc::ServerContext* context, const v1::ConnectRequest* request,
                       v1::ConnectResponse* response) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      MutexLock lock(&daemon_.mutex_);
      Engine* engine = daemon_.FindEngine(request->engine_handle());
      bool listens = false;
      for (const auto& [handle, other] : daemon_.engines_) {
        listens = listens || other.id == request->remote_engine();
      }
      if (!listens) return Failed(absl::StrCat("nobody listens at ", request->remote_engine()));
      if (!engine->channels.insert(request->remote_engine()).second) {
        return AlreadyConnected("already connected");
      }
      response->set_channel_id(daemon_.next_id_++);
      response->set_transport("local");
      return absl::OkStatus();
    });
  }

  grpc::Status Disconnect(grpc::ServerContext* context, const v1::DisconnectRequest* request,
                          v1::DisconnectResponse*) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      MutexLock lock(&daemon_.mutex_);
      Engine* engine = daemon_.FindEngine(request->engine_handle());
      if (engine->channels.erase(request->remote_engine()) == 0) return NotConnected("no channel");
      return absl::OkStatus();
    });
  }

  grpc::Status Transfer(grpc::ServerContext* context, const v1::TransferRequest* request,
                        v1::TransferResponse* response) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      HIXLD_RETURN_IF_ERROR(daemon_.Move(request->engine_handle(), request->remote_engine(),
                                         request->op(), request->batch()));
      response->set_state(v1::TRANSFER_STATE_COMPLETED);
      return absl::OkStatus();
    });
  }

  grpc::Status SubmitTransfer(grpc::ServerContext* context,
                              const v1::SubmitTransferRequest* request,
                              v1::SubmitTransferResponse* response) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      const absl::Status moved = daemon_.Move(request->engine_handle(), request->remote_engine(),
                                              request->op(), request->batch());
      if (ApiCodeOf(moved) == ApiCode::kNotConnected) return moved;
      MutexLock lock(&daemon_.mutex_);
      const uint64_t id = daemon_.next_id_++;
      daemon_.transfers_[id] = {
          moved.ok() ? v1::TRANSFER_STATE_COMPLETED : v1::TRANSFER_STATE_FAILED,
          std::string(moved.message())};
      response->set_transfer_id(id);
      return absl::OkStatus();
    });
  }

  grpc::Status GetTransferStatus(grpc::ServerContext* context,
                                 const v1::GetTransferStatusRequest* request,
                                 v1::GetTransferStatusResponse* response) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      MutexLock lock(&daemon_.mutex_);
      for (const uint64_t id : request->transfer_ids()) {
        auto* result = response->add_results();
        result->set_transfer_id(id);
        const auto found = daemon_.transfers_.find(id);
        if (found == daemon_.transfers_.end()) {
          result->set_state(v1::TRANSFER_STATE_FAILED);
          result->set_code(static_cast<uint32_t>(ApiCode::kParamInvalid));
          continue;
        }
        result->set_state(found->second.first);
        result->set_message(found->second.second);
        daemon_.transfers_.erase(found);
      }
      return absl::OkStatus();
    });
  }

  grpc::Status SendNotify(grpc::ServerContext* context, const v1::SendNotifyRequest* request,
                          v1::SendNotifyResponse*) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      MutexLock lock(&daemon_.mutex_);
      Engine* engine = daemon_.FindEngine(request->engine_handle());
      if (engine->channels.count(request->remote_engine()) == 0) return NotConnected("no channel");
      for (auto& [handle, other] : daemon_.engines_) {
        if (other.id != request->remote_engine()) continue;
        v1::ReceivedNotify notify;
        notify.set_name(request->name());
        notify.set_message(request->message());
        notify.set_sender(engine->id);
        other.notifies.push_back(std::move(notify));
      }
      return absl::OkStatus();
    });
  }

  // Two per answer, so that there is more.
  grpc::Status GetNotifies(grpc::ServerContext* context, const v1::GetNotifiesRequest* request,
                           v1::GetNotifiesResponse* response) override {
    return Run(*context, *request, [&](const std::string&) -> absl::Status {
      MutexLock lock(&daemon_.mutex_);
      const auto& all = daemon_.FindEngine(request->engine_handle())->notifies;
      uint64_t next = request->after_sequence();
      while (next < all.size() && response->notifies_size() < 2) {
        *response->add_notifies() = all[next++];
      }
      response->set_last_sequence(next);
      response->set_more(next < all.size());
      return absl::OkStatus();
    });
  }

 private:
  template <typename Call>
  grpc::Status Run(const grpc::ServerContext& context, const google::protobuf::Message& request,
                   Call call) {
    const std::string token = TokenOf(context);
    absl::Status status = daemon_.Begin(request, token);
    if (status.ok()) status = call(token);
    return ToGrpc(status);
  }

  FakeDaemon& daemon_;
  std::unique_ptr<grpc::Server> server_;
};

FakeDaemon::FakeDaemon(const std::string& socket) : socket_(socket) {
  arena_fd_ = CreateSealedMemfd("fake arena", kArenaBytes).value();
  arena_ = MapShared(arena_fd_.get(), 0, kArenaBytes).value();
  unlink((socket + ".fd").c_str());
  unlink(socket.c_str());
  service_ = std::make_unique<Service>(this);
  listener_ = ListenFdSocket(socket + ".fd", 0600).value();
  acceptor_ = std::thread([this] { Accept(); });
}

FakeDaemon::~FakeDaemon() {
  std::vector<std::unique_ptr<Session>> sessions;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    for (auto& session : sessions_) shutdown(session->fd.get(), SHUT_RDWR);
  }
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  {
    MutexLock lock(&mutex_);
    sessions.swap(sessions_);
  }
  for (auto& session : sessions) session->thread.join();
  service_.reset();
  listener_.reset();
  unlink((socket_ + ".fd").c_str());
}

void FakeDaemon::Accept() {
  while (true) {
    pollfd poll_fd = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
    poll(&poll_fd, 1, -1);
    MutexLock lock(&mutex_);
    if (stopping_) return;
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) continue;
    auto session = std::make_unique<Session>();
    session->fd = std::move(fd);
    session->token = absl::StrCat("token-", next_id_++, std::string(20, 'x'));
    Session* raw = session.get();
    sessions_.push_back(std::move(session));
    raw->thread = std::thread([this, raw] { Serve(raw); });
  }
}

void FakeDaemon::Serve(Session* session) {
  while (true) {
    absl::StatusOr<FdPacket> packet = ReceiveFdPacket(session->fd.get());
    if (!packet.ok()) break;
    Answer(session, *std::move(packet));
  }
  EndSession(session->token);
}

void FakeDaemon::EndSession(const std::string& token) {
  MutexLock lock(&mutex_);
  tokens_.erase(token);
  for (auto it = engines_.begin(); it != engines_.end();) {
    it = it->second.token == token ? engines_.erase(it) : std::next(it);
  }
}

void FakeDaemon::Answer(Session* session, FdPacket packet) {
  const FdMessage& message = packet.message;
  FdMessage answer;
  answer.set_request_id(message.request_id());
  std::vector<int> fds;
  if (message.has_hello()) {
    MutexLock lock(&mutex_);
    tokens_.insert(session->token);
    const auto& hello = message.hello();
    const bool readable = memcmp(reinterpret_cast<const void*>(hello.probe_address()),
                                 hello.probe_value().data(), hello.probe_value().size()) == 0;
    probed_sessions_ += readable ? 1 : 0;
    answer.mutable_welcome()->set_protocol_version(kFdChannelVersion);
    answer.mutable_welcome()->set_session_token(session->token);
    answer.mutable_welcome()->set_process_memory_readable(readable);
  } else if (message.has_get_arena() && message.get_arena().arena_id() == kArenaId) {
    answer.mutable_arena()->set_arena_id(kArenaId);
    answer.mutable_arena()->set_size(kArenaBytes);
    fds.push_back(arena_fd_.get());
  } else if (message.has_put_memory()) {
    const auto size = CheckSharedMemfd(packet.fds.at(0).get(), message.put_memory().size());
    if (size.ok()) {
      answer.mutable_memory_handle()->set_handle(0x77);
    } else {
      answer.mutable_error()->set_message(std::string(size.status().message()));
      answer.mutable_error()->set_detail(SerializeErrorDetail(size.status()));
    }
  } else if (message.has_copy_done()) {
    MutexLock lock(&mutex_);
    copies_[message.request_id()] = message.copy_done();
    copied_.SignalAll();
    return;
  } else if (message.has_drop_memory()) {
    return;
  } else {
    const absl::Status refused = Unsupported("not offered");
    answer.mutable_error()->set_message("not offered");
    answer.mutable_error()->set_detail(SerializeErrorDetail(refused));
  }
  (void)SendFdPacket(session->fd.get(), answer, fds);
}

CopyDone FakeDaemon::Copy(bool to_arena, uint64_t client_address, uint64_t arena_offset,
                          uint64_t length) {
  FdMessage message;
  MutexLock lock(&mutex_);
  message.set_request_id(next_id_++);
  auto* command = message.mutable_copy_command();
  command->set_arena_id(kArenaId);
  command->set_to_arena(to_arena);
  auto* slice = command->add_slices();
  slice->set_client_address(client_address);
  slice->set_arena_offset(arena_offset);
  slice->set_length(length);
  (void)SendFdPacket(sessions_.back()->fd.get(), message);
  while (copies_.count(message.request_id()) == 0) copied_.Wait(&mutex_);
  return copies_[message.request_id()];
}

absl::Status FakeDaemon::Begin(const google::protobuf::Message& request, const std::string& token) {
  Hook hook;
  {
    MutexLock lock(&mutex_);
    ++counts_[request.GetDescriptor()->name()];
    if (tokens_.count(token) == 0) return absl::UnauthenticatedError("unknown session");
    hook = hook_;
  }
  return hook ? hook(request) : absl::OkStatus();
}

FakeDaemon::Engine* FakeDaemon::FindEngine(uint64_t handle) {
  const auto found = engines_.find(handle);
  return found == engines_.end() ? nullptr : &found->second;
}

absl::Status FakeDaemon::Move(uint64_t engine_handle, const std::string& remote, v1::TransferOp op,
                              const v1::TransferBatch& batch) {
  MutexLock lock(&mutex_);
  Engine* local = FindEngine(engine_handle);
  if (local == nullptr || local->channels.count(remote) == 0) return NotConnected("no channel");
  Engine* peer = nullptr;
  for (auto& [handle, engine] : engines_) peer = engine.id == remote ? &engine : peer;
  if (peer == nullptr) return Failed("the peer is gone");
  for (int i = 0; i < batch.lengths_size(); ++i) {
    const uint64_t here = batch.local_addresses(i);
    const uint64_t there = batch.remote_addresses(i);
    const uint64_t length = batch.lengths(i);
    if (!Inside(local->regions, here, length) || !Inside(peer->regions, there, length)) {
      return ParamInvalid(absl::StrCat("piece ", i, " is not registered"));
    }
    const bool read = op == v1::TRANSFER_OP_READ;
    memcpy(reinterpret_cast<void*>(read ? here : there),
           reinterpret_cast<const void*>(read ? there : here), length);
  }
  return absl::OkStatus();
}

void FakeDaemon::SetHook(Hook hook) {
  MutexLock lock(&mutex_);
  hook_ = std::move(hook);
}

int FakeDaemon::Count(const std::string& request) const {
  MutexLock lock(&mutex_);
  const auto found = counts_.find(request);
  return found == counts_.end() ? 0 : found->second;
}

size_t FakeDaemon::sessions() const {
  MutexLock lock(&mutex_);
  return tokens_.size();
}

size_t FakeDaemon::engines() const {
  MutexLock lock(&mutex_);
  return engines_.size();
}

size_t FakeDaemon::regions() const { return registrations().size(); }

size_t FakeDaemon::channels() const {
  MutexLock lock(&mutex_);
  size_t count = 0;
  for (const auto& [handle, engine] : engines_) count += engine.channels.size();
  return count;
}

size_t FakeDaemon::buffers() const {
  MutexLock lock(&mutex_);
  return buffers_.size();
}

std::vector<v1::MemoryRegistration> FakeDaemon::registrations() const {
  MutexLock lock(&mutex_);
  std::vector<v1::MemoryRegistration> all;
  for (const auto& [handle, engine] : engines_) {
    for (const auto& [id, region] : engine.regions) all.push_back(region);
  }
  return all;
}

v1::OpenEngineRequest FakeDaemon::last_open() const {
  MutexLock lock(&mutex_);
  return last_open_;
}

uint64_t FakeDaemon::probed_sessions() const {
  MutexLock lock(&mutex_);
  return probed_sessions_;
}

}  // namespace hixld::testing
