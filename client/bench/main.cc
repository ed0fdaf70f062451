// hixl-bench: see docs/performance.md.
#include <signal.h>

#include <cstdio>
#include <string>
#include <vector>

#include "client/bench/initiator.h"
#include "client/bench/options.h"
#include "client/bench/target.h"
#include "client/bench/text.h"

namespace hixld::bench {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

int Complain(const char* who, const absl::Status& status, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", who, ErrorText(status).c_str());
  return code;
}

absl::Status RunTarget(const TargetOptions& options) {
  UseSocket(options.engine.socket);
  auto target = Target::Create(options);
  if (!target.ok()) return target.status();
  if (options.listen_fd < 0) {
    std::printf("engine %s waits; on the other side:\n  hixl-bench initiator --target %s\n",
                (*target)->engine_id().c_str(), (*target)->address().c_str());
    std::fflush(stdout);
  }
  return (*target)->Serve();
}

int Main(int argc, char** argv) {
  // A peer that goes shows as an error of the call.
  ::signal(SIGPIPE, SIG_IGN);
  const auto line = ParseCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  if (!line.ok()) return Complain("hixl-bench", line.status(), kExitUsage);
  if (line->role == CommandLine::Role::kShown) {
    std::fputs(line->text.c_str(), stdout);
    return 0;
  }
  if (line->role == CommandLine::Role::kTarget) {
    const absl::Status status = RunTarget(line->target);
    return status.ok() ? 0 : Complain("hixl-bench target", status, kExitFailed);
  }
  const absl::Status status = RunInitiator(line->initiator);
  return status.ok() ? 0 : Complain("hixl-bench", status, kExitFailed);
}

}  // namespace
}  // namespace hixld::bench

int main(int argc, char** argv) { return hixld::bench::Main(argc, argv); }
