#include "daemon/direct/direct_gate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {

absl::StatusOr<std::shared_ptr<DirectGate>> DirectGate::Create(std::shared_ptr<DirectCopier> copier,
                                                               Plan plan, UniqueFd* memory) {
  HIXLD_ASSIGN_OR_RETURN(auto keeper,
                         direct::Keeper::Create({.regions = plan.regions,
                                                 .files = static_cast<uint32_t>(plan.files.size()),
                                                 .max_bytes = plan.max_bytes,
                                                 .max_descriptors = plan.max_descriptors,
                                                 .target_pid = plan.target_pid,
                                                 .now_ns = MonotonicNanos()},
                                                memory));
  return std::shared_ptr<DirectGate>(
      new DirectGate(std::move(copier), std::move(keeper), std::move(plan)));
}

DirectGate::DirectGate(std::shared_ptr<DirectCopier> copier, std::unique_ptr<direct::Keeper> keeper,
                       Plan plan)
    : copier_(std::move(copier)),
      keeper_(std::move(keeper)),
      target_pidfd_(plan.target_pidfd),
      patience_ns_(plan.patience_ns),
      files_(std::move(plan.files)),
      pin_(std::move(plan.pin)),
      on_empty_(std::move(plan.on_empty)) {}

DirectGate::~DirectGate() { keeper_->Close(); }

absl::StatusOr<DirectGate::File> DirectGate::FindFile(uint32_t index,
                                                      std::shared_ptr<const void>* pin) const {
  MutexLock lock(&mutex_);
  if (!closed_ && index < files_.size()) {
    *pin = pin_;
    return files_[index];
  }
  return ParamInvalid(
      closed_ ? absl::StrCat("the grant was taken back")
              : absl::StrCat("the grant has ", files_.size(), " files, not number ", index),
      {.object = "GetDirectFile.file", .allowed = "files of an open grant"});
}

bool DirectGate::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

void DirectGate::Close(absl::AnyInvocable<void(absl::Status)> left) {
  uint64_t waiter = 0;
  {
    MutexLock lock(&mutex_);
    if (!closed_) keeper_->Close();
    closed_ = true;
    if (!empty_) {
      waiter = next_waiter_++;
      waiters_.emplace(waiter, std::move(left));
    }
  }
  if (waiter == 0) return left(absl::OkStatus());
  if (Look()) return;
  // Somebody is inside. Who leaves between the look and the watch is seen by the second look.
  copier_->Watch(shared_from_this());
  if (!Look()) StartTimer(waiter);
}

bool DirectGate::Look() {
  std::map<uint64_t, absl::AnyInvocable<void(absl::Status)>> waiters;
  std::shared_ptr<const void> pin;
  absl::AnyInvocable<void(DirectGate*)> on_empty;
  {
    MutexLock lock(&mutex_);
    if (!closed_) return false;
    if (!empty_) {
      if (!copier_->ended() && !keeper_->Empty()) return false;
      empty_ = true;
      files_.clear();
      on_empty = std::move(on_empty_);
      pin = std::move(pin_);
    }
    waiters.swap(waiters_);
  }
  if (on_empty) on_empty(this);
  for (auto& [id, left] : waiters) left(absl::OkStatus());
  return true;
}

void DirectGate::StartTimer(uint64_t waiter) {
  Loop* const loop = copier_->loop();
  loop->Post(
      [loop, waiter, deadline_ns = MonotonicNanos() + patience_ns_, weak = weak_from_this()] {
        loop->AddTimer(deadline_ns, [weak, waiter] {
          if (const auto self = weak.lock()) self->GiveUp(waiter);
        });
      });
}

void DirectGate::GiveUp(uint64_t waiter) {
  // A client whose last words were lost is not held against it.
  if (Look()) return;
  absl::AnyInvocable<void(absl::Status)> left;
  {
    MutexLock lock(&mutex_);
    const auto found = waiters_.find(waiter);
    if (found == waiters_.end()) return;
    left = std::move(found->second);
    waiters_.erase(found);
  }
  LogWarn("a client does not leave memory that it copies to", {{"client", copier_->name()}});
  left(Failed(absl::StrCat(copier_->name(), " still copies from or to the memory, after ",
                           patience_ns_ / kNanosPerMilli, " ms"),
              {.object = copier_->name(), .option = "local.direct_patience"}));
}

direct::Counts DirectGate::TakeCounts() {
  MutexLock lock(&counts_mutex_);
  return keeper_->Take(MonotonicNanos());
}

}  // namespace hixld
