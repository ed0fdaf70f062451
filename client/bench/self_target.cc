#include "client/bench/self_target.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/bench/side_channel.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

constexpr int kEndTimeoutMs = 20'000;
constexpr char kThisProgram[] = "/proc/self/exe";

class TargetProcess : public SelfTarget {
 public:
  ~TargetProcess() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  absl::Status Start(const EngineOptions& engine) {
    HIXLD_ASSIGN_OR_RETURN(const Endpoint any, ParseEndpoint("127.0.0.1"));
    HIXLD_ASSIGN_OR_RETURN(const UniqueFd listener, Listen(any));
    HIXLD_ASSIGN_OR_RETURN(const Endpoint bound, LocalAddress(listener.get()));
    address_ = bound.ToString();
    // The copy has no close-on-exec: the new process inherits it, and it alone.
    const UniqueFd inherited(::fcntl(listener.get(), F_DUPFD, 3));
    if (!inherited.valid()) return ErrnoError(errno, "duplicate a socket");
    HIXLD_RETURN_IF_ERROR(Spawn(Arguments(engine, inherited.get())));
    pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    return pidfd_.valid() ? absl::OkStatus() : ErrnoError(errno, "pidfd_open");
  }

  std::string address() const override { return address_; }

  absl::Status Finish() override {
    pollfd entry = {.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, kEndTimeoutMs) <= 0) return Timeout("the target's process does not end");
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
    return Failed(WIFSIGNALED(status)
                      ? absl::StrCat("the target's process was ended by signal ", WTERMSIG(status))
                      : absl::StrCat("the target's process ended with ", WEXITSTATUS(status)));
  }

 private:
  static std::vector<std::string> Arguments(const EngineOptions& engine, int listen_fd) {
    std::vector<std::string> arguments = {
        "hixl-bench", "target", "--listen-fd", absl::StrCat(listen_fd), "--engine", engine.engine};
    if (!engine.socket.empty()) arguments.insert(arguments.end(), {"--socket", engine.socket});
    if (engine.device >= 0) {
      arguments.insert(arguments.end(), {"--device", absl::StrCat(engine.device)});
    }
    for (const auto& [key, value] : engine.settings) {
      arguments.insert(arguments.end(), {"--setting", absl::StrCat(key, "=", value)});
    }
    return arguments;
  }

  absl::Status Spawn(std::vector<std::string> arguments) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    // The table on standard output is the initiator's alone.
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    const int error = ::posix_spawn(&pid_, kThisProgram, &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return absl::OkStatus();
    pid_ = 0;
    return ErrnoError(error, "start the target's process");
  }

  std::string address_;
  pid_t pid_ = 0;
  UniqueFd pidfd_;
};

class TargetThread : public SelfTarget {
 public:
  absl::Status Start(const EngineOptions& engine) {
    TargetOptions options;
    options.engine = engine;
    HIXLD_ASSIGN_OR_RETURN(target_, Target::Create(options));
    thread_.Start([this] { status_ = target_->Serve(); });
    return absl::OkStatus();
  }
  std::string address() const override { return target_->address(); }
  absl::Status Finish() override {
    thread_.Join();
    return status_;
  }

 private:
  std::unique_ptr<Target> target_;
  absl::Status status_;
  Threads thread_;
};

template <typename T>
absl::StatusOr<std::unique_ptr<SelfTarget>> StartTarget(const EngineOptions& engine) {
  auto target = std::make_unique<T>();
  HIXLD_RETURN_IF_ERROR(target->Start(engine));
  return target;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SelfTarget>> StartTargetProcess(const EngineOptions& engine) {
  return StartTarget<TargetProcess>(engine);
}

absl::StatusOr<std::unique_ptr<SelfTarget>> StartTargetThread(const EngineOptions& engine) {
  return StartTarget<TargetThread>(engine);
}

}  // namespace hixld::bench
