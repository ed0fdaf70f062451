#include "proto/base/status.h"

#include <catch2/catch.hpp>
#include <cerrno>

#include "proto/base/rpc_status.h"

namespace hixld {

TEST_CASE("every API code survives the way to the wire and back") {
  for (const ApiCode code : {ApiCode::kParamInvalid, ApiCode::kTimeout, ApiCode::kNotConnected,
                             ApiCode::kAlreadyConnected, ApiCode::kUnsupported,
                             ApiCode::kResourceExhausted, ApiCode::kFailed}) {
    CAPTURE(std::string(ApiCodeName(code)));
    const absl::Status status = MakeError(code, "what happened",
                                          {.object = "engine 1.2.3.4:5",
                                           .limit = "64 regions",
                                           .option = "limits.x",
                                           .allowed = "1..64",
                                           .text_code = "HIXL_001001"});
    CHECK_FALSE(status.ok());
    CHECK(ApiCodeOf(status) == code);
    const absl::Status back =
        StatusFromErrorDetail(status.message(), SerializeErrorDetail(status), status.code());
    CHECK(ApiCodeOf(back) == code);
    CHECK(back.code() == status.code());
    CHECK(back.message() == "what happened");
    const ErrorInfo info = ErrorInfoOf(back);
    CHECK(info.object == "engine 1.2.3.4:5");
    CHECK(info.limit == "64 regions");
    CHECK(info.option == "limits.x");
    CHECK(info.allowed == "1..64");
    CHECK(info.text_code == "HIXL_001001");
  }
}

TEST_CASE("an error survives the way through a gRPC status") {
  const absl::Status status = NotConnected("no link", {.object = "peer", .option = "AutoConnect"});
  const absl::Status back = StatusFromRpcDetails(status.message(), SerializeRpcDetails(status),
                                                 absl::StatusCode::kUnknown);
  CHECK(ApiCodeOf(back) == ApiCode::kNotConnected);
  CHECK(ErrorInfoOf(back).option == "AutoConnect");
  CHECK(StatusFromRpcDetails("m", "", absl::StatusCode::kUnavailable).code() ==
        absl::StatusCode::kUnavailable);
  CHECK(StatusFromRpcDetails("m", "nonsense", absl::StatusCode::kUnknown).message() == "m");
}

TEST_CASE("a status without detail maps to the nearest API code") {
  CHECK(ApiCodeOf(absl::OkStatus()) == ApiCode::kSuccess);
  CHECK(ApiCodeOf(absl::InvalidArgumentError("")) == ApiCode::kParamInvalid);
  CHECK(ApiCodeOf(absl::DeadlineExceededError("")) == ApiCode::kTimeout);
  CHECK(ApiCodeOf(absl::UnavailableError("")) == ApiCode::kFailed);
  CHECK(ApiCodeOf(absl::UnauthenticatedError("")) == ApiCode::kFailed);
}

TEST_CASE("garbage in place of a detail keeps the status usable") {
  const absl::Status status =
      StatusFromErrorDetail("m", absl::string_view("\xff\xff\xff", 3), absl::StatusCode::kAborted);
  CHECK(status.code() == absl::StatusCode::kAborted);
  CHECK(status.message() == "m");
}

TEST_CASE("an annotation keeps code and detail") {
  const absl::Status status = Annotate(NotConnected("no link", {.object = "peer"}), "Transfer");
  CHECK(status.message() == "Transfer: no link");
  CHECK(ApiCodeOf(status) == ApiCode::kNotConnected);
  CHECK(ErrorInfoOf(status).object == "peer");
  CHECK(Annotate(absl::OkStatus(), "x").ok());
}

TEST_CASE("an errno becomes FAILED with its text") {
  const absl::Status status = ErrnoError(ENOENT, "open /x");
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  CHECK(status.message() == "open /x: No such file or directory");
}

}  // namespace hixld
