#include "daemon/telemetry/log_format.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace hixld {
namespace {

bool NeedsQuotes(absl::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '\\' || c == '=' || c == 0x7f) return true;
  }
  return false;
}

void AppendQuoted(absl::string_view value, std::string* out) {
  *out += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') *out += '\\';
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      absl::StrAppendFormat(out, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      *out += c;
    }
  }
  *out += '"';
}

std::string JsonText(absl::string_view text) {
  const nlohmann::json value = std::string(text);
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Control characters of a message would break the line; a message is not quoted otherwise.
std::string OneLine(absl::string_view message) {
  std::string line(message);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return line;
}

}  // namespace

std::string FormatLogText(absl::string_view message, std::initializer_list<LogField> fields) {
  std::string line = OneLine(message);
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.name, "=");
    if (field.is_text && NeedsQuotes(field.value)) {
      AppendQuoted(field.value, &line);
    } else {
      line += field.value;
    }
  }
  return line;
}

std::string FormatLogJson(absl::string_view message, std::initializer_list<LogField> fields) {
  std::string members = absl::StrCat("\"message\":", JsonText(message));
  for (const LogField& field : fields) {
    absl::StrAppend(&members, ",", JsonText(field.name), ":",
                    field.is_text ? JsonText(field.value) : field.value);
  }
  return members;
}

}  // namespace hixld
