#include "client/hixlctl/admin_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <cctype>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/hixlctl/probe.h"
#include "proto/base/status.h"
#include "proto/health/v1/health.grpc.pb.h"
#include "proto/hixl/v1/admin.grpc.pb.h"

namespace hixld::hixlctl {

struct AdminClient::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : admin(hixl::v1::AdminService::NewStub(channel)),
        health(grpc::health::v1::Health::NewStub(channel)) {}
  std::unique_ptr<hixl::v1::AdminService::Stub> admin;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;
};

namespace {

// A path as gRPC's target, which is a URI.
std::string UnixTarget(const std::string& path) {
  std::string target = "unix:";
  for (const char c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '/' || c == '.' || c == '_' ||
        c == '-') {
      target += c;
    } else {
      absl::StrAppendFormat(&target, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return target;
}

absl::Status CallError(const grpc::Status& status, const std::string& path,
                       std::chrono::milliseconds timeout) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return absl::UnavailableError(absl::StrCat(
          "the daemon at ", path, " went away during the call: ", status.error_message()));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(absl::StrCat("the daemon at ", path,
                                                      " did not answer within ", timeout.count(),
                                                      " ms; --timeout gives it longer"));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::UnimplementedError(
          absl::StrCat("the daemon at ", path,
                       " does not know this call: it is older than hixlctl, or is not hixld"));
    default:
      return absl::Status(
          static_cast<absl::StatusCode>(status.error_code()),
          absl::StrCat("the daemon at ", path, " answered: ", status.error_message()));
  }
}

// One unary call with the client's deadline. `method` is a member of `stub`.
template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Call(
    Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request, const std::string& path, std::chrono::milliseconds timeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) return CallError(status, path, timeout);
  return response;
}

using AdminStub = hixl::v1::AdminService::Stub;

}  // namespace

AdminClient::AdminClient(std::string socket_path, std::chrono::milliseconds timeout)
    : socket_path_(std::move(socket_path)), timeout_(timeout) {}

AdminClient::~AdminClient() = default;

absl::StatusOr<AdminClient::Stubs*> AdminClient::Connect() {
  HIXLD_RETURN_IF_ERROR(ProbeDaemon(socket_path_, timeout_));
  if (stubs_ == nullptr) {
    grpc::ChannelArguments arguments;
    // Lists grow with what is registered; the daemon is trusted with its own answers.
    arguments.SetMaxReceiveMessageSize(-1);
    stubs_ = std::make_unique<Stubs>(grpc::CreateCustomChannel(
        UnixTarget(socket_path_), grpc::InsecureChannelCredentials(), arguments));
  }
  return stubs_.get();
}

absl::StatusOr<hixl::v1::GetStatusResponse> AdminClient::GetStatus() {
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  return Call(*stubs->admin, &AdminStub::GetStatus, hixl::v1::GetStatusRequest(), socket_path_,
              timeout_);
}

absl::StatusOr<hixl::v1::ListSessionsResponse> AdminClient::ListSessions() {
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  return Call(*stubs->admin, &AdminStub::ListSessions, hixl::v1::ListSessionsRequest(),
              socket_path_, timeout_);
}

absl::StatusOr<hixl::v1::ListEnginesResponse> AdminClient::ListEngines() {
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  return Call(*stubs->admin, &AdminStub::ListEngines, hixl::v1::ListEnginesRequest(), socket_path_,
              timeout_);
}

absl::StatusOr<hixl::v1::ListRegionsResponse> AdminClient::ListRegions(
    const std::string& engine_id) {
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  hixl::v1::ListRegionsRequest request;
  request.set_engine_id(engine_id);
  return Call(*stubs->admin, &AdminStub::ListRegions, request, socket_path_, timeout_);
}

absl::StatusOr<hixl::v1::ListLinksResponse> AdminClient::ListLinks() {
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  return Call(*stubs->admin, &AdminStub::ListLinks, hixl::v1::ListLinksRequest(), socket_path_,
              timeout_);
}

absl::StatusOr<hixl::v1::ListTransfersResponse> AdminClient::ListTransfers() {
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  return Call(*stubs->admin, &AdminStub::ListTransfers, hixl::v1::ListTransfersRequest(),
              socket_path_, timeout_);
}

absl::StatusOr<hixl::v1::ListDevicesResponse> AdminClient::ListDevices() {
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  return Call(*stubs->admin, &AdminStub::ListDevices, hixl::v1::ListDevicesRequest(), socket_path_,
              timeout_);
}

absl::StatusOr<hixl::v1::ListPoolsResponse> AdminClient::ListPools() {
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  return Call(*stubs->admin, &AdminStub::ListPools, hixl::v1::ListPoolsRequest(), socket_path_,
              timeout_);
}

absl::StatusOr<std::string> AdminClient::Health() {
  using grpc::health::v1::HealthCheckResponse;
  HIXLD_ASSIGN_OR_RETURN(Stubs* const stubs, Connect());
  HIXLD_ASSIGN_OR_RETURN(const HealthCheckResponse response,
                         Call(*stubs->health, &grpc::health::v1::Health::Stub::Check,
                              grpc::health::v1::HealthCheckRequest(), socket_path_, timeout_));
  if (response.status() == HealthCheckResponse::SERVING) return "serving";
  if (response.status() == HealthCheckResponse::NOT_SERVING) return "not serving";
  return "unknown";
}

}  // namespace hixld::hixlctl
