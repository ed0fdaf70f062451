#include "client/cpp/rpc.h"

#include <grpcpp/grpcpp.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/no_descriptors.h"
#include "proto/base/rpc_status.h"
#include "proto/base/status.h"
#include "proto/hixl/v1/engine.grpc.pb.h"

namespace hixld::client {
namespace {

constexpr char kTokenKey[] = "hixl-session-bin";
constexpr char kLostUrl[] = "hixld.client/session-lost";

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  // A new session must not inherit the reconnect back-off of an old one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket),
                                   grpc::InsecureChannelCredentials(), arguments);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  // gRPC tells why it could not connect in words only.
  if (code == absl::StatusCode::kUnavailable &&
      absl::StrContains(status.error_message(), strerror(EMFILE))) {
    return NoDescriptors("no connection to hixld can be made");
  }
  // Whatever it says: the daemon is gone, going, or does not know the session.
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kUnauthenticated ||
      code == absl::StatusCode::kCancelled) {
    return SessionLost(status.error_message());
  }
  if (!status.error_details().empty()) {
    return StatusFromRpcDetails(status.error_message(), status.error_details(), code);
  }
  if (code == absl::StatusCode::kDeadlineExceeded) {
    return Timeout("hixld did not answer in time", {.object = "hixld"});
  }
  if (code == absl::StatusCode::kUnimplemented) {
    return Failed(absl::StrCat("hixld does not offer this call: ", status.error_message()),
                  {.object = "hixld"});
  }
  return absl::Status(code, status.error_message());
}

class GrpcRpc : public Rpc {
 public:
  GrpcRpc(const std::string& socket, std::string token)
      : token_(std::move(token)), stub_(v1::EngineService::NewStub(MakeChannel(socket))) {}

#define HIXLD_CLIENT_CALL(name)                                                     \
  absl::Status name(const v1::name##Request& request, v1::name##Response* response, \
                    int64_t deadline) override {                                    \
    return Call(&v1::EngineService::Stub::name, request, response, deadline);       \
  }
  HIXLD_CLIENT_CALL(OpenEngine)
  HIXLD_CLIENT_CALL(CloseEngine)
  HIXLD_CLIENT_CALL(RegisterMemory)
  HIXLD_CLIENT_CALL(DeregisterMemory)
  HIXLD_CLIENT_CALL(AllocateBuffer)
  HIXLD_CLIENT_CALL(FreeBuffer)
  HIXLD_CLIENT_CALL(Connect)
  HIXLD_CLIENT_CALL(Disconnect)
  HIXLD_CLIENT_CALL(Transfer)
  HIXLD_CLIENT_CALL(SubmitTransfer)
  HIXLD_CLIENT_CALL(GetTransferStatus)
  HIXLD_CLIENT_CALL(GetDevice)
  HIXLD_CLIENT_CALL(SendNotify)
  HIXLD_CLIENT_CALL(GetNotifies)
#undef HIXLD_CLIENT_CALL

  void Close() override {
    MutexLock lock(&mutex_);
    closed_ = true;
    for (grpc::ClientContext* call : calls_) call->TryCancel();
  }

 private:
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response, int64_t deadline) {
    const size_t bytes = request.ByteSizeLong();
    if (bytes > kMaxMessageBytes) {
      return ResourceExhausted(absl::StrCat("a request of ", bytes, " bytes is too large"),
                               {.object = "request",
                                .limit = absl::StrCat(kMaxMessageBytes, " bytes a request"),
                                .allowed = absl::StrCat("up to ", kMaxMessageBytes, " bytes")});
    }
    grpc::ClientContext context;
    context.AddMetadata(kTokenKey, token_);
    if (deadline != kNoDeadline) {
      const int64_t left = std::max<int64_t>(deadline - MonotonicNanos(), 0);
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(left));
    }
    {
      MutexLock lock(&mutex_);
      if (closed_) return SessionLost("the session is closed");
      calls_.insert(&context);
    }
    const grpc::Status status = (stub_.get()->*method)(&context, request, response);
    MutexLock lock(&mutex_);
    calls_.erase(&context);
    return FromGrpc(status);
  }

  const std::string token_;
  const std::unique_ptr<v1::EngineService::Stub> stub_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Rpc> Rpc::Create(const std::string& socket, const std::string& session_token) {
  return std::make_unique<GrpcRpc>(socket, session_token);
}

bool IsSessionLost(const absl::Status& status) { return status.GetPayload(kLostUrl).has_value(); }

absl::Status SessionLost(absl::string_view reason) {
  absl::Status status =
      Failed(absl::StrCat("the connection to hixld is lost: ", reason), {.object = "hixld"});
  status.SetPayload(kLostUrl, absl::Cord(""));
  return status;
}

}  // namespace hixld::client
