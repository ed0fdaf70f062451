// Class Hixl: translates between the public types and the engine's.
#include "hixl/hixl.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/hixl_impl.h"
#include "client/cpp/last_error.h"
#include "proto/base/status.h"

namespace hixl {
namespace {

using hixld::client::BatchView;
using hixld::client::Engine;
using hixld::client::LinkState;
using hixld::client::MemoryRange;
using hixld::client::RecordError;
using hixld::client::RequestState;

std::string ToString(const AscendString& text) {
  return std::string(text.GetString(), text.GetLength());
}

BatchView ViewOf(const std::vector<TransferOpDesc>& descs) {
  static_assert(sizeof(uintptr_t) == sizeof(uint64_t) && sizeof(size_t) == sizeof(uint64_t));
  if (descs.empty()) return {};
  return {.local_addresses = reinterpret_cast<const uint64_t*>(&descs.front().local_addr),
          .remote_addresses = reinterpret_cast<const uint64_t*>(&descs.front().remote_addr),
          .lengths = reinterpret_cast<const uint64_t*>(&descs.front().len),
          .stride = sizeof(TransferOpDesc),
          .count = descs.size()};
}

uint64_t ToNumber(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
void* ToHandle(uint64_t number) { return reinterpret_cast<void*>(number); }

TransferStatus ToPublic(RequestState state) {
  switch (state) {
    case RequestState::kWaiting:
      return TransferStatus::WAITING;
    case RequestState::kCompleted:
      return TransferStatus::COMPLETED;
    case RequestState::kFailed:
      return TransferStatus::FAILED;
  }
  return TransferStatus::FAILED;
}

AsyncConnectStatus ToPublic(LinkState state) {
  switch (state) {
    case LinkState::kNotConnected:
      return AsyncConnectStatus::NOT_CONNECT;
    case LinkState::kConnectPending:
      return AsyncConnectStatus::CONNECT_PENDING;
    case LinkState::kConnecting:
      return AsyncConnectStatus::CONNECTING;
    case LinkState::kConnected:
      return AsyncConnectStatus::CONNECTED;
    case LinkState::kConnectFailed:
      return AsyncConnectStatus::CONNECT_FAILED;
    case LinkState::kDisconnectPending:
      return AsyncConnectStatus::DISCONNECT_PENDING;
    case LinkState::kDisconnecting:
      return AsyncConnectStatus::DISCONNECTING;
  }
  return AsyncConnectStatus::NOT_CONNECT;
}

// Runs `call(engine)` -> absl::Status on the live engine; the result is the public code.
template <typename Impl, typename Call>
Status WithEngine(const Impl& impl, Call call) {
  const auto engine = impl.Live();
  return RecordError(engine.ok() ? call(**engine) : engine.status());
}

}  // namespace

Hixl::Hixl() : impl_(std::make_unique<HixlImpl>()) {}

Hixl::~Hixl() { Finalize(); }

Status Hixl::Initialize(const AscendString& local_engine,
                        const std::map<AscendString, AscendString>& options) {
  return HixlExt::Initialize(*this, local_engine, options, {});
}

void Hixl::Finalize() {
  if (!impl_->inherited()) {
    impl_->Finalize();
    return;
  }
  // The parent's locks and threads must not be touched; what they belong to is left alone, and
  // this process may start afresh.
  (void)impl_.release();
  impl_ = std::make_unique<HixlImpl>();
}

Status Hixl::RegisterMem(const MemDesc& mem, MemType type, MemHandle& mem_handle) {
  return WithEngine(*impl_, [&](Engine& engine) -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckType(type));
    std::vector<uint64_t> handles;
    HIXLD_RETURN_IF_ERROR(engine.Register({{mem.addr, mem.len, KindOf(type)}}, &handles));
    mem_handle = ToHandle(handles.front());
    return absl::OkStatus();
  });
}

Status Hixl::DeregisterMem(MemHandle mem_handle) {
  return WithEngine(*impl_, [&](Engine& engine) -> absl::Status {
    if (mem_handle == nullptr) {
      return hixld::ParamInvalid("the memory handle is null", {.object = "memory handle"});
    }
    return engine.Deregister({ToNumber(mem_handle)});
  });
}

Status Hixl::Connect(const AscendString& remote_engine, int32_t timeout_in_millis) {
  return WithEngine(*impl_, [&](Engine& engine) {
    return engine.Connect(ToString(remote_engine), timeout_in_millis);
  });
}

Status Hixl::Disconnect(const AscendString& remote_engine, int32_t timeout_in_millis) {
  return WithEngine(*impl_, [&](Engine& engine) {
    return engine.Disconnect(ToString(remote_engine), timeout_in_millis);
  });
}

Status Hixl::ConnectAsync(const AscendString& remote_engine, int32_t timeout_in_millis) {
  return WithEngine(*impl_, [&](Engine& engine) {
    return engine.ConnectAsync(ToString(remote_engine), timeout_in_millis);
  });
}

Status Hixl::DisconnectAsync(const AscendString& remote_engine, int32_t timeout_in_millis) {
  return WithEngine(*impl_, [&](Engine& engine) {
    return engine.DisconnectAsync(ToString(remote_engine), timeout_in_millis);
  });
}

Status Hixl::GetAsyncConnectStatus(const AscendString& remote_engine, AsyncConnectStatus& status) {
  return WithEngine(*impl_, [&](Engine& engine) {
    status = ToPublic(engine.async_connects().State(ToString(remote_engine)));
    return absl::OkStatus();
  });
}

Status Hixl::GetAsyncConnectStatus(std::map<AscendString, AsyncConnectStatus>& statuses) {
  return WithEngine(*impl_, [&](Engine& engine) {
    statuses.clear();
    for (const auto& [peer, state] : engine.async_connects().States()) {
      statuses[AscendString(peer.c_str())] = ToPublic(state);
    }
    return absl::OkStatus();
  });
}

Status Hixl::TransferSync(const AscendString& remote_engine, TransferOp operation,
                          const std::vector<TransferOpDesc>& op_descs, int32_t timeout_in_millis) {
  return WithEngine(*impl_, [&](Engine& engine) -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckOp(operation));
    return engine.Transfer(ToString(remote_engine), DirectionOf(operation), ViewOf(op_descs),
                           timeout_in_millis);
  });
}

Status Hixl::TransferAsync(const AscendString& remote_engine, TransferOp operation,
                           const std::vector<TransferOpDesc>& op_descs,
                           const TransferArgs& optional_args, TransferReq& req) {
  return WithEngine(*impl_, [&](Engine& engine) -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckOp(operation));
    HIXLD_ASSIGN_OR_RETURN(const uint64_t request,
                           engine.Submit(ToString(remote_engine), DirectionOf(operation),
                                         ViewOf(op_descs), optional_args.user_data));
    req = ToHandle(request);
    return absl::OkStatus();
  });
}

Status Hixl::GetTransferStatus(const TransferReq& req, TransferStatus& status) {
  return WithEngine(*impl_, [&](Engine& engine) -> absl::Status {
    if (req == nullptr) {
      return hixld::Failed("the transfer request is null", {.object = "transfer request"});
    }
    std::string message;
    const absl::StatusOr<RequestState> state = engine.Query(ToNumber(req), &message);
    status = state.ok() ? ToPublic(*state) : TransferStatus::FAILED;
    // The call itself succeeds; why the transfer did not is left for LastError.
    if (state.ok() && *state == RequestState::kFailed) RecordError(hixld::Failed(message));
    return state.status();
  });
}

Status Hixl::GetTransferStatus(const GetTransferStatusArgs& args,
                               std::vector<TransferResult>& results) {
  return WithEngine(*impl_, [&](Engine& engine) -> absl::Status {
    results.clear();
    HIXLD_ASSIGN_OR_RETURN(const auto states, engine.QueryAll({.max_results = args.max_query_count,
                                                               .skip_waiting = args.skip_waiting}));
    results.reserve(states.size());
    for (const auto& state : states) {
      TransferResult result;
      result.req = ToHandle(state.request);
      result.user_data = state.user_data;
      result.status = ToPublic(state.state);
      results.push_back(result);
    }
    return absl::OkStatus();
  });
}

Status Hixl::SendNotify(const AscendString& remote_engine, const NotifyDesc& notify,
                        int32_t timeout_in_millis) {
  return WithEngine(*impl_, [&](Engine& engine) {
    return engine.SendNotify(ToString(remote_engine), ToString(notify.name),
                             ToString(notify.notify_msg), timeout_in_millis);
  });
}

Status Hixl::GetNotifies(std::vector<NotifyDesc>& notifies) {
  return WithEngine(*impl_, [&](Engine& engine) -> absl::Status {
    HIXLD_ASSIGN_OR_RETURN(const auto arrived, engine.GetNotifies());
    // Appended: programs collect in one vector what several calls bring.
    for (const auto& notify : arrived) {
      notifies.push_back({AscendString(notify.name.data(), notify.name.size()),
                          AscendString(notify.message.data(), notify.message.size())});
    }
    return absl::OkStatus();
  });
}

Status Hixl::GetCapability(FeatureType feature_type, int32_t& value) {
  if (static_cast<int32_t>(feature_type) < 0) {
    return RecordError(hixld::ParamInvalid(
        absl::StrCat("feature ", static_cast<int32_t>(feature_type)),
        {.object = "feature", .allowed = "AUTO_CONNECT (0), CLIENT_SERVER_COMM (1)"}));
  }
  const bool supported = feature_type == AUTO_CONNECT || feature_type == CLIENT_SERVER_COMM;
  value = supported ? FEATURE_SUPPORTED : FEATURE_NOT_SUPPORTED;
  return SUCCESS;
}

}  // namespace hixl
