#include "client/cpp/launcher.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/socket_path.h"
#include "proto/base/status.h"

extern char** environ;

namespace hixld::client {
namespace {

// Where the ready pipe is in the daemon.
constexpr int kReadyFd = 3;

bool IsExecutable(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

// "" when this code is not in a file that the loader knows.
std::string BinaryBesideLibrary() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&FindDaemonBinary), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  char resolved[PATH_MAX];
  if (realpath(info.dli_fname, resolved) == nullptr) return "";
  std::string directory = resolved;
  directory.resize(directory.rfind('/'));
  return directory + "/../bin/hixld";
}

// For programs that have the library in themselves.
std::string BinaryBesideProgram() {
  char program[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", program, sizeof(program));
  if (size <= 0 || size == sizeof(program)) return "";
  std::string directory(program, static_cast<size_t>(size));
  directory.resize(directory.rfind('/'));
  return directory + "/hixld";
}

// What the daemon's process does between fork and exec: system calls only, since it shares this
// process's memory.
[[noreturn]] void BecomeDaemon(const char* binary, char* const* argv, int log, int ready) {
  // Descriptor kReadyFd may be in use by the log.
  const int log_copy = fcntl(log, F_DUPFD, kReadyFd + 1);
  const int ready_copy = fcntl(ready, F_DUPFD, kReadyFd + 1);
  const int null = open("/dev/null", O_RDONLY);
  if (log_copy < 0 || ready_copy < 0 || null < 0) _exit(127);
  dup2(null, STDIN_FILENO);
  dup2(log_copy, STDOUT_FILENO);
  dup2(log_copy, STDERR_FILENO);
  dup2(ready_copy, kReadyFd);
  syscall(SYS_close_range, kReadyFd + 1, ~0U, 0);
  if (chdir("/") != 0) _exit(127);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(binary, argv, environ);
  const char text[] = "hixld cannot be executed\n";
  if (write(kReadyFd, text, sizeof(text) - 1) < 0) _exit(126);
  _exit(127);
}

// Starts it as a grandchild, so that this process never has to wait for it. vfork, because
// copying the page tables of a process with hundreds of gigabytes takes seconds, and because fork
// handlers of other libraries must not run.
absl::Status SpawnDetached(const std::string& binary, const std::vector<std::string>& arguments,
                           int log, int ready) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = vfork();
  if (child == 0) {
    setsid();
    const pid_t grandchild = vfork();
    if (grandchild == 0) BecomeDaemon(binary.c_str(), argv.data(), log, ready);
    _exit(grandchild < 0 ? 1 : 0);
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return ErrnoError(error, absl::StrCat("start ", binary));
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  return absl::OkStatus();
}

// Reads the pipe until 'R', an end, or the deadline.
absl::Status AwaitReady(int pipe, const std::string& binary, const std::string& log,
                        int64_t deadline) {
  std::string said;
  while (true) {
    const int64_t left = (deadline - MonotonicNanos()) / kNanosPerMilli;
    pollfd poll_fd = {.fd = pipe, .events = POLLIN, .revents = 0};
    const int ready =
        left <= 0 ? 0 : poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return Failed(
          absl::StrCat("the private hixld (", binary, ") is not ready in time; see ", log),
          {.object = "private hixld", .option = "HIXLD_DAEMON, HIXLD_SOCKET"});
    }
    char chunk[256];
    const ssize_t got = read(pipe, chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) said.append(chunk, static_cast<size_t>(got));
    if (!said.empty() && said.front() == 'R') return absl::OkStatus();
    if (got <= 0 || said.find('\n') != std::string::npos) break;
  }
  const absl::string_view reason = absl::StripAsciiWhitespace(said);
  if (absl::StrContains(reason, kAlreadyRunning)) return absl::AlreadyExistsError(reason);
  return Failed(absl::StrCat("the private hixld (", binary, ") did not start: ",
                             reason.empty() ? "it exited at once" : reason, "; see ", log),
                {.object = "private hixld", .option = "HIXLD_DAEMON, HIXLD_SOCKET"});
}

}  // namespace

absl::StatusOr<std::string> FindDaemonBinary() {
  const char* given = std::getenv("HIXLD_DAEMON");
  if (given != nullptr && *given != '\0') {
    if (IsExecutable(given)) return std::string(given);
    return Failed(absl::StrCat("HIXLD_DAEMON names ", given, ", which cannot be executed"),
                  {.object = "private hixld", .option = "HIXLD_DAEMON"});
  }
  std::vector<std::string> places = {BinaryBesideLibrary(), BinaryBesideProgram()};
  places.erase(std::remove(places.begin(), places.end(), ""), places.end());
  for (const std::string& place : places) {
    if (IsExecutable(place)) return place;
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view directory : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (directory.empty() || directory.front() != '/') continue;
    std::string candidate = absl::StrCat(directory, "/hixld");
    if (IsExecutable(candidate)) return candidate;
  }
  return Failed(absl::StrCat("no hixld to start: not set in HIXLD_DAEMON, not at ",
                             absl::StrJoin(places, " or "), ", not in PATH"),
                {.object = "private hixld", .option = "HIXLD_DAEMON, PATH"});
}

absl::Status StartDaemon(const std::string& binary, const std::string& socket, int64_t deadline) {
  const std::string log_path = socket + ".log";
  UniqueFd log(
      open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log.valid()) return ErrnoError(errno, absl::StrCat("open ", log_path));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(errno, "create a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  HIXLD_RETURN_IF_ERROR(SpawnDetached(
      binary, {binary, "--private", "--socket", socket, "--ready-fd", std::to_string(kReadyFd)},
      log.get(), write_end.get()));
  write_end.reset();
  return AwaitReady(read_end.get(), binary, log_path, deadline);
}

}  // namespace hixld::client
