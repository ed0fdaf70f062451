#include "client/bench/report.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/bench/parse.h"
#include "proto/base/status.h"
#include "proto/base/version.h"

namespace hixld::bench {
namespace {

constexpr double kQuantiles[] = {0.5, 0.9, 0.99};

std::string Micros(double nanos) {
  const double micros = nanos / 1000;
  if (micros < 10) return absl::StrFormat("%.2f", micros);
  if (micros < 100) return absl::StrFormat("%.1f", micros);
  return absl::StrFormat("%.0f", micros);
}

std::string Value(const Comparison& comparison) {
  return absl::StrFormat("%.2f", Median(comparison.values));
}

std::string Ratio(const Comparison& comparison) {
  return absl::StrFormat("%.2f", Median(comparison.ratios));
}

void AddComparison(nlohmann::ordered_json& json, const char* name, const char* unit,
                   const Comparison& comparison) {
  if (!comparison.measured) return;
  json[name] = {{unit, Median(comparison.values)},
                {"ratio", Median(comparison.ratios)},
                {"rounds", comparison.values}};
}

}  // namespace

std::string MemoryText(const Case& what) {
  const std::string& here = MemoryNames()[static_cast<size_t>(what.memory)];
  const std::string& there = MemoryNames()[static_cast<size_t>(what.target_memory)];
  return here == there ? here : absl::StrCat(here, ">", there);
}

Table::Table(std::FILE* out, const InitiatorOptions& options)
    : out_(out), path_(!options.paths.empty()) {
  for (const Baseline baseline : options.baselines) {
    memcpy_ |= baseline == Baseline::kMemcpy;
    socket_ |= baseline == Baseline::kSocket;
    grpc_ |= baseline == Baseline::kGrpc;
    wake_ |= baseline == Baseline::kWake;
  }
}

void Table::Header() const {
  if (path_) absl::FPrintF(out_, "%-6s ", "path");
  absl::FPrintF(out_, "%-5s %-12s %-10s %7s %7s %3s %5s | %7s %7s %7s | %7s %7s %7s %8s", "op",
                "memory", "layout", "block", "batch", "thr", "depth", "GB/s", "op/s", "block/s",
                "p50 us", "p90 us", "p99 us", "max us");
  if (memcpy_) absl::FPrintF(out_, " | %7s %6s", "memcpy", "ratio");
  if (socket_) absl::FPrintF(out_, " | %7s %6s %7s %6s", "socket", "ratio", "sock-zc", "ratio");
  if (grpc_) absl::FPrintF(out_, " | %7s %6s", "gRPC us", "times");
  if (wake_) absl::FPrintF(out_, " | %7s %6s", "wake us", "times");
  absl::FPrintF(out_, "\n");
  std::fflush(out_);
}

void Table::Row(const CaseResult& result) const {
  const Plan& plan = result.what.plan;
  if (path_) absl::FPrintF(out_, "%-6s ", PathNames()[static_cast<size_t>(*result.what.path)]);
  absl::FPrintF(out_, "%-5s %-12s %-10s %7s %7d %3d %5s | %7.2f %7s %7s | %7s %7s %7s %8s",
                OpNames()[static_cast<size_t>(plan.op)], MemoryText(result.what),
                LayoutNames()[static_cast<size_t>(plan.layout)], FormatSize(plan.block), plan.batch,
                plan.threads, result.what.depth == 0 ? "sync" : absl::StrCat(result.what.depth),
                Median(result.gigabytes), FormatRate(Median(result.transfers)),
                FormatRate(Median(result.blocks)), Micros(result.latency.Quantile(0.5)),
                Micros(result.latency.Quantile(0.9)), Micros(result.latency.Quantile(0.99)),
                Micros(static_cast<double>(result.latency.max())));
  if (memcpy_) absl::FPrintF(out_, " | %7s %6s", Value(result.memcpy), Ratio(result.memcpy));
  if (socket_) {
    absl::FPrintF(out_, " | %7s %6s %7s %6s", Value(result.socket), Ratio(result.socket),
                  Value(result.socket_zero_copy), Ratio(result.socket_zero_copy));
  }
  if (grpc_) absl::FPrintF(out_, " | %7s %6s", Value(result.grpc), Ratio(result.grpc));
  if (wake_) absl::FPrintF(out_, " | %7s %6s", Value(result.wake), Ratio(result.wake));
  absl::FPrintF(out_, "\n");
  std::fflush(out_);
}

std::string JsonLine(const CaseResult& result, const InitiatorOptions& options) {
  const Plan& plan = result.what.plan;
  nlohmann::ordered_json json = {
      {"version", kVersion},
      {"op", OpNames()[static_cast<size_t>(plan.op)]},
      {"memory", MemoryNames()[static_cast<size_t>(result.what.memory)]},
      {"target_memory", MemoryNames()[static_cast<size_t>(result.what.target_memory)]},
      {"layout", LayoutNames()[static_cast<size_t>(plan.layout)]},
      {"block_bytes", plan.block},
      {"batch", plan.batch},
      {"threads", plan.threads},
      {"depth", result.what.depth},
      {"transfers_per_pass", plan.transfers_per_thread()},
      {"batch_as", BatchFormNames()[static_cast<size_t>(options.form)]},
      {"checked", options.check},
      {"gb_per_s", Median(result.gigabytes)},
      {"transfers_per_s", Median(result.transfers)},
      {"blocks_per_s", Median(result.blocks)},
      {"transfers", result.latency.count()},
  };
  if (result.what.path) json["path"] = PathNames()[static_cast<size_t>(*result.what.path)];
  if (!options.label.empty()) json["label"] = options.label;
  if (options.pause > 0) json["pause_us"] = static_cast<double>(options.pause) / 1000;
  if (!options.kv_name.empty()) json["model"] = options.kv_name;
  for (const double quantile : kQuantiles) {
    json[absl::StrFormat("p%.0f_us", quantile * 100)] = result.latency.Quantile(quantile) / 1000;
  }
  json["max_us"] = static_cast<double>(result.latency.max()) / 1000;
  json["rounds_gb_per_s"] = result.gigabytes;
  AddComparison(json, "memcpy", "gb_per_s", result.memcpy);
  AddComparison(json, "socket", "gb_per_s", result.socket);
  AddComparison(json, "socket_zero_copy", "gb_per_s", result.socket_zero_copy);
  AddComparison(json, "grpc", "p50_us", result.grpc);
  AddComparison(json, "wake", "p50_us", result.wake);
  return json.dump();
}

absl::Status CheckWritable(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return ErrnoError(errno, path);
  std::fclose(file);
  return absl::OkStatus();
}

absl::Status AppendLine(const std::string& path, const std::string& line) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return ErrnoError(errno, path);
  const bool written = std::fprintf(file, "%s\n", line.c_str()) >= 0;
  if (std::fclose(file) != 0 || !written) return ErrnoError(errno, path);
  return absl::OkStatus();
}

}  // namespace hixld::bench
