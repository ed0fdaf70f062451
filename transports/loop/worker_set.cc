#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"
#include "transports/loop/loop.h"

namespace hixld {

absl::StatusOr<std::unique_ptr<WorkerSet>> WorkerSet::Start(uint32_t count, int64_t max_spin_ns) {
  if (count == 0) {
    return ParamInvalid("a worker set needs at least one worker",
                        {.object = "worker count", .allowed = "1.."});
  }
  auto workers = std::make_unique<WorkerSet>();
  for (uint32_t i = 0; i < count; ++i) {
    HIXLD_ASSIGN_OR_RETURN(
        auto loop, Loop::Start({.name = absl::StrCat("hixld-w", i), .max_spin_ns = max_spin_ns}));
    workers->loops_.push_back(std::move(loop));
  }
  return workers;
}

WorkerSet::~WorkerSet() {
  for (auto& loop : loops_) loop->Stop();
  for (bool dropped = true; dropped;) {
    dropped = false;
    for (auto& loop : loops_) dropped |= loop->DropTasks();
  }
}

}  // namespace hixld
