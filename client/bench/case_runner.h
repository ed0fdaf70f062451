// Measures one case after the other against a target, and the baselines beside each.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/bench/engine.h"
#include "client/bench/grpc_echo.h"
#include "client/bench/options.h"
#include "client/bench/report.h"
#include "client/bench/round.h"
#include "client/bench/side_channel.h"
#include "client/bench/sweep.h"

namespace hixld::bench {

class CaseRunner {
 public:
  // Refers to all of them.
  CaseRunner(const InitiatorOptions& options, Engine& engine, LineSocket& target,
             std::string target_engine)
      : options_(options),
        engine_(engine),
        target_(target),
        target_engine_(std::move(target_engine)) {}

  // Allocates on both sides, connects, runs the cases, and takes all of it back. `took` gets each
  // result; its error ends the run.
  absl::Status Run(const MemoryGroup& group,
                   const std::function<absl::Status(const CaseResult&)>& took);

 private:
  class Regions;
  absl::Status RunCases(const MemoryGroup& group, Regions& regions,
                        const std::function<absl::Status(const CaseResult&)>& took);
  absl::StatusOr<CaseResult> RunCase(const Case& what, Regions& regions);
  absl::Status Fill(const Plan& plan, Regions& regions, uint64_t round);
  absl::Status Verify(const Plan& plan, Regions& regions, uint64_t round);
  absl::Status CompareMemcpy(const Plan& plan, Regions& regions, const RoundResult& round,
                             CaseResult& result);
  absl::Status CompareSocket(const Plan& plan, const RoundResult& round, CaseResult& result);
  absl::Status CompareGrpc(const Plan& plan, const RoundResult& round, CaseResult& result);
  absl::Status CompareWake(const Plan& plan, const RoundResult& round, CaseResult& result);
  // A baseline whose median time per transfer is compared.
  absl::Status CompareTime(const std::vector<std::unique_ptr<Mover>>& movers,
                           const RoundResult& round, Comparison& comparison);
  bool Wanted(Baseline baseline) const;
  RoundBudget BudgetOf(uint64_t round, uint64_t depth) const;
  absl::Status WatchTarget() const;

  const InitiatorOptions& options_;
  Engine& engine_;
  LineSocket& target_;
  const std::string target_engine_;
  std::unique_ptr<GrpcEcho> grpc_;
};

}  // namespace hixld::bench
