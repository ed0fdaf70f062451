#include "proto/base/text_code.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "proto/base/status.h"

namespace hixld {

absl::Status WithTextCode(absl::Status status, absl::string_view text_code) {
  if (status.ok()) return status;
  ErrorInfo info = ErrorInfoOf(status);
  if (!info.text_code.empty()) return status;
  info.text_code = std::string(text_code);
  absl::Status result = MakeError(ApiCodeOf(status), status.message(), std::move(info));
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    if (!result.GetPayload(url)) result.SetPayload(url, payload);
  });
  return result;
}

}  // namespace hixld
