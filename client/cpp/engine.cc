#include "client/cpp/engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/log.h"
#include "client/cpp/process.h"
#include "proto/base/clock.h"
#include "proto/base/endpoint.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

constexpr int64_t kControlTimeout = 30 * kNanosPerSecond;

void SetProfile(const EngineOptions& options, v1::EngineProfile* profile) {
  profile->set_engine_kind(EngineKindName(options.kind));
  for (const std::string& endpoint : options.endpoints) profile->add_endpoints(endpoint);
  profile->set_net_instance_id(options.net_instance_id);
  profile->set_force_roce(options.force_roce);
  for (const EffectiveOption& option : options.effective) {
    v1::EffectiveOption* shown = profile->add_effective();
    shown->set_name(option.name);
    shown->set_value(option.value);
    shown->set_source(option.source);
  }
}

}  // namespace

absl::StatusOr<DeviceFacts> Engine::FactsOf(Connection& connection, int32_t device_id) {
  absl::Status status;
  for (int attempt = 0; attempt < 2; ++attempt) {
    HIXLD_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                           connection.Acquire(Connection::Start::kAllowed));
    v1::GetDeviceRequest request;
    request.set_device_id(device_id);
    v1::GetDeviceResponse response;
    status = session->rpc().GetDevice(request, &response, MonotonicNanos() + kControlTimeout);
    if (status.ok()) {
      // A daemon of an earlier release tells by the product alone.
      const bool named = !response.product().empty() && response.product() != "host";
      return DeviceFacts{.product = response.product(),
                         .present = response.present() || named,
                         .devices = {response.devices().begin(), response.devices().end()}};
    }
    if (!IsSessionLost(status)) break;
    session->MarkLost(std::string(status.message()));
  }
  if (IsSessionLost(status)) return status;
  // A daemon of an earlier release does not tell.
  Log(LogLevel::kInfo, absl::StrCat("product of device ", device_id, ": ", status.message()));
  return DeviceFacts{.present = true};
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::Open(EngineConfig config) {
  HIXLD_RETURN_IF_ERROR(ParseEndpoint(config.local_engine).status());
  std::shared_ptr<Engine> engine =
      OwnedByProcess(std::unique_ptr<Engine>(new Engine(std::move(config))));
  HIXLD_RETURN_IF_ERROR(engine->Idempotent([](const Attachment&) { return absl::OkStatus(); }));
  engine->connection_->Enroll(engine.get());
  return engine;
}

Engine::Engine(EngineConfig config)
    : config_(std::move(config)),
      connection_(Connection::Get(config_.daemon)),
      direct_(config_.options.direct),
      async_connects_(std::make_unique<AsyncConnectPool>(
          config_.options.connect_threads, config_.options.connect_queue_capacity,
          [this](const std::string& remote, int32_t timeout_ms) {
            return Connect(remote, timeout_ms);
          },
          [this](const std::string& remote, int32_t timeout_ms) {
            return Disconnect(remote, timeout_ms);
          })) {}

Engine::~Engine() {
  async_connects_.reset();
  connection_->Withdraw(this);
  std::vector<Request> outstanding;
  {
    MutexLock lock(&mutex_);
    outstanding = requests_.DropAll();
  }
  Forget(outstanding);
  const Attachment live = Current();
  if (!live.alive()) return;
  v1::CloseEngineRequest request;
  request.set_engine_handle(live.handle);
  v1::CloseEngineResponse response;
  const absl::Status closed =
      live.session->rpc().CloseEngine(request, &response, MonotonicNanos() + kControlTimeout);
  if (!closed.ok() && !IsSessionLost(closed)) {
    Log(LogLevel::kWarning, absl::StrCat("close engine ", id(), ": ", closed.message()));
  }
}

std::string Engine::id() const {
  MutexLock lock(&attach_mutex_);
  return id_;
}

Engine::Attachment Engine::Current() const {
  MutexLock lock(&attach_mutex_);
  return attachment_;
}

absl::StatusOr<Engine::Attachment> Engine::Attach(Connection::Start start) {
  MutexLock lock(&attach_mutex_);
  if (attachment_.alive()) return attachment_;
  HIXLD_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, connection_->Acquire(start));
  if (attachment_.session != nullptr) {
    Log(LogLevel::kWarning,
        absl::StrCat("engine ", id_, " is opened again: ", attachment_.session->lost_reason()));
  }
  HIXLD_ASSIGN_OR_RETURN(attachment_, OpenIn(std::move(session)));
  return attachment_;
}

// Opens the engine in a session and gives the daemon everything that an earlier one had.
absl::StatusOr<Engine::Attachment> Engine::OpenIn(std::shared_ptr<Session> session) {
  Attachment live;
  live.session = std::move(session);
  live.submitter = MakeRingSubmitter(live.session, MakeGrpcSubmitter(live.session));

  v1::OpenEngineRequest request;
  // A port that was found is kept: peers know it.
  const bool found_port = config_.listen_on_any_port && !id_.empty();
  request.set_local_engine(found_port ? id_ : config_.local_engine);
  request.set_listen_on_any_port(config_.listen_on_any_port && !found_port);
  request.mutable_options()->insert(config_.options.for_daemon.begin(),
                                    config_.options.for_daemon.end());
  request.set_device_id(config_.device_id);
  SetProfile(config_.options, request.mutable_profile());
  v1::OpenEngineResponse response;
  HIXLD_RETURN_IF_ERROR(Noted(live, live.session->rpc().OpenEngine(
                                        request, &response, MonotonicNanos() + kControlTimeout)));
  live.handle = response.engine_handle();
  direct_.DropAll();
  id_ = response.engine_id();
  HIXLD_RETURN_IF_ERROR(Noted(live, RegisterAgain(live)));
  return live;
}

absl::Status Engine::Noted(const Attachment& live, absl::Status status) {
  if (IsSessionLost(status)) live.session->MarkLost(std::string(status.message()));
  return status;
}

absl::Status Engine::Idempotent(const std::function<absl::Status(const Attachment&)>& call) {
  absl::Status status;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::StatusOr<Attachment> live = Attach();
    status = live.ok() ? Noted(*live, call(*live)) : live.status();
    if (!IsSessionLost(status)) break;
  }
  return status;
}

bool Engine::Recover() {
  const absl::StatusOr<Attachment> live = Attach(Connection::Start::kForbidden);
  if (!live.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("engine ", id(), " is not back: ", live.status().message()));
  }
  return live.ok();
}

}  // namespace hixld::client
