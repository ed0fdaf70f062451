#include "daemon/direct/direct_copier.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/direct/direct_gate.h"
#include "daemon/telemetry/log.h"
#include "proto/base/status.h"

namespace hixld {

absl::StatusOr<std::shared_ptr<DirectCopier>> DirectCopier::Create(Loop* loop, std::string name,
                                                                   UniqueFd pidfd) {
  auto descriptors = std::make_shared<Descriptors>();
  descriptors->wake.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!descriptors->wake.valid()) return ErrnoError(errno, "eventfd");
  descriptors->pidfd = std::move(pidfd);
  auto copier = std::shared_ptr<DirectCopier>(
      new DirectCopier(loop, std::move(name), std::move(descriptors)));
  copier->StartWatching();
  return copier;
}

void DirectCopier::StartWatching() {
  loop_->Post([loop = loop_, name = name_, descriptors = descriptors_, weak = weak_from_this()] {
    absl::Status added = loop->AddFd(descriptors->wake.get(), EPOLLIN, [weak](uint32_t) {
      if (const auto self = weak.lock()) self->OnWake();
    });
    // A pidfd becomes readable when its process ends.
    if (added.ok()) {
      added = loop->AddFd(descriptors->pidfd.get(), EPOLLIN, [weak](uint32_t) {
        if (const auto self = weak.lock()) self->OnEnd();
      });
    }
    if (!added.ok())
      LogError("cannot watch a copying client", {{"client", name}, {"error", added}});
  });
}

DirectCopier::~DirectCopier() {
  loop_->Post([loop = loop_, descriptors = descriptors_] {
    loop->RemoveFd(descriptors->wake.get());
    loop->RemoveFd(descriptors->pidfd.get());
  });
}

uint64_t DirectCopier::Add(const std::shared_ptr<DirectGate>& gate) {
  MutexLock lock(&mutex_);
  std::erase_if(gates_, [](const auto& entry) { return entry.second.expired(); });
  gates_.emplace(next_id_, gate);
  return next_id_++;
}

std::shared_ptr<DirectGate> DirectCopier::Find(uint64_t id) const {
  MutexLock lock(&mutex_);
  const auto found = gates_.find(id);
  return found == gates_.end() ? nullptr : found->second.lock();
}

size_t DirectCopier::occupied() const {
  MutexLock lock(&mutex_);
  return watched_.size();
}

void DirectCopier::Watch(const std::shared_ptr<DirectGate>& gate) {
  MutexLock lock(&mutex_);
  std::erase_if(watched_, [](const auto& entry) { return entry.second.expired(); });
  watched_[gate.get()] = gate;
}

void DirectCopier::OnWake() {
  uint64_t count;
  // Nobody else reads it; nothing there is fine too.
  [[maybe_unused]] const ssize_t got = read(descriptors_->wake.get(), &count, sizeof(count));
  LookAtGates();
}

void DirectCopier::OnEnd() {
  ended_.store(true, std::memory_order_release);
  // It stays readable for ever.
  loop_->RemoveFd(descriptors_->pidfd.get());
  LookAtGates();
}

void DirectCopier::LookAtGates() {
  std::vector<std::shared_ptr<DirectGate>> watched;
  {
    MutexLock lock(&mutex_);
    for (const auto& [raw, weak] : watched_) {
      if (auto gate = weak.lock()) watched.push_back(std::move(gate));
    }
  }
  std::vector<DirectGate*> empty;
  for (const auto& gate : watched) {
    if (gate->Look()) empty.push_back(gate.get());
  }
  MutexLock lock(&mutex_);
  for (DirectGate* gate : empty) watched_.erase(gate);
}

}  // namespace hixld
