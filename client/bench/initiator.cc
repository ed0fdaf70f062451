#include "client/bench/initiator.h"

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/bench/case_runner.h"
#include "client/bench/engine.h"
#include "client/bench/plot.h"
#include "client/bench/progress.h"
#include "client/bench/report.h"
#include "client/bench/self_target.h"
#include "client/bench/side_channel.h"
#include "client/bench/sweep.h"
#include "proto/base/status.h"
#include "proto/base/version.h"

namespace hixld::bench {
namespace {

// How long to look whether a failure came from the target's end.
constexpr int kGoneWaitMs = 1000;

absl::StatusOr<std::unique_ptr<SelfTarget>> StartSelfTarget(const InitiatorOptions& options) {
  EngineOptions engine = options.engine;
  engine.engine = "127.0.0.1";
  if (options.one_process) return StartTargetThread(engine);
  if (!options.target_socket.empty()) engine.socket = options.target_socket;
  return StartTargetProcess(engine);
}

// Runs all groups; results are shown as they come.
class SweepRun {
 public:
  SweepRun(const InitiatorOptions& options, uint64_t cases)
      : options_(options), table_(stdout, options), progress_(cases, options.quiet) {
    table_.Header();
  }

  absl::Status Take(const CaseResult& result) {
    table_.Row(result);
    progress_.Step();
    if (!options_.plot.empty()) results_.push_back(result);
    if (options_.jsonl.empty()) return absl::OkStatus();
    return AppendLine(options_.jsonl, JsonLine(result, options_));
  }

  absl::Status Plot() const {
    if (options_.plot.empty()) return absl::OkStatus();
    return WriteFile(options_.plot, RenderSvg(ChartOf(results_)));
  }

 private:
  const InitiatorOptions& options_;
  const Table table_;
  Progress progress_;
  std::vector<CaseResult> results_;
};

// A sweep may take hours: what it will be written to is tried before.
absl::Status CheckOutputs(const InitiatorOptions& options) {
  for (const auto& [option, path] :
       {std::pair("--jsonl", &options.jsonl), {"--plot", &options.plot}}) {
    if (path->empty()) continue;
    const absl::Status status = CheckWritable(*path);
    if (!status.ok()) return Annotate(status, option);
  }
  return absl::OkStatus();
}

absl::Status RunSweep(const InitiatorOptions& options, const std::vector<MemoryGroup>& groups,
                      LineSocket& target, const std::string& target_engine) {
  uint64_t cases = 0;
  for (const MemoryGroup& group : groups) cases += group.cases.size();
  SweepRun run(options, cases);
  absl::Status status;
  // An engine keeps its path: another path, another engine.
  std::unique_ptr<Engine> engine;
  std::optional<Path> path;
  for (const MemoryGroup& group : groups) {
    if (engine == nullptr || group.path != path) {
      engine.reset();
      UsePath(path = group.path);
      auto made = Engine::Create(options.engine, false);
      if (!made.ok()) {
        status = made.status();
        break;
      }
      engine = *std::move(made);
    }
    CaseRunner runner(options, *engine, target, target_engine);
    status = runner.Run(group, [&run](const CaseResult& result) { return run.Take(result); });
    if (!status.ok()) break;
  }
  if (!status.ok() && target.PeerGone(kGoneWaitMs)) {
    status = Annotate(status, "the target has gone");
  }
  // What was measured before a failure is drawn all the same.
  const absl::Status plotted = run.Plot();
  return status.ok() ? plotted : status;
}

}  // namespace

absl::Status RunInitiator(InitiatorOptions options) {
  HIXLD_ASSIGN_OR_RETURN(const std::vector<MemoryGroup> groups, MakeSweep(options));
  HIXLD_RETURN_IF_ERROR(CheckOutputs(options));
  UseSocket(options.engine.socket);
  std::unique_ptr<SelfTarget> self;
  if (options.self) {
    HIXLD_ASSIGN_OR_RETURN(self, StartSelfTarget(options));
    options.target = self->address();
  }
  HIXLD_ASSIGN_OR_RETURN(const Endpoint address, ParseEndpoint(options.target));
  HIXLD_ASSIGN_OR_RETURN(UniqueFd connection, ConnectTo(address));
  LineSocket target(std::move(connection));
  auto target_engine = target.Ask(absl::StrCat("hello ", kVersion));
  if (!target_engine.ok() && self != nullptr) {
    // Its own message has gone to standard error.
    return Annotate(target_engine.status(), "the target did not start");
  }
  HIXLD_RETURN_IF_ERROR(target_engine.status());
  if (options.engine.engine.empty()) {
    HIXLD_ASSIGN_OR_RETURN(const Endpoint here, LocalAddress(target.fd()));
    options.engine.engine = here.WithPort(0).ToString();
  }
  HIXLD_RETURN_IF_ERROR(RunSweep(options, groups, target, *target_engine));
  HIXLD_RETURN_IF_ERROR(target.Ask("end").status());
  return self == nullptr ? absl::OkStatus() : self->Finish();
}

}  // namespace hixld::bench
