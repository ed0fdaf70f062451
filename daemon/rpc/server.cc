#include "daemon/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"
#include "proto/base/no_descriptors.h"
#include "proto/base/status.h"
#include "proto/base/unix_socket.h"
#include "transports/loop/acceptor.h"

namespace hixld {
namespace {

// Calls on one connection at a time: more wait in the transport, so that one client cannot make
// the daemon hold any number of requests.
constexpr int kMaxCallsPerConnection = 1024;

class RpcServerImpl final : public RpcServer {
 public:
  RpcServerImpl(std::vector<std::unique_ptr<grpc::Service>> services, std::string path)
      : services_(std::move(services)), path_(std::move(path)) {}
  ~RpcServerImpl() override { Stop(0); }

  void Attach(std::unique_ptr<grpc::Server> server) {
    server_ = std::move(server);
    server_->GetHealthCheckService()->SetServingStatus(true);
  }
  void Accept(Loop* loop, UniqueFd listener) {
    Acceptor::Callbacks callbacks;
    callbacks.take = [server = server_.get()](UniqueFd socket) {
      grpc::AddInsecureChannelFromFd(server, socket.release());
    };
    callbacks.refuse = [limiter = std::make_unique<LogLimiter>(kNanosPerSecond)](const UniqueFd&) {
      uint64_t suppressed = 0;
      if (!limiter->Allow(MonotonicNanos(), &suppressed)) return;
      LogWarn("a gRPC connection is refused",
              {{"reason", NoDescriptors("hixld cannot serve another connection")},
               {"not_logged", suppressed}});
    };
    callbacks.fail = [](const absl::Status& error) {
      LogError("cannot accept gRPC connections", {{"error", error}});
    };
    acceptor_ = std::make_unique<Acceptor>(
        loop, std::move(listener), Acceptor::Options{.keep_reserve = true}, std::move(callbacks));
  }

  void Stop(int64_t grace_ns) override {
    if (server_ == nullptr) return;
    // Only what was published: when the path was refused, something of somebody else's is there.
    if (acceptor_ != nullptr) unlink(path_.c_str());
    acceptor_.reset();
    server_->GetHealthCheckService()->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(grace_ns));
    server_->Wait();
    server_.reset();
  }

 private:
  const std::vector<std::unique_ptr<grpc::Service>> services_;
  const std::string path_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;
};

void Configure(const RpcServerOptions& options, grpc::ServerBuilder* builder) {
  const int limit = static_cast<int>(options.max_message_bytes);
  builder->SetMaxReceiveMessageSize(limit);
  builder->SetMaxSendMessageSize(limit);
  grpc::ResourceQuota quota("hixld");
  quota.Resize(options.max_memory_bytes);
  builder->SetResourceQuota(quota);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Only reflection is served by threads of the server's own.
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    Loop* loop, RpcServerOptions options, std::vector<std::unique_ptr<grpc::Service>> services) {
  constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - sizeof(".XXXXXX/s");
  if (options.path.size() > kMaxPathBytes) {
    return ParamInvalid(
        absl::StrCat("socket.path \"", options.path, "\" has ", options.path.size(), " bytes"),
        {.object = "socket.path", .allowed = absl::StrCat("up to ", kMaxPathBytes, " bytes")});
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Configure(options, &builder);
  for (const auto& service : services) builder.RegisterService(service.get());
  auto server = std::make_unique<RpcServerImpl>(std::move(services), options.path);
  std::unique_ptr<grpc::Server> started = builder.BuildAndStart();
  if (started == nullptr) {
    return Failed(absl::StrCat("cannot serve gRPC on ", options.path),
                  {.object = absl::StrCat("socket ", options.path)});
  }
  server->Attach(std::move(started));
  HIXLD_ASSIGN_OR_RETURN(UniqueFd listener,
                         ListenUnixSocket(options.path, SOCK_STREAM, options.mode, options.group));
  server->Accept(loop, std::move(listener));
  return server;
}

}  // namespace hixld
