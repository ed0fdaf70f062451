// What a Hixl object holds.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/engine.h"
#include "client/cpp/process.h"
#include "hixl/hixl.h"
#include "hixl/hixl_ext.h"
#include "proto/base/mutex.h"

namespace hixl {

class __attribute__((visibility("hidden"))) Hixl::HixlImpl {
 public:
  // The engine; FAILED when there is none, or when it belongs to the parent process.
  absl::StatusOr<std::shared_ptr<hixld::client::Engine>> Live() const;
  absl::Status Initialize(const AscendString& local_engine,
                          const std::map<AscendString, AscendString>& options,
                          const InitializeExtArgs& args);
  void Finalize();
  // nullptr when there is none.
  std::shared_ptr<hixld::client::Engine> Current() const;
  // The object was made by the process that this one was forked from.
  bool inherited() const { return hixld::client::ForkGeneration() != generation_; }

 private:
  const pid_t owner_ = getpid();
  const uint64_t generation_ = hixld::client::ForkGeneration();
  // One Initialize at a time.
  hixld::Mutex initialize_mutex_;
  // Guards the engine pointer.
  mutable hixld::Mutex mutex_;
  std::shared_ptr<hixld::client::Engine> engine_ ABSL_GUARDED_BY(mutex_);
};

inline hixld::client::TransferDirection DirectionOf(TransferOp operation) {
  return operation == READ ? hixld::client::TransferDirection::kRead
                           : hixld::client::TransferDirection::kWrite;
}

inline hixld::client::MemoryKind KindOf(MemType type) {
  return type == MEM_DEVICE ? hixld::client::MemoryKind::kDevice : hixld::client::MemoryKind::kHost;
}

// PARAM_INVALID for a number that is none of the enum's.
absl::Status CheckOp(TransferOp operation);
absl::Status CheckType(MemType type);

}  // namespace hixl
