#include "daemon/telemetry/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "daemon/telemetry/log_format.h"

namespace hixld {
namespace {

// The journal's priority prefix (sd-daemon(3)): "<6>" for info.
class PriorityFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const char* prefix = "<6>";
    if (message.level == spdlog::level::debug) prefix = "<7>";
    if (message.level == spdlog::level::warn) prefix = "<4>";
    if (message.level == spdlog::level::err) prefix = "<3>";
    out.append(prefix, prefix + 3);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PriorityFlag>();
  }
};

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// JOURNAL_STREAM names the device and inode that standard error had when systemd started us; it
// is inherited by children whose standard error is something else.
bool StderrIsJournal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  unsigned long long device = 0;
  unsigned long long inode = 0;
  struct stat status;
  return stream != nullptr && std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
         fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

std::unique_ptr<spdlog::formatter> MakeFormatter(LogFormat format, bool journal) {
  std::string pattern = format == LogFormat::kJson
                            ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})"
                            : "%Y-%m-%dT%H:%M:%S.%eZ %-7l %v";
  if (journal) pattern = format == LogFormat::kJson ? "%*" + pattern : "%*%v";
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<PriorityFlag>('*').set_pattern(pattern);
  return formatter;
}

// The process's log. Its format is set once, before other threads start.
struct ProcessLog {
  ProcessLog() : logger("hixld", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    Apply(Config::Log());
  }

  void Apply(const Config::Log& config) {
    json = config.format == LogFormat::kJson;
    logger.set_formatter(MakeFormatter(config.format, StderrIsJournal()));
    logger.set_level(SpdlogLevel(config.level));
    logger.flush_on(spdlog::level::debug);
  }

  spdlog::logger logger;
  std::atomic<bool> json{false};
};

ProcessLog& TheLog() {
  static auto* const log = new ProcessLog;
  return *log;
}

}  // namespace

void StartLogging(const Config::Log& config) { TheLog().Apply(config); }

bool LogEnabled(LogLevel level) { return TheLog().logger.should_log(SpdlogLevel(level)); }

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields) {
  ProcessLog& log = TheLog();
  if (!log.logger.should_log(SpdlogLevel(level))) return;
  const std::string line = log.json.load(std::memory_order_relaxed)
                               ? FormatLogJson(message, fields)
                               : FormatLogText(message, fields);
  log.logger.log(SpdlogLevel(level), spdlog::string_view_t(line.data(), line.size()));
}

bool LogLimiter::Allow(int64_t now_ns, uint64_t* suppressed) {
  int64_t next = next_ns_.load(std::memory_order_relaxed);
  if (now_ns < next ||
      !next_ns_.compare_exchange_strong(next, now_ns + interval_ns_, std::memory_order_relaxed)) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  *suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace hixld
