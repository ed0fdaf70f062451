#include "daemon/telemetry/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/telemetry/log_format.h"

namespace hixld {
namespace {

std::string CapturePath() { return std::string(std::getenv("TEST_TMPDIR")) + "/stderr"; }

// What `body` writes to standard error, which is a fresh file meanwhile.
std::string CaptureStderr(const std::function<void()>& body) {
  const std::string path = CapturePath();
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  const int saved = dup(STDERR_FILENO);
  REQUIRE(file >= 0);
  REQUIRE(saved >= 0);
  dup2(file, STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(file);
  close(saved);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("text fields are quoted where they need it, and a line stays a line") {
  CHECK(FormatLogText("session opened", {{"session", 3}, {"pid", 4711}}) ==
        "session opened session=3 pid=4711");
  CHECK(FormatLogText("m", {{"name", "a b"}, {"empty", ""}, {"plain", "x:1"}}) ==
        "m name=\"a b\" empty=\"\" plain=x:1");
  CHECK(FormatLogText("a\nb", {{"evil", "x\n<3>y\"\\"}}) == "a b evil=\"x\\x0a<3>y\\\"\\\\\"");
  CHECK(FormatLogText("m", {{"flag", true}, {"ratio", 0.5}}) == "m flag=true ratio=0.5");
  CHECK(FormatLogText("m", {{"error", absl::NotFoundError("no such peer")}}) ==
        "m error=\"no such peer\"");
}

TEST_CASE("json fields are valid whatever a client sent") {
  const std::string members =
      FormatLogJson("m", {{"name", "a\"b\n\xff"}, {"count", 7}, {"flag", false}});
  const auto parsed = nlohmann::json::parse("{" + members + "}");
  CHECK(parsed["message"] == "m");
  CHECK(parsed["name"] == "a\"b\n\xEF\xBF\xBD");
  CHECK(parsed["count"] == 7);
  CHECK(parsed["flag"] == false);
}

TEST_CASE("lines carry time and level, and less important ones are left out") {
  const std::string text = CaptureStderr([] {
    StartLogging({.level = LogLevel::kInfo, .format = LogFormat::kText});
    CHECK_FALSE(LogEnabled(LogLevel::kDebug));
    LogDebug("not this");
    LogInfo("daemon started", {{"pid", 1}});
    LogWarn("careful");
    LogError("bad");
  });
  std::istringstream lines(text);
  std::string line;
  const char* const expected[] = {"info    daemon started pid=1", "warning careful", "error   bad"};
  for (const char* tail : expected) {
    REQUIRE(std::getline(lines, line));
    CHECK(line.size() == std::string("2026-01-31T12:00:00.123Z ").size() + strlen(tail));
    CHECK(line[10] == 'T');
    CHECK(line.substr(23, 2) == "Z ");
    CHECK(line.substr(25) == tail);
  }
  CHECK_FALSE(std::getline(lines, line));
}

TEST_CASE("a json line is one object") {
  const std::string text = CaptureStderr([] {
    StartLogging({.level = LogLevel::kDebug, .format = LogFormat::kJson});
    LogDebug("session opened", {{"session", 3}, {"client", "vllm %v"}});
  });
  const auto parsed = nlohmann::json::parse(text);
  CHECK(parsed["level"] == "debug");
  CHECK(parsed["message"] == "session opened");
  CHECK(parsed["session"] == 3);
  CHECK(parsed["client"] == "vllm %v");
  CHECK(parsed["time"].get<std::string>().size() == 24);
}

TEST_CASE("the journal gets priorities, when standard error is the journal") {
  const auto log = [] {
    StartLogging({.level = LogLevel::kDebug, .format = LogFormat::kText});
    LogDebug("d");
    LogInfo("i");
    LogWarn("w");
    LogError("e");
  };
  const std::string text = CaptureStderr([&log] {
    struct stat status;
    REQUIRE(fstat(STDERR_FILENO, &status) == 0);
    const std::string stream = std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
    setenv("JOURNAL_STREAM", stream.c_str(), 1);
    log();
  });
  CHECK(text == "<7>d\n<6>i\n<4>w\n<3>e\n");

  // Inherited, but standard error is something else by now.
  setenv("JOURNAL_STREAM", "1:1", 1);
  const std::string other = CaptureStderr(log);
  unsetenv("JOURNAL_STREAM");
  CHECK(other.find('<') == std::string::npos);
}

TEST_CASE("a limiter lets one line through per interval and counts the others") {
  LogLimiter limiter(1000);
  uint64_t suppressed = 99;
  CHECK(limiter.Allow(5000, &suppressed));
  CHECK(suppressed == 0);
  CHECK_FALSE(limiter.Allow(5001, &suppressed));
  CHECK_FALSE(limiter.Allow(5999, &suppressed));
  CHECK(limiter.Allow(6000, &suppressed));
  CHECK(suppressed == 2);
}

}  // namespace
}  // namespace hixld
