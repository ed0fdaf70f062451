#include "client/bench/text.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::bench {

std::string ErrorText(const absl::Status& status) {
  const ErrorInfo info = ErrorInfoOf(status);
  std::string text(status.message());
  const auto add = [&text](const char* what, const std::string& value) {
    if (!value.empty() && text.find(value) == std::string::npos) {
      absl::StrAppend(&text, "; ", what, ": ", value);
    }
  };
  add("limit", info.limit);
  add("option", info.option);
  add("allowed", info.allowed);
  return text;
}

}  // namespace hixld::bench
