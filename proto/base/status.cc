#include "proto/base/status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/base/no_descriptors.h"
#include "proto/hixl/v1/error.pb.h"

namespace hixld {
namespace {

constexpr char kPayloadUrl[] = "hixl.v1.ErrorDetail";

absl::StatusCode CanonicalCode(ApiCode code) {
  switch (code) {
    case ApiCode::kSuccess:
      return absl::StatusCode::kOk;
    case ApiCode::kParamInvalid:
      return absl::StatusCode::kInvalidArgument;
    case ApiCode::kTimeout:
      return absl::StatusCode::kDeadlineExceeded;
    case ApiCode::kNotConnected:
      return absl::StatusCode::kFailedPrecondition;
    case ApiCode::kAlreadyConnected:
      return absl::StatusCode::kAlreadyExists;
    case ApiCode::kUnsupported:
      return absl::StatusCode::kUnimplemented;
    case ApiCode::kResourceExhausted:
      return absl::StatusCode::kResourceExhausted;
    case ApiCode::kFailed:
      return absl::StatusCode::kInternal;
  }
  return absl::StatusCode::kInternal;
}

ApiCode NearestApiCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return ApiCode::kSuccess;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return ApiCode::kParamInvalid;
    case absl::StatusCode::kDeadlineExceeded:
      return ApiCode::kTimeout;
    case absl::StatusCode::kAlreadyExists:
      return ApiCode::kAlreadyConnected;
    case absl::StatusCode::kUnimplemented:
      return ApiCode::kUnsupported;
    case absl::StatusCode::kResourceExhausted:
      return ApiCode::kResourceExhausted;
    default:
      return ApiCode::kFailed;
  }
}

hixl::v1::ErrorDetail DetailOf(const absl::Status& status) {
  hixl::v1::ErrorDetail detail;
  if (auto payload = status.GetPayload(kPayloadUrl)) {
    detail.ParseFromString(std::string(*payload));
  }
  return detail;
}

}  // namespace

absl::Status MakeError(ApiCode code, absl::string_view message, ErrorInfo info) {
  absl::Status status(CanonicalCode(code), message);
  hixl::v1::ErrorDetail detail;
  detail.set_code(static_cast<uint32_t>(code));
  detail.set_object(std::move(info.object));
  detail.set_limit(std::move(info.limit));
  detail.set_option(std::move(info.option));
  detail.set_allowed(std::move(info.allowed));
  detail.set_text_code(std::move(info.text_code));
  status.SetPayload(kPayloadUrl, absl::Cord(detail.SerializeAsString()));
  return status;
}

absl::Status ParamInvalid(absl::string_view message, ErrorInfo info) {
  return MakeError(ApiCode::kParamInvalid, message, std::move(info));
}
absl::Status Timeout(absl::string_view message, ErrorInfo info) {
  return MakeError(ApiCode::kTimeout, message, std::move(info));
}
absl::Status NotConnected(absl::string_view message, ErrorInfo info) {
  return MakeError(ApiCode::kNotConnected, message, std::move(info));
}
absl::Status AlreadyConnected(absl::string_view message, ErrorInfo info) {
  return MakeError(ApiCode::kAlreadyConnected, message, std::move(info));
}
absl::Status Unsupported(absl::string_view message, ErrorInfo info) {
  return MakeError(ApiCode::kUnsupported, message, std::move(info));
}
absl::Status ResourceExhausted(absl::string_view message, ErrorInfo info) {
  return MakeError(ApiCode::kResourceExhausted, message, std::move(info));
}
absl::Status Failed(absl::string_view message, ErrorInfo info) {
  return MakeError(ApiCode::kFailed, message, std::move(info));
}

absl::Status NoDescriptors(absl::string_view what) {
  rlimit files = {};
  const bool known = getrlimit(RLIMIT_NOFILE, &files) == 0;
  const std::string limit = known ? absl::StrCat(files.rlim_cur) : std::string("unknown");
  return ResourceExhausted(absl::StrCat(what, ": process ", getpid(),
                                        " has no file descriptor left; RLIMIT_NOFILE is ", limit),
                           {.object = absl::StrCat("descriptors of process ", getpid()),
                            .limit = absl::StrCat("RLIMIT_NOFILE ", limit),
                            .option = "RLIMIT_NOFILE",
                            .allowed = "a higher limit: ulimit -n, LimitNOFILE= of a service"});
}

absl::Status ErrnoError(int error_number, absl::string_view what, ErrorInfo info) {
  if (error_number == EMFILE) return NoDescriptors(what);
  char buffer[128];
  const char* text = strerror_r(error_number, buffer, sizeof(buffer));
  return MakeError(ApiCode::kFailed, absl::StrCat(what, ": ", text), std::move(info));
}

ApiCode ApiCodeOf(const absl::Status& status) {
  if (status.ok()) return ApiCode::kSuccess;
  const hixl::v1::ErrorDetail detail = DetailOf(status);
  if (detail.code() != 0) return static_cast<ApiCode>(detail.code());
  return NearestApiCode(status.code());
}

absl::string_view ApiCodeName(ApiCode code) {
  switch (code) {
    case ApiCode::kSuccess:
      return "SUCCESS";
    case ApiCode::kParamInvalid:
      return "PARAM_INVALID";
    case ApiCode::kTimeout:
      return "TIMEOUT";
    case ApiCode::kNotConnected:
      return "NOT_CONNECTED";
    case ApiCode::kAlreadyConnected:
      return "ALREADY_CONNECTED";
    case ApiCode::kUnsupported:
      return "UNSUPPORTED";
    case ApiCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case ApiCode::kFailed:
      return "FAILED";
  }
  return "FAILED";
}

ErrorInfo ErrorInfoOf(const absl::Status& status) {
  const hixl::v1::ErrorDetail detail = DetailOf(status);
  return ErrorInfo{.object = detail.object(),
                   .limit = detail.limit(),
                   .option = detail.option(),
                   .allowed = detail.allowed(),
                   .text_code = detail.text_code()};
}

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(prefix, ": ", status.message()));
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

std::string SerializeErrorDetail(const absl::Status& status) {
  hixl::v1::ErrorDetail detail = DetailOf(status);
  detail.set_code(static_cast<uint32_t>(ApiCodeOf(status)));
  return detail.SerializeAsString();
}

absl::Status StatusFromErrorDetail(absl::string_view message, absl::string_view serialized_detail,
                                   absl::StatusCode fallback) {
  hixl::v1::ErrorDetail detail;
  absl::Status status(fallback, message);
  if (detail.ParseFromArray(serialized_detail.data(), static_cast<int>(serialized_detail.size())) &&
      detail.code() != 0) {
    status = absl::Status(CanonicalCode(static_cast<ApiCode>(detail.code())), message);
    status.SetPayload(kPayloadUrl, absl::Cord(serialized_detail));
  }
  return status;
}

}  // namespace hixld
