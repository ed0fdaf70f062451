// Starting a private daemon: what it is given, what is said when it does not start.
#include "client/cpp/launcher.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "client/cpp/daemon_address.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "tests/client/cpp/fake_daemon.h"

namespace hixld::client {
namespace {

using testing::TemporaryDirectory;

// A program in place of hixld.
std::string Script(const TemporaryDirectory& directory, const std::string& body) {
  const std::string path = directory.file("hixld");
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  chmod(path.c_str(), 0755);
  return path;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

absl::Status Start(const TemporaryDirectory& directory, const std::string& body) {
  return StartDaemon(Script(directory, body), directory.file("socket"),
                     MonotonicNanos() + 30 * kNanosPerSecond);
}

TEST_CASE("the daemon gets its socket, a pipe, a session of its own and no descriptor of ours") {
  const TemporaryDirectory directory;
  const std::string leak = directory.file("leak");
  FILE* leaked = fopen(leak.c_str(), "w");  // no O_CLOEXEC
  REQUIRE(leaked != nullptr);
  const absl::Status status = Start(directory, R"(echo "$@"; cut -d' ' -f6 /proc/$$/stat; echo $$
ls -l /proc/$$/fd | grep -c leak
pwd
printf R >&3)");
  fclose(leaked);
  REQUIRE(status.ok());
  std::istringstream log(ReadAll(directory.file("socket.log")));
  std::string arguments, session, pid, leaks, place;
  std::getline(log, arguments);
  std::getline(log, session);
  std::getline(log, pid);
  std::getline(log, leaks);
  std::getline(log, place);
  CHECK(arguments == "--private --socket " + directory.file("socket") + " --ready-fd 3");
  CHECK(session != std::to_string(getsid(0)));
  CHECK(leaks == "0");
  CHECK(place == "/");
  struct stat st;
  REQUIRE(stat(directory.file("socket.log").c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
}

TEST_CASE("what a daemon says instead of starting is the error") {
  const TemporaryDirectory directory;
  absl::Status status = Start(directory, "echo 'config line 3: no such key' >&3; exit 2");
  CHECK_THAT(std::string(status.message()), Catch::Contains("config line 3: no such key"));
  status = Start(directory, "exit 1");
  CHECK_THAT(std::string(status.message()), Catch::Contains("exited at once"));
  CHECK_THAT(std::string(status.message()), Catch::Contains("socket.log"));
}

TEST_CASE("a program that cannot be executed is an error too") {
  const TemporaryDirectory directory;
  const absl::Status status = StartDaemon(directory.file("absent"), directory.file("socket"),
                                          MonotonicNanos() + 30 * kNanosPerSecond);
  CHECK_THAT(std::string(status.message()), Catch::Contains("cannot be executed"));
}

TEST_CASE("a daemon that is never ready is given up") {
  const TemporaryDirectory directory;
  const absl::Status status =
      StartDaemon(Script(directory, "exec sleep 1"), directory.file("socket"),
                  MonotonicNanos() + 20 * kNanosPerMilli);
  CHECK_THAT(std::string(status.message()), Catch::Contains("not ready in time"));
}

TEST_CASE("the program is found by HIXLD_DAEMON, then in PATH") {
  const TemporaryDirectory directory;
  const std::string program = Script(directory, "exit 0");
  const std::string path = getenv("PATH");
  unsetenv("HIXLD_DAEMON");
  setenv("PATH", (directory.path() + ":" + path).c_str(), 1);
  CHECK(FindDaemonBinary().value() == program);
  setenv("HIXLD_DAEMON", "/bin/true", 1);
  CHECK(FindDaemonBinary().value() == "/bin/true");
  setenv("HIXLD_DAEMON", "/nonexistent/hixld", 1);
  CHECK_THAT(std::string(FindDaemonBinary().status().message()),
             Catch::Contains("/nonexistent/hixld"));
  unsetenv("HIXLD_DAEMON");
  setenv("PATH", path.c_str(), 1);
}

TEST_CASE("a private directory must be ours alone") {
  const TemporaryDirectory directory;
  const std::string made = directory.file("made");
  CHECK(EnsurePrivateDirectory(made).ok());
  CHECK(EnsurePrivateDirectory(made).ok());
  chmod(made.c_str(), 0755);
  CHECK_THAT(std::string(EnsurePrivateDirectory(made).message()), Catch::Contains("only user"));
  const std::string link = directory.file("link");
  REQUIRE(symlink(directory.path().c_str(), link.c_str()) == 0);
  CHECK_FALSE(EnsurePrivateDirectory(link).ok());
}

TEST_CASE("a daemon is started unless that is forbidden") {
  setenv("HIXLD_SOCKET", "relative.sock", 1);
  unsetenv("HIXLD_NO_AUTOSTART");
  CHECK(FindDaemon()->may_start);
  CHECK(FindDaemon()->socket.front() == '/');
  setenv("HIXLD_NO_AUTOSTART", "1", 1);
  CHECK_FALSE(FindDaemon()->may_start);
  setenv("HIXLD_NO_AUTOSTART", "0", 1);
  CHECK(FindDaemon()->may_start);
  for (const char* unclear : {"yes", "true", "11", " 1"}) {
    setenv("HIXLD_NO_AUTOSTART", unclear, 1);
    const absl::Status status = FindDaemon().status();
    CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
    CHECK(ErrorInfoOf(status).option == "HIXLD_NO_AUTOSTART");
  }
  unsetenv("HIXLD_SOCKET");
  unsetenv("HIXLD_NO_AUTOSTART");
}

}  // namespace
}  // namespace hixld::client
