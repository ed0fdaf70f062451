// The gRPC services over a real unix socket, with real engines behind them.
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/engine_service.h"
#include "daemon/rpc/server.h"
#include "proto/base/rpc_status.h"
#include "proto/health/v1/health.grpc.pb.h"
#include "proto/hixl/v1/admin.grpc.pb.h"
#include "proto/hixl/v1/engine.grpc.pb.h"
#include "tests/daemon/engine/fakes.h"
#include "tests/test_directory.h"

namespace hixld {
namespace {

namespace v1 = ::hixl::v1;
using Catch::Contains;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr char kOtherToken[] = "fedcba9876543210fedcba9876543210";

class TwoSessions : public SessionRegistry {
 public:
  absl::StatusOr<std::shared_ptr<Session>> Find(absl::string_view token) override {
    if (token == kToken) return first_;
    if (token == kOtherToken) return second_;
    return absl::UnauthenticatedError("no session has this token");
  }
  std::vector<SessionDescription> List() const override {
    return {first_->Describe(), second_->Describe()};
  }
  size_t size() const override { return 2; }

 private:
  const std::shared_ptr<Session> first_ = std::make_shared<FakeSession>(1);
  const std::shared_ptr<Session> second_ = std::make_shared<FakeSession>(2);
};

class Served {
 public:
  explicit Served(mode_t mode = 0600, uint64_t max_message_bytes = 1 << 20) {
    std::vector<std::unique_ptr<grpc::Service>> services;
    services.push_back(MakeEngineService(&sessions_, &room_.registry(), {}));
    AdminSources sources;
    sources.version = "test";
    sources.sessions = &sessions_;
    sources.engines = &room_.registry();
    sources.links = &room_.links();
    sources.transfers = &room_.log();
    sources.devices = [] { return std::vector<DeviceDescription>(); };
    sources.pools = [] { return std::vector<PoolDescription>{{.name = "host"}}; };
    sources.huge_page_fallbacks = [] { return 0; };
    services.push_back(MakeAdminService(std::move(sources)));
    auto server = RpcServer::Start(
        loop_.get(), {.path = path_, .mode = mode, .max_message_bytes = max_message_bytes},
        std::move(services));
    REQUIRE(server.ok());
    server_ = std::move(*server);
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    channel_ =
        grpc::CreateCustomChannel("unix:" + path_, grpc::InsecureChannelCredentials(), arguments);
    engine_ = v1::EngineService::NewStub(channel_);
    admin_ = v1::AdminService::NewStub(channel_);
  }
  ~Served() { server_.reset(); }

  // Calls a method of EngineService with a session's token.
  template <typename Response, typename Request>
  grpc::Status Call(grpc::Status (v1::EngineService::Stub::*method)(grpc::ClientContext*,
                                                                    const Request&, Response*),
                    const Request& request, Response* response, const char* token = kToken) {
    grpc::ClientContext context;
    if (token != nullptr) context.AddMetadata("hixl-session-bin", token);
    return (engine_.get()->*method)(&context, request, response);
  }

  uint64_t OpenEngine(const std::string& id, const char* token = kToken) {
    v1::OpenEngineRequest request;
    v1::OpenEngineResponse response;
    request.set_local_engine(id);
    const grpc::Status status =
        Call(&v1::EngineService::Stub::OpenEngine, request, &response, token);
    REQUIRE(status.ok());
    CHECK(response.engine_id() == id);
    return response.engine_handle();
  }

  const std::string& path() const { return path_; }
  const std::string& directory() const { return directory_.path(); }
  EngineRoom& room() { return room_; }
  std::shared_ptr<grpc::Channel> channel() { return channel_; }
  v1::AdminService::Stub& admin() { return *admin_; }
  RpcServer& server() { return *server_; }

 private:
  EngineRoom room_;
  TwoSessions sessions_;
  const testing::TestDirectory directory_;
  const std::string path_ = directory_.socket();
  const std::unique_ptr<Loop> loop_ = *Loop::Start({.name = "test-accept"});
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::EngineService::Stub> engine_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

absl::Status FromGrpc(const grpc::Status& status) {
  return StatusFromRpcDetails(status.error_message(), status.error_details(),
                              static_cast<absl::StatusCode>(status.error_code()));
}

using Stub = v1::EngineService::Stub;

TEST_CASE("the socket has its mode whatever the umask, and nothing else is left") {
  for (const mode_t mask : {0, 077}) {
    const mode_t before = umask(mask);
    Served served(0620);
    umask(before);
    struct stat info = {};
    REQUIRE(stat(served.path().c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0620);
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(served.directory())) {
      CHECK(entry.path() == served.path());
      ++files;
    }
    CHECK(files == 1);
    served.server().Stop(0);
    CHECK_FALSE(std::filesystem::exists(served.path()));
  }
}

TEST_CASE("what is no socket is refused and left as it is") {
  const testing::TestDirectory directory;
  const std::string path = directory.path() + "/file";
  std::ofstream(path) << "precious";
  auto loop = Loop::Start({.name = "accept"});
  REQUIRE(loop.ok());
  const auto server = RpcServer::Start(loop->get(), {.path = path}, {});
  CHECK(ApiCodeOf(server.status()) == ApiCode::kParamInvalid);
  CHECK_THAT(std::string(server.status().message()), Contains(path));
  std::string text;
  std::getline(std::ifstream(path), text);
  CHECK(text == "precious");
}

TEST_CASE("a path that is too long is refused by name") {
  const auto server = RpcServer::Start(nullptr, {.path = "/tmp/" + std::string(120, 'x')}, {});
  CHECK(ApiCodeOf(server.status()) == ApiCode::kParamInvalid);
  CHECK_THAT(std::string(server.status().message()), Contains("socket.path"));
}

TEST_CASE("health says SERVING") {
  Served served;
  const auto stub = grpc::health::v1::Health::NewStub(served.channel());
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  REQUIRE(stub->Check(&context, grpc::health::v1::HealthCheckRequest(), &response).ok());
  CHECK(response.status() == grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST_CASE("calls without a token, or with a wrong one, are UNAUTHENTICATED") {
  Served served;
  v1::OpenEngineRequest request;
  v1::OpenEngineResponse response;
  request.set_local_engine("127.0.0.1");
  for (const char* token : {static_cast<const char*>(nullptr), "", "short"}) {
    CHECK(served.Call(&Stub::OpenEngine, request, &response, token).error_code() ==
          grpc::StatusCode::UNAUTHENTICATED);
  }
}

TEST_CASE("a session's engine is unknown to others") {
  Served served;
  const uint64_t handle = served.OpenEngine("127.0.0.1");
  v1::CloseEngineRequest request;
  v1::CloseEngineResponse response;
  request.set_engine_handle(handle);
  CHECK(ApiCodeOf(FromGrpc(served.Call(&Stub::CloseEngine, request, &response, kOtherToken))) ==
        ApiCode::kFailed);
  CHECK(served.Call(&Stub::CloseEngine, request, &response).ok());
  CHECK_FALSE(served.Call(&Stub::CloseEngine, request, &response).ok());
}

TEST_CASE("memory is registered, connected and moved") {
  Served served;
  const uint64_t reader = served.OpenEngine("127.0.0.1");
  const uint64_t owner = served.OpenEngine("127.0.0.1:26000", kOtherToken);
  const auto register_one = [&](uint64_t engine, uint64_t address, const char* token) {
    v1::RegisterMemoryRequest request;
    v1::RegisterMemoryResponse response;
    request.set_engine_handle(engine);
    auto* registration = request.add_registrations();
    registration->set_address(address);
    registration->set_length(4096);
    registration->set_type(v1::MEMORY_TYPE_HOST);
    REQUIRE(served.Call(&Stub::RegisterMemory, request, &response, token).ok());
    REQUIRE(response.region_ids_size() == 1);
    CHECK(response.accesses(0) == v1::MEMORY_ACCESS_MAPPED);
    return response.region_ids(0);
  };
  const uint64_t region = register_one(reader, 0x10000, kToken);
  CHECK(register_one(reader, 0x10000, kToken) == region);
  register_one(owner, 0x20000, kOtherToken);

  v1::ConnectRequest connect;
  v1::ConnectResponse connected;
  connect.set_engine_handle(reader);
  connect.set_remote_engine("127.0.0.1:26000");
  connect.set_timeout_ms(1000);
  REQUIRE(served.Call(&Stub::Connect, connect, &connected).ok());
  CHECK(connected.transport() == "local");
  CHECK(ApiCodeOf(FromGrpc(served.Call(&Stub::Connect, connect, &connected))) ==
        ApiCode::kAlreadyConnected);

  v1::TransferRequest transfer;
  v1::TransferResponse transferred;
  transfer.set_engine_handle(reader);
  transfer.set_remote_engine("127.0.0.1:26000");
  transfer.set_op(v1::TRANSFER_OP_READ);
  transfer.set_timeout_ms(1000);
  transfer.mutable_batch()->add_local_addresses(0x10000);
  transfer.mutable_batch()->add_remote_addresses(0x20000);
  transfer.mutable_batch()->add_lengths(4096);
  REQUIRE(served.Call(&Stub::Transfer, transfer, &transferred).ok());
  CHECK(transferred.state() == v1::TRANSFER_STATE_COMPLETED);
  CHECK(transferred.bytes() == 4096);

  v1::SubmitTransferRequest submit;
  v1::SubmitTransferResponse submitted;
  submit.set_engine_handle(reader);
  submit.set_remote_engine("127.0.0.1:26000");
  submit.set_op(v1::TRANSFER_OP_WRITE);
  submit.set_user_data(9);
  *submit.mutable_batch() = transfer.batch();
  REQUIRE(served.Call(&Stub::SubmitTransfer, submit, &submitted).ok());
  v1::GetTransferStatusRequest ask;
  v1::GetTransferStatusResponse answer;
  ask.set_engine_handle(reader);
  ask.add_transfer_ids(submitted.transfer_id());
  ask.add_transfer_ids(12345);
  REQUIRE(served.Call(&Stub::GetTransferStatus, ask, &answer).ok());
  REQUIRE(answer.results_size() == 2);
  CHECK(answer.results(0).state() == v1::TRANSFER_STATE_COMPLETED);
  CHECK(answer.results(0).user_data() == 9);
  CHECK(answer.results(1).state() == v1::TRANSFER_STATE_FAILED);
  CHECK(answer.results(1).code() == 103900);

  v1::ListEnginesResponse engines;
  grpc::ClientContext context;
  REQUIRE(served.admin().ListEngines(&context, v1::ListEnginesRequest(), &engines).ok());
  REQUIRE(engines.engines_size() == 2);
  CHECK(engines.engines(0).transfers_completed() == 2);
  REQUIRE(engines.engines(1).channels_size() == 1);
  CHECK_FALSE(engines.engines(1).channels(0).initiator());
  CHECK(engines.engines(1).channels(0).remote_engine() == "127.0.0.1");
}

// What a bad field is answered with: PARAM_INVALID that names it.
template <typename Response, typename Request>
void Refused(Served& served,
             grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
             const Request& request, const std::string& field) {
  Response response;
  const absl::Status status = FromGrpc(served.Call(method, request, &response));
  CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
  CHECK_THAT(std::string(status.message()), Contains(field));
}

TEST_CASE("bad fields are refused by name") {
  Served served;
  const uint64_t engine = served.OpenEngine("127.0.0.1");
  v1::OpenEngineRequest open;
  open.set_local_engine(std::string(1000, '1'));
  Refused(served, &Stub::OpenEngine, open, "local_engine");
  open.set_local_engine("127.0.0.1");
  open.set_device_id(-1);
  Refused(served, &Stub::OpenEngine, open, "device_id");

  v1::RegisterMemoryRequest registering;
  registering.set_engine_handle(engine);
  Refused(served, &Stub::RegisterMemory, registering, "registrations");
  auto* registration = registering.add_registrations();
  Refused(served, &Stub::RegisterMemory, registering, "registrations[0].address");
  registration->set_address(~uint64_t{0});
  registration->set_length(2);
  Refused(served, &Stub::RegisterMemory, registering, "registrations[0]");
  registration->set_address(1);
  registration->set_length(0);
  Refused(served, &Stub::RegisterMemory, registering, "registrations[0].length");
  registration->set_length(1);
  Refused(served, &Stub::RegisterMemory, registering, "registrations[0].type");
  registration->set_type(static_cast<v1::MemoryType>(77));
  Refused(served, &Stub::RegisterMemory, registering, "77");

  v1::AllocateBufferRequest allocate;
  Refused(served, &Stub::AllocateBuffer, allocate, "length");
  allocate.set_length(1);
  Refused(served, &Stub::AllocateBuffer, allocate, "type");
  allocate.set_type(v1::MEMORY_TYPE_HOST);
  allocate.set_alignment(3);
  Refused(served, &Stub::AllocateBuffer, allocate, "alignment");

  v1::ConnectRequest connect;
  connect.set_engine_handle(engine);
  connect.set_remote_engine("127.0.0.1:1");
  Refused(served, &Stub::Connect, connect, "timeout_ms");
  connect.set_timeout_ms(1);
  connect.set_remote_engine("nonsense");
  Refused(served, &Stub::Connect, connect, "nonsense");

  v1::TransferRequest transfer;
  transfer.set_engine_handle(engine);
  Refused(served, &Stub::Transfer, transfer, "timeout_ms");
  transfer.set_timeout_ms(1);
  Refused(served, &Stub::Transfer, transfer, "op");
  transfer.set_op(v1::TRANSFER_OP_READ);
  transfer.mutable_batch()->add_lengths(1);
  Refused(served, &Stub::Transfer, transfer, "batch");

  v1::GetCapabilityRequest capability;
  capability.set_feature(-1);
  Refused(served, &Stub::GetCapability, capability, "feature");
}

TEST_CASE("capabilities are those of the contract") {
  Served served;
  v1::GetCapabilityRequest request;
  v1::GetCapabilityResponse response;
  for (const auto& [feature, value] : {std::pair(0, 1), {1, 1}, {2, 0}, {1000, 0}}) {
    request.set_feature(feature);
    REQUIRE(served.Call(&Stub::GetCapability, request, &response).ok());
    CHECK(response.value() == value);
  }
}

TEST_CASE("a message beyond the limit is refused and the server goes on") {
  Served served(0600, 64 << 10);
  v1::OpenEngineRequest request;
  v1::OpenEngineResponse response;
  request.set_local_engine(std::string(100 << 10, 'x'));
  CHECK(served.Call(&Stub::OpenEngine, request, &response).error_code() ==
        grpc::StatusCode::RESOURCE_EXHAUSTED);
  served.OpenEngine("127.0.0.1");
}

TEST_CASE("a caller that cancels has its transfer cancelled") {
  Served served;
  served.room().sink().Hold();
  const auto client = served.room().Open("127.0.0.1", 1);
  const auto server = served.room().Open("127.0.0.1:26000", 2);
  AddRegion(*client, 0x10000, 0x100);
  AddRegion(*server, 0x20000, 0x100);
  REQUIRE(Connect(*client, "127.0.0.1:26000").ok());
  v1::TransferRequest request;
  request.set_engine_handle(client->identity().handle);
  request.set_remote_engine("127.0.0.1:26000");
  request.set_op(v1::TRANSFER_OP_READ);
  request.set_timeout_ms(60'000);
  request.mutable_batch()->add_local_addresses(0x10000);
  request.mutable_batch()->add_remote_addresses(0x20000);
  request.mutable_batch()->add_lengths(0x100);
  const auto stub = v1::EngineService::NewStub(served.channel());
  grpc::ClientContext context;
  context.AddMetadata("hixl-session-bin", kToken);
  v1::TransferResponse response;
  Answer<bool> ended;
  stub->async()->Transfer(&context, &request, &response,
                          [done = std::make_shared<absl::AnyInvocable<void(bool)>>(
                               ended.callback())](const grpc::Status& status) {
                            (*done)(status.error_code() == grpc::StatusCode::CANCELLED);
                          });
  served.room().sink().WaitForJobs(1);
  context.TryCancel();
  CHECK(ended.get());
  served.room().sink().WaitForCancels(1);
}

}  // namespace
}  // namespace hixld
