// The target on this machine, started by the initiator.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/bench/options.h"
#include "client/bench/target.h"
#include "client/bench/threads.h"

namespace hixld::bench {

class SelfTarget {
 public:
  virtual ~SelfTarget() = default;
  // "ip:port" of its side channel.
  virtual std::string address() const = 0;
  // Waits for its end after "end" was said; its error, if it had one.
  virtual absl::Status Finish() = 0;
};

// A second process running this program; killed by the destructor if it still runs.
absl::StatusOr<std::unique_ptr<SelfTarget>> StartTargetProcess(const EngineOptions& engine);
// A second engine and a thread in this process.
absl::StatusOr<std::unique_ptr<SelfTarget>> StartTargetThread(const EngineOptions& engine);

}  // namespace hixld::bench
