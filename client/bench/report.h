// Results, and how they are shown: a table for people, JSON lines for programs.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/bench/latency.h"
#include "client/bench/options.h"
#include "client/bench/plan.h"

namespace hixld::bench {

// One point of the sweep.
struct Case {
  Plan plan;
  MemoryKind memory = MemoryKind::kPool;
  MemoryKind target_memory = MemoryKind::kPool;
  uint64_t depth = 0;
  // Not told: as the environment says.
  std::optional<Path> path;
};

// A baseline beside a case. Ratios are taken round by round, then the median.
struct Comparison {
  bool measured = false;
  std::vector<double> values;  // gigabytes per second; gRPC, wake: median microseconds
  std::vector<double>
      ratios;  // hixld over the baseline; gRPC, wake: how many times faster hixld is
};

struct CaseResult {
  Case what;
  std::vector<double> gigabytes;  // per second, one per round
  std::vector<double> transfers;  // per second
  std::vector<double> blocks;     // per second
  LatencyHistogram latency;       // of all rounds
  Comparison memcpy;
  Comparison socket;
  Comparison socket_zero_copy;
  Comparison grpc;
  Comparison wake;
};

// Prints a line per result as soon as it is there.
class Table {
 public:
  Table(std::FILE* out, const InitiatorOptions& options);
  void Header() const;
  void Row(const CaseResult& result) const;

 private:
  std::FILE* const out_;
  bool path_ = false;
  bool memcpy_ = false;
  bool socket_ = false;
  bool grpc_ = false;
  bool wake_ = false;
};

// One object in one line. `model` is the name of the KV cache's model or empty.
std::string JsonLine(const CaseResult& result, const InitiatorOptions& options);

// Whether the file can be written; makes it where there is none, changes nothing else.
absl::Status CheckWritable(const std::string& path);

// Appends `line` to the file.
absl::Status AppendLine(const std::string& path, const std::string& line);

std::string MemoryText(const Case& what);

}  // namespace hixld::bench
