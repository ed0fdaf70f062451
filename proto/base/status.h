// Errors inside the daemon and the client: absl::Status plus one payload that says which
// object, which limit and which option is meant. At the API the payload's code is returned.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hixld {

// The public API's result codes (contract 1.1).
enum class ApiCode : uint32_t {
  kSuccess = 0,
  kParamInvalid = 103900,
  kTimeout = 103901,
  kNotConnected = 103902,
  kAlreadyConnected = 103903,
  kUnsupported = 103905,
  kResourceExhausted = 203900,
  kFailed = 503900,
};

// What an error is about. Every field may be empty.
struct ErrorInfo {
  std::string object = {};     // the thing: "region 0x7f..+4096", "engine 10.0.0.1:26000"
  std::string limit = {};      // the limit that was reached: "64 regions"
  std::string option = {};     // the option that changes it: "limits.max_regions_per_session"
  std::string allowed = {};    // the allowed values: "1..65535"
  std::string text_code = {};  // "HIXL_001002" where one is defined (contract 5.3)
};

// Makes a status whose API code is `code`; its canonical code follows from it.
absl::Status MakeError(ApiCode code, absl::string_view message, ErrorInfo info = {});

absl::Status ParamInvalid(absl::string_view message, ErrorInfo info = {});
absl::Status Timeout(absl::string_view message, ErrorInfo info = {});
absl::Status NotConnected(absl::string_view message, ErrorInfo info = {});
absl::Status AlreadyConnected(absl::string_view message, ErrorInfo info = {});
absl::Status Unsupported(absl::string_view message, ErrorInfo info = {});
absl::Status ResourceExhausted(absl::string_view message, ErrorInfo info = {});
absl::Status Failed(absl::string_view message, ErrorInfo info = {});

// `what` failed with `error_number`: FAILED with strerror's text ("mmap 4096 bytes: ...").
absl::Status ErrnoError(int error_number, absl::string_view what, ErrorInfo info = {});

// The API code of a status: from the payload, else the nearest to its canonical code.
ApiCode ApiCodeOf(const absl::Status& status);
absl::string_view ApiCodeName(ApiCode code);

// The payload; empty fields when there is none.
ErrorInfo ErrorInfoOf(const absl::Status& status);

// Puts `prefix: ` before the message and keeps code and payload.
absl::Status Annotate(const absl::Status& status, absl::string_view prefix);

// The payload as bytes of hixl.v1.ErrorDetail, for a gRPC status's details; and back.
std::string SerializeErrorDetail(const absl::Status& status);
absl::Status StatusFromErrorDetail(absl::string_view message, absl::string_view serialized_detail,
                                   absl::StatusCode fallback);

#define HIXLD_RETURN_IF_ERROR(expr)           \
  do {                                        \
    if (absl::Status _s = (expr); !_s.ok()) { \
      return _s;                              \
    }                                         \
  } while (false)

#define HIXLD_CONCAT_INNER(a, b) a##b
#define HIXLD_CONCAT(a, b) HIXLD_CONCAT_INNER(a, b)
#define HIXLD_ASSIGN_OR_RETURN(lhs, expr) \
  HIXLD_ASSIGN_OR_RETURN_IMPL(HIXLD_CONCAT(_result, __LINE__), lhs, expr)
#define HIXLD_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                \
  if (!result.ok()) return result.status();            \
  lhs = std::move(result).value()

}  // namespace hixld
