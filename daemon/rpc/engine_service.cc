#include "daemon/rpc/engine_service.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "daemon/engine/engine_registry.h"
#include "daemon/rpc/call.h"
#include "daemon/rpc/convert.h"
#include "daemon/session/session.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/hixl/v1/engine.grpc.pb.h"

namespace hixld {
namespace {

namespace v1 = ::hixl::v1;

constexpr char kTokenKey[] = "hixl-session-bin";
constexpr size_t kMaxEngineIdBytes = 256;
constexpr int kMaxOptions = 64;
constexpr int kMaxEndpoints = 1024;
constexpr size_t kMaxProfileBytes = 256 * 1024;
constexpr int kMaxIdsPerCall = 65'536;

absl::Status BadField(absl::string_view field, absl::string_view value, absl::string_view allowed) {
  return ParamInvalid(absl::StrCat(field, " is ", value, "; allowed: ", allowed),
                      {.object = std::string(field), .allowed = std::string(allowed)});
}

absl::Status CheckEngineId(absl::string_view field, const std::string& id) {
  if (id.size() <= kMaxEngineIdBytes) return absl::OkStatus();
  return BadField(field, absl::StrCat(id.size(), " bytes long"),
                  absl::StrCat("up to ", kMaxEngineIdBytes, " bytes"));
}

absl::Status CheckCount(absl::string_view field, uint64_t count, uint64_t limit,
                        absl::string_view option) {
  if (count <= limit) return absl::OkStatus();
  return ResourceExhausted(absl::StrCat(field, " has ", count, " entries; limit ", limit,
                                        option.empty() ? "" : absl::StrCat(" (", option, ")")),
                           {.object = std::string(field),
                            .limit = absl::StrCat(limit, " entries"),
                            .option = std::string(option)});
}

absl::StatusOr<MemoryType> ToMemoryType(absl::string_view field, v1::MemoryType type) {
  if (type == v1::MEMORY_TYPE_DEVICE) return MemoryType::kDevice;
  if (type == v1::MEMORY_TYPE_HOST) return MemoryType::kHost;
  return BadField(field, absl::StrCat(static_cast<int>(type)),
                  "MEMORY_TYPE_DEVICE (1), MEMORY_TYPE_HOST (2)");
}

absl::StatusOr<CopyDirection> ToDirection(v1::TransferOp op) {
  if (op == v1::TRANSFER_OP_READ) return CopyDirection::kRead;
  if (op == v1::TRANSFER_OP_WRITE) return CopyDirection::kWrite;
  return BadField("op", absl::StrCat(static_cast<int>(op)),
                  "TRANSFER_OP_READ (1), TRANSFER_OP_WRITE (2)");
}

absl::Span<const uint64_t> SpanOf(const google::protobuf::RepeatedField<uint64_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

// The arguments that Transfer and SubmitTransfer share.
template <typename Request>
absl::StatusOr<TransferArgs> ToArgs(const Request& request, int32_t min_timeout_ms) {
  // First of all, as the contract orders it (1.3).
  if (request.timeout_ms() < min_timeout_ms) {
    return BadField("timeout_ms", absl::StrCat(request.timeout_ms()),
                    absl::StrCat(min_timeout_ms, "..2147483647"));
  }
  HIXLD_RETURN_IF_ERROR(CheckEngineId("remote_engine", request.remote_engine()));
  TransferArgs args;
  HIXLD_ASSIGN_OR_RETURN(args.direction, ToDirection(request.op()));
  args.remote_engine = request.remote_engine();
  args.batch = {.local = SpanOf(request.batch().local_addresses()),
                .remote = SpanOf(request.batch().remote_addresses()),
                .lengths = SpanOf(request.batch().lengths())};
  args.timeout_ns = request.timeout_ms() * kNanosPerMilli;
  return args;
}

// One registration, once its memory is known to the session.
absl::StatusOr<RegionTable::Request> ToRegion(Session& session, int index,
                                              const v1::MemoryRegistration& in) {
  const std::string field = absl::StrCat("registrations[", index, "]");
  RegionTable::Request out;
  out.address = in.address();
  out.length = in.length();
  if (in.address() == 0) {
    return ParamInvalid(absl::StrCat(field, ".address is null"), {.object = field});
  }
  if (in.address() + in.length() < in.address()) {
    return ParamInvalid(absl::StrCat(field, ": ", DescribeRange(in.address(), in.length()),
                                     " goes beyond the end of the address space"),
                        {.object = field});
  }
  if (in.length() == 0) return BadField(absl::StrCat(field, ".length"), "0", "1 or more");
  HIXLD_ASSIGN_OR_RETURN(out.type, ToMemoryType(absl::StrCat(field, ".type"), in.type()));
  absl::StatusOr<std::shared_ptr<MemoryAccess>> access;
  if (in.has_shared_memory()) {
    access = session.SharedMemoryAccess(in.shared_memory().handle(), in.shared_memory().offset(),
                                        in.length(), &out.access_offset);
  } else if (in.has_pool_memory()) {
    access = session.BufferAccess(in.pool_memory().buffer_id(), in.pool_memory().offset(),
                                  in.length(), &out.access_offset);
  } else {
    access = session.PlainMemoryAccess(in.address(), in.length());
  }
  if (!access.ok()) return Annotate(access.status(), field);
  out.access = std::move(*access);
  return out;
}

void ToProto(const TransferReport& report, v1::TransferStatusResult* out) {
  out->set_transfer_id(report.id);
  out->set_state(ToProto(report.state));
  out->set_user_data(report.user_data);
  if (report.status.ok()) return;
  out->set_message(std::string(report.status.message()));
  out->set_code(static_cast<uint32_t>(ApiCodeOf(report.status)));
}

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

class EngineService final : public v1::EngineService::CallbackService {
 public:
  EngineService(SessionRegistry* sessions, EngineRegistry* engines, EngineServiceLimits limits)
      : sessions_(sessions), engines_(engines), limits_(limits) {}

  Reactor* OpenEngine(Context* context, const v1::OpenEngineRequest* request,
                      v1::OpenEngineResponse* response) override {
    return WithSession(context, [&](std::shared_ptr<Session> session, CallReactor* call) {
      if (absl::Status bad = CheckOpen(*request); !bad.ok()) return call->Reply(bad);
      OpenEngineArgs args;
      args.local_engine = request->local_engine();
      args.options = {request->options().begin(), request->options().end()};
      args.listen_on_any_port = request->listen_on_any_port();
      args.device_id = request->device_id();
      args.profile = ToProfile(request->profile());
      engines_->Open(std::move(session), std::move(args),
                     [call, response](absl::StatusOr<std::shared_ptr<Engine>> engine) {
                       if (!engine.ok()) return call->Reply(engine.status());
                       const EngineDescription description = (*engine)->Describe();
                       response->set_engine_handle(description.identity.handle);
                       response->set_engine_id(description.identity.id);
                       response->set_listen_port(description.listen_port);
                       call->Reply(absl::OkStatus());
                     });
    });
  }

  Reactor* CloseEngine(Context* context, const v1::CloseEngineRequest* request,
                       v1::CloseEngineResponse*) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      engines_->Close(engine, "its client closed it", [call] { call->Reply(absl::OkStatus()); });
    });
  }

  Reactor* RegisterMemory(Context* context, const v1::RegisterMemoryRequest* request,
                          v1::RegisterMemoryResponse* response) override {
    return WithSession(context, [&](std::shared_ptr<Session> session, CallReactor* call) {
      auto engine = engines_->Find(session->id(), request->engine_handle());
      if (!engine.ok()) return call->Reply(engine.status());
      call->Reply(Register(*session, **engine, *request, response));
    });
  }

  Reactor* DeregisterMemory(Context* context, const v1::DeregisterMemoryRequest* request,
                            v1::DeregisterMemoryResponse* response) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      const absl::Status bad =
          CheckCount("region_ids", request->region_ids_size(), limits_.max_regions_per_session,
                     "limits.max_regions_per_session");
      if (!bad.ok()) return call->Reply(bad);
      engine->Deregister({request->region_ids().begin(), request->region_ids().end()},
                         [call, response](absl::StatusOr<uint32_t> unknown) {
                           if (!unknown.ok()) return call->Reply(unknown.status());
                           response->set_unknown_regions(*unknown);
                           call->Reply(absl::OkStatus());
                         });
    });
  }

  Reactor* AllocateBuffer(Context* context, const v1::AllocateBufferRequest* request,
                          v1::AllocateBufferResponse* response) override {
    return WithSession(context, [&](std::shared_ptr<Session> session, CallReactor* call) {
      Blocking(session, "allocate a buffer", call,
               [session, request, response] { return Allocate(*session, *request, response); });
    });
  }

  Reactor* FreeBuffer(Context* context, const v1::FreeBufferRequest* request,
                      v1::FreeBufferResponse*) override {
    return WithSession(context, [&](std::shared_ptr<Session> session, CallReactor* call) {
      Blocking(session, "free a buffer", call,
               [session, id = request->buffer_id()] { return session->FreeBuffer(id); });
    });
  }

  Reactor* Connect(Context* context, const v1::ConnectRequest* request,
                   v1::ConnectResponse* response) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      const absl::Status bad = CheckEngineId("remote_engine", request->remote_engine());
      if (!bad.ok()) return call->Reply(bad);
      engine->Connect(request->remote_engine(), request->timeout_ms(),
                      [call, response](absl::StatusOr<Engine::Connected> connected) {
                        if (!connected.ok()) return call->Reply(connected.status());
                        response->set_channel_id(connected->channel_id);
                        response->set_transport(connected->transport);
                        call->Reply(absl::OkStatus());
                      });
    });
  }

  Reactor* Disconnect(Context* context, const v1::DisconnectRequest* request,
                      v1::DisconnectResponse*) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      const absl::Status bad = CheckEngineId("remote_engine", request->remote_engine());
      if (!bad.ok()) return call->Reply(bad);
      engine->Disconnect(request->remote_engine(), request->timeout_ms(),
                         [call](const absl::Status& status) { call->Reply(status); });
    });
  }

  Reactor* Transfer(Context* context, const v1::TransferRequest* request,
                    v1::TransferResponse* response) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      auto args = ToArgs(*request, 1);
      if (!args.ok()) return call->Reply(args.status());
      args->may_relay = true;
      const std::shared_ptr<CancelHook> hook = call->cancel_hook();
      hook->Set(engine->TransferSync(std::move(*args), [call, response](const TransferEnd& end) {
        if (end.status.ok()) response->set_state(v1::TRANSFER_STATE_COMPLETED);
        response->set_bytes(end.bytes);
        call->Reply(end.status);
      }));
    });
  }

  Reactor* SubmitTransfer(Context* context, const v1::SubmitTransferRequest* request,
                          v1::SubmitTransferResponse* response) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      auto args = ToArgs(*request, 0);
      if (!args.ok()) return call->Reply(args.status());
      args->user_data = request->user_data();
      engine->TransferAsync(std::move(*args), [call, response](absl::StatusOr<uint64_t> id) {
        if (!id.ok()) return call->Reply(id.status());
        response->set_transfer_id(*id);
        call->Reply(absl::OkStatus());
      });
    });
  }

  Reactor* GetTransferStatus(Context* context, const v1::GetTransferStatusRequest* request,
                             v1::GetTransferStatusResponse* response) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      const absl::Status bad =
          CheckCount("transfer_ids", request->transfer_ids_size(), kMaxIdsPerCall, "");
      if (!bad.ok()) return call->Reply(bad);
      const std::vector<TransferReport> reports =
          request->transfer_ids().empty()
              ? engine->QueryAll(request->max_results(), request->skip_waiting())
              : engine->Query(SpanOf(request->transfer_ids()));
      for (const TransferReport& report : reports) ToProto(report, response->add_results());
      call->Reply(absl::OkStatus());
    });
  }

  Reactor* GetDevice(Context* context, const v1::GetDeviceRequest* request,
                     v1::GetDeviceResponse* response) override {
    return WithSession(context, [&](const std::shared_ptr<Session>&, CallReactor* call) {
      const int32_t device = request->device_id();
      if (device < 0) return call->Reply(BadField("device_id", absl::StrCat(device), "0 or more"));
      const Product product = engines_->ProductOf(device);
      response->set_product(product.name);
      response->set_product_form(std::string(ProductFormName(product.form)));
      response->set_product_limits(product.limits);
      for (const int32_t id : engines_->DeviceIds()) {
        response->add_devices(id);
        if (id == device) response->set_present(true);
      }
      call->Reply(absl::OkStatus());
    });
  }

  Reactor* SendNotify(Context* context, const v1::SendNotifyRequest* request,
                      v1::SendNotifyResponse*) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      const absl::Status bad = CheckEngineId("remote_engine", request->remote_engine());
      if (!bad.ok()) return call->Reply(bad);
      engine->SendNotify(
          request->remote_engine(), {.name = request->name(), .message = request->message()},
          request->timeout_ms(), [call](const absl::Status& status) { call->Reply(status); });
    });
  }

  Reactor* GetNotifies(Context* context, const v1::GetNotifiesRequest* request,
                       v1::GetNotifiesResponse* response) override {
    return WithEngine(context, request->engine_handle(), [&](auto engine, CallReactor* call) {
      NotifyQueue::Batch batch = engine->TakeNotifies(request->after_sequence());
      for (NotifyQueue::Entry& entry : batch.entries) {
        v1::ReceivedNotify* notify = response->add_notifies();
        notify->set_name(std::move(entry.notify.name));
        notify->set_message(std::move(entry.notify.message));
        notify->set_sender(std::move(entry.sender));
      }
      response->set_last_sequence(batch.last_sequence);
      response->set_more(batch.more);
      call->Reply(absl::OkStatus());
    });
  }

  Reactor* GetCapability(Context* context, const v1::GetCapabilityRequest* request,
                         v1::GetCapabilityResponse* response) override {
    return WithSession(context, [&](const std::shared_ptr<Session>&, CallReactor* call) {
      const int32_t feature = request->feature();
      if (feature < 0) return call->Reply(BadField("feature", absl::StrCat(feature), "0 or more"));
      // AUTO_CONNECT and CLIENT_SERVER_COMM (contract 1.3).
      response->set_value(feature <= 1 ? 1 : 0);
      call->Reply(absl::OkStatus());
    });
  }

 private:
  template <typename Call>
  Reactor* WithSession(Context* context, Call call) {
    auto* reactor = new CallReactor;
    const auto& metadata = context->client_metadata();
    const auto token = metadata.find(kTokenKey);
    auto session = sessions_->Find(
        token == metadata.end() ? absl::string_view()
                                : absl::string_view(token->second.data(), token->second.size()));
    if (session.ok()) {
      call(std::move(*session), reactor);
    } else {
      reactor->Reply(session.status());
    }
    return reactor;
  }

  template <typename Call>
  Reactor* WithEngine(Context* context, uint64_t handle, Call call) {
    return WithSession(context, [&](const std::shared_ptr<Session>& session, CallReactor* reactor) {
      auto engine = engines_->Find(session->id(), handle);
      if (!engine.ok()) return reactor->Reply(engine.status());
      call(std::move(*engine), reactor);
    });
  }

  // Answers with what `work` returns, on a thread that may wait for a device.
  template <typename Work>
  static void Blocking(const std::shared_ptr<Session>& session, std::string what, CallReactor* call,
                       Work work) {
    const absl::Status queued = session->RunBlocking(
        std::move(what), [call, work = std::move(work)]() mutable { call->Reply(work()); });
    if (!queued.ok()) call->Reply(queued);
  }

  static absl::Status CheckOpen(const v1::OpenEngineRequest& request) {
    HIXLD_RETURN_IF_ERROR(CheckEngineId("local_engine", request.local_engine()));
    HIXLD_RETURN_IF_ERROR(CheckCount("options", request.options().size(), kMaxOptions, ""));
    HIXLD_RETURN_IF_ERROR(CheckProfile(request.profile()));
    if (request.device_id() >= 0) return absl::OkStatus();
    return BadField("device_id", absl::StrCat(request.device_id()), "0 or more");
  }

  static absl::Status CheckProfile(const v1::EngineProfile& profile) {
    HIXLD_RETURN_IF_ERROR(
        CheckCount("profile.endpoints", profile.endpoints_size(), kMaxEndpoints, ""));
    HIXLD_RETURN_IF_ERROR(
        CheckCount("profile.effective", profile.effective_size(), kMaxOptions, ""));
    if (profile.ByteSizeLong() <= kMaxProfileBytes) return absl::OkStatus();
    return BadField("profile", absl::StrCat(profile.ByteSizeLong(), " bytes"),
                    absl::StrCat("up to ", kMaxProfileBytes, " bytes"));
  }

  static EngineProfile ToProfile(const v1::EngineProfile& in) {
    EngineProfile out;
    out.kind = EngineKindOf(in.engine_kind());
    out.endpoints = {in.endpoints().begin(), in.endpoints().end()};
    out.net_instance_id = in.net_instance_id();
    out.force_roce = in.force_roce();
    for (const v1::EffectiveOption& option : in.effective()) {
      out.effective.push_back(
          {.name = option.name(), .value = option.value(), .source = option.source()});
    }
    return out;
  }

  absl::Status Register(Session& session, Engine& engine, const v1::RegisterMemoryRequest& request,
                        v1::RegisterMemoryResponse* response) {
    if (request.registrations().empty()) {
      return BadField("registrations", "empty", "1 or more entries");
    }
    HIXLD_RETURN_IF_ERROR(CheckCount("registrations", request.registrations_size(),
                                     limits_.max_regions_per_call, "limits.max_regions_per_call"));
    std::vector<RegionTable::Request> regions;
    regions.reserve(request.registrations_size());
    for (int i = 0; i < request.registrations_size(); ++i) {
      HIXLD_ASSIGN_OR_RETURN(auto region, ToRegion(session, i, request.registrations(i)));
      regions.push_back(std::move(region));
    }
    const uint64_t others = engines_->RegionsOfSession(session.id(), &engine);
    HIXLD_ASSIGN_OR_RETURN(const auto registered, engine.Register(std::move(regions), others));
    for (const auto& region : registered) {
      response->add_region_ids(region->id);
      response->add_accesses(ToProto(region->access->kind()));
    }
    return absl::OkStatus();
  }

  static absl::Status Allocate(Session& session, const v1::AllocateBufferRequest& request,
                               v1::AllocateBufferResponse* response) {
    if (request.length() == 0) return BadField("length", "0", "1 or more");
    HIXLD_ASSIGN_OR_RETURN(const MemoryType type, ToMemoryType("type", request.type()));
    if ((request.alignment() & (request.alignment() - 1)) != 0) {
      return BadField("alignment", absl::StrCat(request.alignment()), "0 or a power of two");
    }
    HIXLD_ASSIGN_OR_RETURN(
        const Session::BufferGrant grant,
        session.AllocateBuffer(request.length(), type, request.alignment(), request.device_id()));
    response->set_buffer_id(grant.buffer_id);
    response->set_arena_id(grant.arena_id);
    response->set_arena_offset(grant.arena_offset);
    response->set_arena_size(grant.arena_size);
    response->set_mappable(grant.mappable);
    response->set_device_address(grant.device_address);
    response->set_length(grant.length);
    return absl::OkStatus();
  }

  SessionRegistry* const sessions_;
  EngineRegistry* const engines_;
  const EngineServiceLimits limits_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeEngineService(SessionRegistry* sessions, EngineRegistry* engines,
                                                 EngineServiceLimits limits) {
  return std::make_unique<EngineService>(sessions, engines, limits);
}

}  // namespace hixld
