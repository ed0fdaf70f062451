// The text of log lines, apart from time and level. Pure functions, used by log.cc.
#pragma once

#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/telemetry/log.h"

namespace hixld {

// `session opened session=3 name="a b"`: a value is quoted when it has blanks, quotes, '=' or
// control characters, which are escaped, so that a line stays a line.
std::string FormatLogText(absl::string_view message, std::initializer_list<LogField> fields);

// `"message":"session opened","session":3`: the members of a JSON object, valid UTF-8.
std::string FormatLogJson(absl::string_view message, std::initializer_list<LogField> fields);

}  // namespace hixld
