// hixld: reads flags and configuration, starts the daemon, waits for a reason to stop.
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/loader.h"
#include "daemon/app.h"
#include "daemon/cluster_key.h"
#include "daemon/host_check.h"
#include "daemon/telemetry/log.h"
#include "daemon/telemetry/service_manager.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"
#include "proto/base/version.h"

namespace hixld {
namespace {

constexpr int kExitOk = 0;
constexpr int kExitRuntime = 1;
constexpr int kExitUsage = 2;
// How long a stop may take before what still runs is left to the kernel.
constexpr int64_t kStopGraceNanos = 10 * kNanosPerSecond;

struct Flags {
  std::string config;
  std::string socket;
  std::string cluster_key_file;
  std::string log_level;
  std::vector<std::string> settings;
  int ready_fd = -1;
  bool private_daemon = false;
  bool check_config = false;
};

// A variable of a script that was never set would start another daemon than the one that is meant.
std::string NotEmpty(const std::string& text) { return text.empty() ? "is empty" : ""; }

void AddFlags(CLI::App* cli, Flags* flags) {
  cli->add_option("--config", flags->config, "Configuration file; without it, the defaults")
      ->check(NotEmpty);
  cli->add_option("--socket", flags->socket, "Path of the gRPC socket (socket.path)")
      ->check(NotEmpty);
  cli->add_flag("--private", flags->private_daemon,
                "Serve one user without any set-up and end after the last client");
  cli->add_option("--ready-fd", flags->ready_fd,
                  "Descriptor to write R to when serving, or one line that says why not");
  cli->add_option("--cluster-key-file", flags->cluster_key_file,
                  "File with the key that the cluster's daemons share (security.cluster_key_file)")
      ->check(NotEmpty);
  cli->add_option("--set", flags->settings, "Set one configuration key: key=value; repeatable")
      ->allow_extra_args(false);
  cli->add_option("--log-level", flags->log_level, "debug, info, warn or error (log.level)")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  cli->add_flag("--check-config", flags->check_config,
                "Read the configuration, say whether it is good, and exit");
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// All that is said besides the file, in the order in which it counts.
std::vector<std::string> SettingsOf(const Flags& flags) {
  std::vector<std::string> settings;
  if (flags.private_daemon) {
    const std::string key_file = Environment("HIXLD_CLUSTER_KEY_FILE");
    if (!key_file.empty()) settings.push_back("security.cluster_key_file=" + key_file);
    if (Environment("HIXLD_ALLOW_UNAUTHENTICATED_NETWORK") == "1") {
      settings.push_back("security.allow_unauthenticated_network=true");
    }
    // Other users have no business with it.
    settings.push_back("socket.mode=0600");
  }
  settings.insert(settings.end(), flags.settings.begin(), flags.settings.end());
  const auto absolute = [](const std::string& path) {
    return std::filesystem::absolute(path).string();
  };
  if (!flags.socket.empty()) settings.push_back("socket.path=" + absolute(flags.socket));
  if (!flags.cluster_key_file.empty()) {
    settings.push_back("security.cluster_key_file=" + absolute(flags.cluster_key_file));
  }
  if (!flags.log_level.empty()) settings.push_back("log.level=" + flags.log_level);
  return settings;
}

std::string DefaultSocket(bool private_daemon) {
  if (!private_daemon) {
    // Under systemd it is there; whoever starts the daemon by hand need not know.
    mkdir("/run/hixld", 0755);
    return "/run/hixld/hixld.sock";
  }
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  if (!runtime.empty()) return runtime + "/hixld.sock";
  const std::string directory = absl::StrCat("/tmp/hixld-", getuid());
  mkdir(directory.c_str(), 0700);
  return directory + "/hixld.sock";
}

// What the process needs from the kernel and the C library.
void PrepareProcess() {
  // Few arenas and an early return of memory: an idle daemon is small.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  prctl(PR_SET_NAME, "hixld");
  signal(SIGPIPE, SIG_IGN);
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

// Signals that stop the daemon, as a descriptor. Before any thread is started.
UniqueFd StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return UniqueFd(signalfd(-1, &set, SFD_CLOEXEC));
}

// Waits for a signal or until nobody uses a private daemon; returns why to stop.
std::string WaitForEnd(int signals, int unused) {
  pollfd fds[] = {{.fd = signals, .events = POLLIN, .revents = 0},
                  {.fd = unused, .events = POLLIN, .revents = 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  if ((fds[1].revents & POLLIN) != 0) return "no client uses it";
  signalfd_siginfo info = {};
  if (read(signals, &info, sizeof(info)) == sizeof(info)) {
    return info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT";
  }
  return "its signals cannot be read";
}

// Says why the daemon cannot run, on standard error and to whoever waits for it.
int Fail(const Flags& flags, const absl::Status& status, int code) {
  const std::string line = absl::StrCat("hixld: ", status.message(), "\n");
  fputs(line.c_str(), stderr);
  if (flags.ready_fd >= 0 && write(flags.ready_fd, line.data(), line.size()) < 0) {
    fputs("hixld: nobody reads --ready-fd\n", stderr);
  }
  return code;
}

int Serve(const Flags& flags, const Config& config) {
  AppOptions options;
  options.config = config;
  options.socket_path =
      config.socket.path.empty() ? DefaultSocket(flags.private_daemon) : config.socket.path;
  options.private_daemon = flags.private_daemon;
  auto key = ReadClusterKey(config);
  if (!key.ok()) return Fail(flags, key.status(), kExitUsage);
  options.cluster_key = std::move(*key);
  const std::vector<std::string> missing = MissingFromHost(config, options.socket_path);
  if (flags.check_config) {
    const auto group = SocketGroup(config);
    if (!group.ok()) return Fail(flags, group.status(), kExitUsage);
    for (const std::string& line : missing) fprintf(stderr, "hixld: warning: %s\n", line.c_str());
    printf("%s: good\n", config.file.empty() ? "the default configuration" : config.file.c_str());
    return kExitOk;
  }
  for (const std::string& line : missing) LogWarn(line);
  const absl::Status descriptors = CheckDescriptorLimit();
  if (!descriptors.ok()) return Fail(flags, descriptors, kExitRuntime);
  const UniqueFd signals = StopSignals();
  const UniqueFd unused(eventfd(0, EFD_CLOEXEC));
  options.on_unused = [fd = unused.get()] { eventfd_write(fd, 1); };
  auto app = App::Start(std::move(options));
  if (!app.ok()) {
    const bool configuration = ApiCodeOf(app.status()) == ApiCode::kParamInvalid;
    return Fail(flags, app.status(), configuration ? kExitUsage : kExitRuntime);
  }
  if (flags.ready_fd >= 0) {
    // A client that has gone away meanwhile does not matter.
    if (write(flags.ready_fd, "R\n", 2) < 0) LogWarn("nobody waits for the daemon");
    close(flags.ready_fd);
  }
  NotifyReady("serving");
  (*app)->Stop(WaitForEnd(signals.get(), unused.get()), kStopGraceNanos);
  return kExitOk;
}

int Main(int argc, char** argv) {
  PrepareProcess();
  Flags flags;
  CLI::App cli(
      "hixld: owns this node's device contexts, registered memory and links, and moves "
      "tensors for the processes that connect to it.");
  cli.set_version_flag("--version", kVersion);
  AddFlags(&cli, &flags);
  try {
    cli.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return cli.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const auto config = ReadConfig(flags.config, SettingsOf(flags));
  if (!config.ok()) return Fail(flags, config.status(), kExitUsage);
  StartLogging(config->log);
  return Serve(flags, *config);
}

}  // namespace
}  // namespace hixld

int main(int argc, char** argv) { return hixld::Main(argc, argv); }
