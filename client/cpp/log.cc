#include "client/cpp/log.h"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace hixld::client {
namespace {

constexpr int kUnset = -1;
std::atomic<int> g_level{kUnset};

const char* Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

int CurrentLevel() {
  int current = g_level.load(std::memory_order_relaxed);
  if (current != kUnset) return current;
  LogLevel level = LogLevel::kWarning;
  const char* text = std::getenv("HIXL_LOG_LEVEL");
  const bool known = text == nullptr || *text == '\0' || ParseLogLevel(text, &level);
  const bool first =
      g_level.compare_exchange_strong(current, static_cast<int>(level), std::memory_order_relaxed);
  if (first && !known) {
    Log(LogLevel::kWarning, absl::StrCat("HIXL_LOG_LEVEL is \"", text,
                                         "\", taken as WARN; allowed: DEBUG, INFO, WARN, ERROR"));
  }
  return g_level.load(std::memory_order_relaxed);
}

}  // namespace

bool ParseLogLevel(absl::string_view text, LogLevel* level) {
  if (text == "DEBUG") {
    *level = LogLevel::kDebug;
  } else if (text == "INFO") {
    *level = LogLevel::kInfo;
  } else if (text == "WARN" || text == "WARNING") {
    *level = LogLevel::kWarning;
  } else if (text == "ERROR") {
    *level = LogLevel::kError;
  } else {
    return false;
  }
  return true;
}

void SetLogLevel(LogLevel level) {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

bool LogEnabled(LogLevel level) { return static_cast<int>(level) >= CurrentLevel(); }

void Log(LogLevel level, absl::string_view message) {
  if (!LogEnabled(level)) return;
  const std::string line = absl::StrCat("hixl[", getpid(), "] ", Name(level), ": ", message, "\n");
  // A message that cannot be written is lost; there is nowhere else to put it.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace hixld::client
