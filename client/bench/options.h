// What the command line asks for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/bench/geometry.h"
#include "client/bench/plan.h"
#include "proto/base/clock.h"

namespace hixld::bench {

enum class MemoryKind {
  kPool,    // from the daemon's pool
  kMemfd,   // a memfd of this process, registered by descriptor
  kPlain,   // anonymous memory of this process
  kDevice,  // from the pool of the engine's device
};
const std::vector<std::string>& MemoryNames();

// How small synchronous transfers within one daemon go.
enum class Path {
  kDirect,  // copied by the initiator's own thread, where the daemon grants it
  kRing,    // handed to the daemon (HIXLD_DIRECT=off)
};
const std::vector<std::string>& PathNames();

enum class Baseline { kMemcpy, kSocket, kGrpc, kWake };
const std::vector<std::string>& BaselineNames();

// How one side's engine is made.
struct EngineOptions {
  // "ip" or "ip:port". Empty in the initiator: the address by which it reaches the target.
  std::string engine;
  // The daemon's socket; empty: as the client library finds it.
  std::string socket;
  int32_t device = -1;
  // Handed to Hixl::Initialize.
  std::map<std::string, std::string> settings;
};

struct TargetOptions {
  EngineOptions engine;
  // "ip:port" of the side channel; empty: the engine's address and a free port.
  std::string listen;
  // A listening socket to use instead, from the process that started this one; -1: none.
  int listen_fd = -1;
  // Wait for the next initiator when one has gone.
  bool serve = false;
  uint64_t max_memory = uint64_t{16} << 30;
};

struct InitiatorOptions {
  EngineOptions engine;
  // "ip:port" of the target's side channel. Empty with `self`.
  std::string target;
  // Starts the target on this machine: as a process of its own, or in this one.
  bool self = false;
  bool one_process = false;
  std::string target_socket;

  std::vector<Op> ops = {Op::kRead, Op::kWrite};
  std::vector<Layout> layouts = {Layout::kContiguous};
  std::vector<uint64_t> blocks = {4096, 65536, 1 << 20};
  std::vector<uint64_t> batches = {1};
  std::vector<uint64_t> threads = {1};
  // 0: synchronous; else transfers that each thread keeps under way.
  std::vector<uint64_t> depths = {0};
  std::vector<MemoryKind> memory = {MemoryKind::kPool};
  // Empty: as `memory`.
  std::vector<MemoryKind> target_memory;
  // Empty: as the environment says (HIXLD_DIRECT).
  std::vector<Path> paths;
  // Bytes per thread over which transfers walk; 0: the same blocks again and again.
  uint64_t working_set = 0;
  BatchForm form = BatchForm::kDescriptors;
  // Blocks come from a model's KV cache instead of `blocks`; tensors 0: they do not.
  KvShape kv;
  std::string kv_name;

  int64_t warmup = 200 * kNanosPerMilli;
  // Of one round.
  int64_t duration = 500 * kNanosPerMilli;
  // Transfers per thread and round; 0: by duration.
  uint64_t iterations = 0;
  // Between two transfers of a thread, not counted; only synchronous.
  int64_t pause = 0;
  uint64_t rounds = 5;
  int32_t timeout_ms = 10'000;
  uint64_t seed = 1;
  bool check = false;

  std::vector<Baseline> baselines;
  // Streams of the socket baseline.
  uint64_t streams = 2;
  // Threads of the memcpy baseline; 0: as many as the case has.
  uint64_t memcpy_threads = 0;

  std::string jsonl;
  // Written into each JSON line, to tell runs apart.
  std::string label;
  std::string plot;
  bool quiet = false;
};

struct CommandLine {
  enum class Role { kInitiator, kTarget, kShown };
  // kShown: help, a list or the version was printed to `text`, nothing is left to do.
  Role role = Role::kShown;
  std::string text;
  InitiatorOptions initiator;
  TargetOptions target;
};

// Arguments without the program's name. PARAM_INVALID names the option and the allowed values.
absl::StatusOr<CommandLine> ParseCommandLine(std::vector<std::string> arguments);

}  // namespace hixld::bench
