#include "client/cpp/last_error.h"

#include "absl/strings/str_cat.h"
#include "client/cpp/log.h"
#include "client/cpp/text_codes.h"

namespace hixld::client {
namespace {

thread_local LastErrorRecord t_last_error;

std::string OneLine(const absl::Status& status, const ErrorInfo& info) {
  std::string text = absl::StrCat(ApiCodeName(ApiCodeOf(status)), ": ", status.message());
  const auto add = [&text](const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&text, "; ", name, ": ", value);
  };
  add("about", info.object);
  add("limit", info.limit);
  add("allowed", info.allowed);
  add("option", info.option);
  add("code", info.text_code);
  if (const TextCode* code = FindTextCode(info.text_code)) {
    absl::StrAppend(&text, " (", code->meaning, ")");
    add("cause", code->cause);
    add("advice", code->advice);
  }
  // What a program passed in must not end the text, nor make it more than a line.
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  }
  return text;
}

}  // namespace

uint32_t RecordError(const absl::Status& status) {
  if (status.ok()) return 0;
  LastErrorRecord& record = t_last_error;
  record.code = static_cast<uint32_t>(ApiCodeOf(status));
  record.message = std::string(status.message());
  record.info = ErrorInfoOf(status);
  record.text = OneLine(status, record.info);
  Log(ApiCodeOf(status) == ApiCode::kAlreadyConnected ? LogLevel::kWarning : LogLevel::kInfo,
      record.text);
  return record.code;
}

const LastErrorRecord& LastErrorOfThread() { return t_last_error; }

}  // namespace hixld::client
