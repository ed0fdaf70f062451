// Runs one subcommand, once or again and again.
#pragma once

#include <chrono>
#include <string>

#include "client/hixlctl/command.h"

namespace hixld::hixlctl {

// Exit codes; documented in docs/hixlctl.md.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,    // the daemon answered with an error, or not in time
  kExitUsage = 2,     // the command line is wrong
  kExitNoDaemon = 3,  // nobody listens
  kExitNoAccess = 4,  // not for this user
};

struct RunOptions {
  std::string socket_path;
  bool json = false;
  std::chrono::milliseconds timeout{5000};
  // Zero: once.
  std::chrono::milliseconds watch{0};
  // What to show above each repetition on a terminal.
  std::string title;
};

// Prints the answer to standard output, an error as one line to standard error, and returns the
// exit code. With `watch` it returns only when the first answer is an error: later ones are shown
// and the daemon is asked again.
int Run(const Action& action, const RunOptions& options);

}  // namespace hixld::hixlctl
