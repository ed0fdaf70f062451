#include "client/bench/case_runner.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/bench/movers.h"
#include "client/bench/pattern.h"
#include "client/bench/pump.h"
#include "client/bench/wake.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

constexpr uint64_t kDescriptorBytes = 24;

// Each round has patterns of its own, so that bytes of the last one cannot pass.
uint64_t LocalSeed(uint64_t seed, uint64_t round) { return Random(seed + 2 * round).Next(); }
uint64_t RemoteSeed(uint64_t seed, uint64_t round) { return Random(seed + 2 * round + 1).Next(); }

void Add(Comparison& comparison, double value, double ratio) {
  comparison.measured = true;
  comparison.values.push_back(value);
  comparison.ratios.push_back(ratio);
}

}  // namespace

// Both sides' regions of a group, and two more for memcpy.
class CaseRunner::Regions {
 public:
  absl::Status Create(const MemoryGroup& group, Engine& engine, LineSocket& target) {
    const uint64_t bytes = group.RegionBytes();
    kind_ = group.memory;
    HIXLD_ASSIGN_OR_RETURN(local_, Memory::Create(engine, group.memory, bytes));
    HIXLD_RETURN_IF_ERROR(local_->Register());
    HIXLD_ASSIGN_OR_RETURN(
        const std::string answer,
        target.Ask(
            absl::StrCat("memory kind=", MemoryNames()[static_cast<size_t>(group.target_memory)],
                         " bytes=", bytes)));
    if (!absl::SimpleAtoi(answer, &remote_)) {
      return Failed(absl::StrCat("target: bad address \"", answer, "\""));
    }
    return absl::OkStatus();
  }

  absl::Status CreateCopies(Engine& engine) {
    if (copies_[0] != nullptr) return absl::OkStatus();
    for (std::unique_ptr<Memory>& copy : copies_) {
      // memcpy needs memory that the host can touch.
      const MemoryKind kind = local_->data() == nullptr ? MemoryKind::kPool : kind_;
      HIXLD_ASSIGN_OR_RETURN(copy, Memory::Create(engine, kind, local_->size()));
    }
    return absl::OkStatus();
  }

  Memory& local() { return *local_; }
  Places places() const { return {local_->address(), static_cast<uintptr_t>(remote_)}; }
  std::byte* copy(size_t index) const { return copies_[index]->data(); }

 private:
  MemoryKind kind_ = MemoryKind::kPool;
  std::unique_ptr<Memory> local_;
  uint64_t remote_ = 0;
  std::unique_ptr<Memory> copies_[2];
};

absl::Status CaseRunner::Run(const MemoryGroup& group,
                             const std::function<absl::Status(const CaseResult&)>& took) {
  Regions regions;
  HIXLD_RETURN_IF_ERROR(regions.Create(group, engine_, target_));
  HIXLD_RETURN_IF_ERROR(
      FromHixl(engine_.hixl().Connect(target_engine_.c_str(), options_.timeout_ms),
               absl::StrCat("connect to ", target_engine_)));
  const absl::Status status = RunCases(group, regions, took);
  const absl::Status disconnected = FromHixl(
      engine_.hixl().Disconnect(target_engine_.c_str(), options_.timeout_ms), "disconnect");
  HIXLD_RETURN_IF_ERROR(status);
  HIXLD_RETURN_IF_ERROR(disconnected);
  return target_.Ask("free").status();
}

absl::Status CaseRunner::RunCases(const MemoryGroup& group, Regions& regions,
                                  const std::function<absl::Status(const CaseResult&)>& took) {
  for (const Case& what : group.cases) {
    HIXLD_ASSIGN_OR_RETURN(const CaseResult result, RunCase(what, regions));
    HIXLD_RETURN_IF_ERROR(took(result));
  }
  return absl::OkStatus();
}

absl::StatusOr<CaseResult> CaseRunner::RunCase(const Case& what, Regions& regions) {
  CaseResult result;
  result.what = what;
  HIXLD_RETURN_IF_ERROR(target_.Ask(absl::StrCat("plan ", what.plan.ToText())).status());
  const auto movers =
      TransferMovers(engine_, what.plan, regions.places(),
                     {target_engine_, options_.form, options_.timeout_ms, what.depth});
  for (uint64_t number = 0; number < options_.rounds; ++number) {
    if (options_.check) HIXLD_RETURN_IF_ERROR(Fill(what.plan, regions, number));
    HIXLD_ASSIGN_OR_RETURN(
        const std::unique_ptr<RoundResult> round,
        RunRound(movers, BudgetOf(number, what.depth), [this] { return WatchTarget(); }));
    if (options_.check) HIXLD_RETURN_IF_ERROR(Verify(what.plan, regions, number));
    result.gigabytes.push_back(round->gigabytes_per_second());
    result.transfers.push_back(static_cast<double>(round->transfers) / round->seconds);
    result.blocks.push_back(static_cast<double>(round->blocks) / round->seconds);
    result.latency.Merge(round->latency);
    HIXLD_RETURN_IF_ERROR(CompareMemcpy(what.plan, regions, *round, result));
    HIXLD_RETURN_IF_ERROR(CompareSocket(what.plan, *round, result));
    HIXLD_RETURN_IF_ERROR(CompareGrpc(what.plan, *round, result));
    HIXLD_RETURN_IF_ERROR(CompareWake(what.plan, *round, result));
  }
  return result;
}

absl::Status CaseRunner::Fill(const Plan& plan, Regions& regions, uint64_t round) {
  if (regions.local().data() == nullptr) {
    return Unsupported("--check: the host cannot touch the memory of this side");
  }
  FillPattern(LocalSeed(plan.seed, round), regions.local().data(), plan.RegionBytes());
  return target_.Ask(absl::StrCat("fill ", RemoteSeed(plan.seed, round))).status();
}

absl::Status CaseRunner::Verify(const Plan& plan, Regions& regions, uint64_t round) {
  const uint64_t local_seed = LocalSeed(plan.seed, round);
  const uint64_t remote_seed = RemoteSeed(plan.seed, round);
  HIXLD_RETURN_IF_ERROR(
      VerifyRegion(plan, Side::kLocal, local_seed, remote_seed, regions.local().data()));
  return target_.Ask(absl::StrCat("verify ", local_seed, " ", remote_seed)).status();
}

absl::Status CaseRunner::CompareMemcpy(const Plan& plan, Regions& regions, const RoundResult& round,
                                       CaseResult& result) {
  if (!Wanted(Baseline::kMemcpy)) return absl::OkStatus();
  HIXLD_RETURN_IF_ERROR(regions.CreateCopies(engine_));
  const uint64_t threads = options_.memcpy_threads > 0 ? options_.memcpy_threads : plan.threads;
  const auto movers = MemcpyMovers(plan, regions.copy(0), regions.copy(1), threads);
  HIXLD_ASSIGN_OR_RETURN(
      const std::unique_ptr<RoundResult> copied,
      RunRound(movers, BudgetOf(result.memcpy.values.size(), 0), [this] { return WatchTarget(); }));
  Add(result.memcpy, copied->gigabytes_per_second(),
      round.gigabytes_per_second() / copied->gigabytes_per_second());
  return absl::OkStatus();
}

absl::Status CaseRunner::CompareSocket(const Plan& plan, const RoundResult& round,
                                       CaseResult& result) {
  if (!Wanted(Baseline::kSocket)) return absl::OkStatus();
  for (const bool zero_copy : {false, true}) {
    const PumpOrder order = {options_.streams, plan.op == Op::kRead, zero_copy, options_.duration};
    HIXLD_ASSIGN_OR_RETURN(const double rate, RunPump(target_, order));
    Add(zero_copy ? result.socket_zero_copy : result.socket, rate,
        round.gigabytes_per_second() / rate);
  }
  return absl::OkStatus();
}

absl::Status CaseRunner::CompareGrpc(const Plan& plan, const RoundResult& round,
                                     CaseResult& result) {
  if (!Wanted(Baseline::kGrpc)) return absl::OkStatus();
  if (grpc_ == nullptr) {
    HIXLD_ASSIGN_OR_RETURN(grpc_, GrpcEcho::Create());
  }
  const auto movers = grpc_->Movers(plan.threads, plan.batch * kDescriptorBytes);
  return CompareTime(movers, round, result.grpc);
}

absl::Status CaseRunner::CompareWake(const Plan& plan, const RoundResult& round,
                                     CaseResult& result) {
  if (!Wanted(Baseline::kWake)) return absl::OkStatus();
  HIXLD_ASSIGN_OR_RETURN(const auto movers, WakeMovers(plan.threads));
  return CompareTime(movers, round, result.wake);
}

absl::Status CaseRunner::CompareTime(const std::vector<std::unique_ptr<Mover>>& movers,
                                     const RoundResult& round, Comparison& comparison) {
  HIXLD_ASSIGN_OR_RETURN(
      const std::unique_ptr<RoundResult> called,
      RunRound(movers, BudgetOf(comparison.values.size(), 0), [this] { return WatchTarget(); }));
  const double call = called->latency.Quantile(0.5);
  const double transfer = std::max(round.latency.Quantile(0.5), 1.0);
  Add(comparison, call / 1000, call / transfer);
  return absl::OkStatus();
}

bool CaseRunner::Wanted(Baseline baseline) const {
  return std::find(options_.baselines.begin(), options_.baselines.end(), baseline) !=
         options_.baselines.end();
}

RoundBudget CaseRunner::BudgetOf(uint64_t round, uint64_t depth) const {
  // Later rounds have only caches to warm.
  const int64_t warmup = round == 0 ? options_.warmup : options_.warmup / 10;
  return {warmup, options_.duration, options_.iterations, depth, options_.pause};
}

absl::Status CaseRunner::WatchTarget() const {
  return target_.PeerGone(0) ? Failed("the side channel is closed") : absl::OkStatus();
}

}  // namespace hixld::bench
