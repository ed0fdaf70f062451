#include "tests/client/hixlctl/fake_daemon.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <utility>

#include "proto/hixl/v1/admin.grpc.pb.h"

namespace hixld::testing {

using grpc::ServerContext;
using grpc::Status;
using namespace hixl::v1;  // NOLINT: every message of the service is named below

class FakeDaemon::Service : public AdminService::Service {
 public:
  explicit Service(Answers answers) : answers_(std::move(answers)) {}

  Status GetStatus(ServerContext*, const GetStatusRequest*, GetStatusResponse* out) override {
    *out = answers_.status;
    return Status::OK;
  }
  Status ListSessions(ServerContext*, const ListSessionsRequest*,
                      ListSessionsResponse* out) override {
    *out = answers_.sessions;
    return Status::OK;
  }
  Status ListEngines(ServerContext*, const ListEnginesRequest*, ListEnginesResponse* out) override {
    *out = answers_.engines;
    return Status::OK;
  }
  Status ListRegions(ServerContext*, const ListRegionsRequest* in,
                     ListRegionsResponse* out) override {
    {
      const std::lock_guard lock(mutex_);
      last_region_engine_ = in->engine_id();
    }
    if (!answers_.regions_error.empty()) {
      return Status(grpc::StatusCode::INVALID_ARGUMENT, answers_.regions_error);
    }
    *out = answers_.regions;
    return Status::OK;
  }
  Status ListLinks(ServerContext*, const ListLinksRequest*, ListLinksResponse* out) override {
    *out = answers_.links;
    return Status::OK;
  }
  Status ListTransfers(ServerContext*, const ListTransfersRequest*,
                       ListTransfersResponse* out) override {
    *out = answers_.transfers;
    return Status::OK;
  }
  Status ListDevices(ServerContext*, const ListDevicesRequest*, ListDevicesResponse* out) override {
    *out = answers_.devices;
    return Status::OK;
  }
  Status ListPools(ServerContext*, const ListPoolsRequest*, ListPoolsResponse* out) override {
    if (answers_.pools_hang) ended_.wait();
    *out = answers_.pools;
    return Status::OK;
  }

  void End() { end_.set_value(); }
  std::string last_region_engine() const {
    const std::lock_guard lock(mutex_);
    return last_region_engine_;
  }

 private:
  const Answers answers_;
  std::promise<void> end_;
  const std::shared_future<void> ended_ = end_.get_future().share();
  mutable std::mutex mutex_;  // guards last_region_engine_
  std::string last_region_engine_;
};

struct FakeDaemon::Server {
  std::unique_ptr<grpc::Server> grpc;
};

namespace {

// Short and open to other users, as a unix socket's path must be in some tests.
std::string NewDirectory() {
  char path[] = "/tmp/hixlctl-test-XXXXXX";
  if (mkdtemp(path) == nullptr) std::abort();
  std::filesystem::permissions(path, std::filesystem::perms(0755));
  return path;
}

}  // namespace

FakeDaemon::FakeDaemon(Answers answers)
    : directory_(NewDirectory()),
      socket_(directory_ + "/h.sock"),
      service_(std::make_unique<Service>(std::move(answers))),
      server_(std::make_unique<Server>()) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
  builder.RegisterService(service_.get());
  server_->grpc = builder.BuildAndStart();
  if (server_->grpc == nullptr) std::abort();
}

FakeDaemon::~FakeDaemon() {
  service_->End();
  server_->grpc->Shutdown();
  std::filesystem::remove_all(directory_);
}

void FakeDaemon::SetServing(bool serving) {
  server_->grpc->GetHealthCheckService()->SetServingStatus(serving);
}

std::string FakeDaemon::last_region_engine() const { return service_->last_region_engine(); }

}  // namespace hixld::testing
