// Messages of the library on stderr, from a level on that HIXL_LOG_LEVEL or the program chooses.
#pragma once

#include "absl/strings/string_view.h"

namespace hixld::client {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// "DEBUG", "INFO", "WARN" (or "WARNING") or "ERROR"; false for anything else.
bool ParseLogLevel(absl::string_view text, LogLevel* level);
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
// One line, written at once.
void Log(LogLevel level, absl::string_view message);

}  // namespace hixld::client
