#include "client/bench/grpc_echo.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/bench/echo.grpc.pb.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

constexpr int kMaxMessage = 64 << 20;

class EchoService final : public hixl::bench::Echo::Service {
  grpc::Status Call(grpc::ServerContext*, const hixl::bench::EchoMessage* request,
                    hixl::bench::EchoMessage* response) override {
    response->set_payload(request->payload());
    return grpc::Status::OK;
  }
};

class EchoMover : public Mover {
 public:
  EchoMover(const std::shared_ptr<grpc::Channel>& channel, uint64_t payload_bytes)
      : stub_(hixl::bench::Echo::NewStub(channel)) {
    request_.set_payload(std::string(payload_bytes, 'x'));
  }
  uint64_t count() const override { return 1; }
  uint64_t blocks(uint64_t) const override { return 1; }
  uint64_t bytes(uint64_t) const override { return request_.payload().size(); }
  absl::Status Move(uint64_t) override {
    grpc::ClientContext context;
    const grpc::Status status = stub_->Call(&context, request_, &response_);
    if (status.ok() && response_.payload().size() == request_.payload().size()) {
      return absl::OkStatus();
    }
    return Failed(absl::StrCat("gRPC echo: ", status.error_message()));
  }

 private:
  std::unique_ptr<hixl::bench::Echo::Stub> stub_;
  hixl::bench::EchoMessage request_;
  hixl::bench::EchoMessage response_;
};

}  // namespace

class GrpcEcho::State {
 public:
  ~State() {
    if (server_) server_->Shutdown();
    if (!path_.empty()) ::unlink(path_.c_str());
    if (!directory_.empty()) ::rmdir(directory_.c_str());
  }

  absl::Status Start() {
    char directory[] = "/tmp/hixl-bench-XXXXXX";
    if (::mkdtemp(directory) == nullptr) return ErrnoError(errno, "directory for gRPC's socket");
    directory_ = directory;
    path_ = absl::StrCat(directory_, "/echo.sock");
    const std::string address = absl::StrCat("unix:", path_);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMaxMessage);
    server_ = builder.BuildAndStart();
    if (!server_) return Failed(absl::StrCat("gRPC does not listen on ", address));
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxMessage);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    return absl::OkStatus();
  }

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::string directory_;
  std::string path_;
  EchoService service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

GrpcEcho::GrpcEcho(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrpcEcho::~GrpcEcho() = default;

absl::StatusOr<std::unique_ptr<GrpcEcho>> GrpcEcho::Create() {
  auto state = std::make_unique<State>();
  HIXLD_RETURN_IF_ERROR(state->Start());
  return std::unique_ptr<GrpcEcho>(new GrpcEcho(std::move(state)));
}

std::vector<std::unique_ptr<Mover>> GrpcEcho::Movers(uint64_t threads, uint64_t payload_bytes) {
  std::vector<std::unique_ptr<Mover>> movers;
  for (uint64_t i = 0; i < threads; ++i) {
    movers.push_back(std::make_unique<EchoMover>(state_->channel(), payload_bytes));
  }
  return movers;
}

}  // namespace hixld::bench
