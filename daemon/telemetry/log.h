// The daemon's log, on standard error. A line is a message and named fields:
//   2026-01-31T12:00:00.123Z info  session opened session=3 pid=4711 uid=1000
//   {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"session opened","session":3,...}
// Messages are fixed texts and the changing parts are fields, so that programs can find them
// (docs/operations.md lists the events). Thread-safe; called per transfer at level debug only, and
// never per block.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "config/config.h"

namespace hixld {

// One named value of a log line. Names are lower_case words.
struct LogField {
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  LogField(absl::string_view field, T number)
      : name(field), value(absl::StrCat(number)), is_text(false) {}
  LogField(absl::string_view field, bool flag)
      : name(field), value(flag ? "true" : "false"), is_text(false) {}
  LogField(absl::string_view field, absl::string_view text) : name(field), value(text) {}
  LogField(absl::string_view field, const std::string& text) : name(field), value(text) {}
  LogField(absl::string_view field, const char* text) : name(field), value(text) {}
  LogField(absl::string_view field, const absl::Status& status)
      : name(field), value(status.message()) {}

  absl::string_view name;
  std::string value;
  bool is_text = true;
};

// Applies log.* to this process. Until then, messages of level info and above are text. When
// standard error is the journal (JOURNAL_STREAM), lines carry the journal's priority instead of a
// time of their own.
void StartLogging(const Config::Log& config);

// Cheap: for messages whose fields cost something.
bool LogEnabled(LogLevel level);

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields = {});

inline void LogDebug(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, message, fields);
}
inline void LogInfo(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarn(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarn, message, fields);
}
inline void LogError(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, message, fields);
}

// Keeps one cause from flooding the log: says yes at most once per interval, and how many were
// left out before. One object per cause; thread-safe.
class LogLimiter {
 public:
  explicit LogLimiter(int64_t interval_ns) : interval_ns_(interval_ns) {}
  // Whether to log now (`now_ns`: CLOCK_MONOTONIC). `suppressed` is set when it says yes.
  bool Allow(int64_t now_ns, uint64_t* suppressed);

 private:
  const int64_t interval_ns_;
  std::atomic<int64_t> next_ns_{0};
  std::atomic<uint64_t> suppressed_{0};
};

}  // namespace hixld
