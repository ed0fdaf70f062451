#include "daemon/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/resource_quota.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

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

  void Stop(int64_t grace_ns) override {
    if (server_ == nullptr) return;
    unlink(path_.c_str());
    server_->GetHealthCheckService()->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(grace_ns));
    server_->Wait();
    server_.reset();
  }

 private:
  const std::vector<std::unique_ptr<grpc::Service>> services_;
  const std::string path_;
  std::unique_ptr<grpc::Server> server_;
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
    RpcServerOptions options, std::vector<std::unique_ptr<grpc::Service>> services) {
  // The socket is bound under a private name inside a 0700 directory, given its mode and group,
  // and then renamed, so that no moment has a wider mode.
  std::string directory = absl::StrCat(options.path, ".XXXXXX");
  const std::string address_form = absl::StrCat(directory, "/s");
  if (address_form.size() >= sizeof(sockaddr_un::sun_path)) {
    return ParamInvalid(
        absl::StrCat("socket.path \"", options.path, "\" has ", options.path.size(), " bytes"),
        {.object = "socket.path",
         .allowed = absl::StrCat("up to ", sizeof(sockaddr_un::sun_path) - 10, " bytes")});
  }
  if (mkdtemp(directory.data()) == nullptr) {
    return ErrnoError(errno, absl::StrCat("create a directory beside ", options.path));
  }
  const std::string temporary = directory + "/s";
  absl::Cleanup remove = [&] {
    unlink(temporary.c_str());
    rmdir(directory.c_str());
  };
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Configure(options, &builder);
  builder.AddListeningPort(absl::StrCat("unix:", temporary), grpc::InsecureServerCredentials());
  for (const auto& service : services) builder.RegisterService(service.get());
  auto server = std::make_unique<RpcServerImpl>(std::move(services), options.path);
  std::unique_ptr<grpc::Server> started = builder.BuildAndStart();
  if (started == nullptr) {
    return Failed(absl::StrCat("cannot serve gRPC on ", options.path),
                  {.object = absl::StrCat("socket ", options.path)});
  }
  server->Attach(std::move(started));
  if (options.group != static_cast<gid_t>(-1) &&
      chown(temporary.c_str(), static_cast<uid_t>(-1), options.group) != 0) {
    return ErrnoError(errno, absl::StrCat("give ", options.path, " to group ", options.group),
                      {.object = options.path, .option = "socket.group"});
  }
  if (chmod(temporary.c_str(), options.mode) != 0) {
    return ErrnoError(errno, absl::StrCat("chmod ", options.path));
  }
  if (rename(temporary.c_str(), options.path.c_str()) != 0) {
    return ErrnoError(errno, absl::StrCat("rename to ", options.path));
  }
  return server;
}

}  // namespace hixld
