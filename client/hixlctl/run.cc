#include "client/hixlctl/run.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/hixlctl/json.h"
#include "client/hixlctl/table.h"

namespace hixld::hixlctl {
namespace {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return kExitNoDaemon;
    case absl::StatusCode::kPermissionDenied:
      return kExitNoAccess;
    default:
      return kExitFailed;
  }
}

// Returns false when standard output cannot be written, such as on a full disk.
bool Print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

int ShowError(const absl::Status& status) {
  const absl::string_view message = status.message();
  std::fprintf(stderr, "hixlctl: %s\n", Printable(message).c_str());
  return ExitCodeOf(status);
}

int RunOnce(const Action& action, AdminClient& client, const RunOptions& options) {
  const auto output = action(client);
  if (!output.ok()) return ShowError(output.status());
  // Documents of a series are one line each.
  const bool pretty = options.watch.count() == 0;
  if (!Print(options.json ? ToJson(*output, pretty) : output->text)) {
    std::perror("hixlctl: standard output");
    return kExitFailed;
  }
  return output->exit_code;
}

// What separates two repetitions: a cleared screen on a terminal, an empty line elsewhere.
void ShowTitle(const RunOptions& options, bool first) {
  if (options.json) return;
  if (isatty(STDOUT_FILENO) == 0) {
    if (!first) Print("\n");
    return;
  }
  const std::time_t now = std::time(nullptr);
  std::tm local;
  localtime_r(&now, &local);
  char clock[16];
  std::strftime(clock, sizeof(clock), "%H:%M:%S", &local);
  Print(absl::StrCat("\x1b[H\x1b[2J", options.title, "   every ",
                     static_cast<double>(options.watch.count()) / 1000, " s   ", clock, "\n\n"));
}

}  // namespace

int Run(const Action& action, const RunOptions& options) {
  AdminClient client(options.socket_path, options.timeout);
  if (options.watch.count() == 0) return RunOnce(action, client, options);
  for (bool first = true;; first = false) {
    ShowTitle(options, first);
    const int code = RunOnce(action, client, options);
    if (first && code != kExitOk) return code;
    std::this_thread::sleep_for(options.watch);
  }
}

}  // namespace hixld::hixlctl
