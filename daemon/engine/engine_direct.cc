// Copies that clients of this daemon make by themselves: grants, their end, and what was copied.
#include <shared_mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/engine/direct_plan.h"
#include "daemon/engine/direct_verdict.h"
#include "daemon/engine/engine.h"
#include "daemon/telemetry/transfer_metrics.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// Closed gates that one client may still be inside of.
constexpr size_t kMaxOccupied = 64;

}  // namespace

absl::StatusOr<Engine::ChannelRef> Engine::DirectChannel(uint64_t channel_id,
                                                         std::shared_ptr<Engine>* target) {
  const std::string object = absl::StrCat("channel ", channel_id);
  MutexLock lock(&mutex_);
  const auto found = by_key_.find(channel_id);
  if (found == by_key_.end() || !found->second->established) {
    return NotConnected(absl::StrCat("engine ", identity_.id, " has no ", object),
                        {.object = object});
  }
  const ChannelRef& channel = found->second;
  if (channel->remote != nullptr) {
    return Unsupported(absl::StrCat("engine ", channel->remote_engine, " is on another daemon"),
                       {.object = object});
  }
  if (channel->rule != nullptr) {
    return Unsupported("what the products allow is checked by the daemon, transfer by transfer",
                       {.object = object, .option = "devices.sim.product_limits"});
  }
  *target = channel->local.lock();
  if (*target == nullptr || !(*target)->open()) {
    return Failed(absl::StrCat("engine ", channel->remote_engine, " is closed"),
                  {.object = object});
  }
  return channel;
}

absl::Status Engine::MayGrant(const Engine& target, const DirectCopier& copier) const {
  if (context_->direct.max_bytes == 0) {
    return Unsupported("clients do not copy by themselves here",
                       {.object = "direct copies", .option = "local.direct"});
  }
  if (identity_.pid == 0 || target.identity_.pid == 0 || identity_.uid != target.identity_.uid) {
    return Unsupported(
        absl::StrCat("engines ", identity_.id, " and ", target.identity_.id,
                     " do not belong to processes of one user that are visible here"),
        {.object = absl::StrCat("engine ", target.identity_.id), .option = "local.direct"});
  }
  if (copier.occupied() >= kMaxOccupied) {
    return ResourceExhausted(
        absl::StrCat(copier.name(), " is still inside ", kMaxOccupied, " gates that are closed"),
        {.object = copier.name(), .limit = absl::StrCat(kMaxOccupied, " gates")});
  }
  return absl::OkStatus();
}

absl::StatusOr<DirectGrant> Engine::GrantDirect(uint64_t channel_id,
                                                std::shared_ptr<DirectCopier> copier) {
  std::shared_ptr<Engine> target;
  HIXLD_ASSIGN_OR_RETURN(const ChannelRef channel, DirectChannel(channel_id, &target));
  HIXLD_RETURN_IF_ERROR(MayGrant(*target, *copier));
  HIXLD_ASSIGN_OR_RETURN(DirectGrant grant, MakeGrant(channel, target, std::move(copier)));
  const absl::Status kept = KeepGrant(channel, grant.gate);
  if (kept.ok()) return grant;
  grant.gate->Close([](const absl::Status&) {});
  return kept;
}

absl::StatusOr<DirectGrant> Engine::MakeGrant(const ChannelRef& channel,
                                              const std::shared_ptr<Engine>& target,
                                              std::shared_ptr<DirectCopier> copier) {
  // Whoever removes a region after this sees the grant.
  std::shared_lock<FairSharedMutex> planning(target->planning_);
  if (!target->open()) return target->ClosedError();
  const std::shared_ptr<const RegionSnapshot> regions = target->regions_.Load();
  DirectGate::Plan plan =
      PlanDirect(*regions, target->identity_.session_id == identity_.session_id);
  plan.max_bytes = context_->direct.max_bytes;
  plan.max_descriptors = context_->limits.max_descriptors_per_transfer;
  plan.patience_ns = context_->direct.patience_ns;
  plan.pin = regions;
  plan.on_empty = [initiator = weak_from_this(), target = target->weak_from_this(),
                   channel = std::weak_ptr<Channel>(channel)](DirectGate* gate) {
    const auto engine = initiator.lock();
    const auto copied = channel.lock();
    if (engine != nullptr && copied != nullptr) engine->CountDirect(copied.get(), gate);
    if (const auto owner = target.lock()) owner->DropGranted(gate);
  };
  DirectGrant grant;
  grant.pin = regions;
  HIXLD_ASSIGN_OR_RETURN(grant.gate,
                         DirectGate::Create(std::move(copier), std::move(plan), &grant.memory));
  {
    MutexLock lock(&target->mutex_);
    if (target->closing_) return target->ClosedError();
    target->granted_.emplace(grant.gate.get(), grant.gate);
  }
  // What was registered between the look and the entry in the books is told here.
  if (target->regions_.Load()->version() != regions->version()) grant.gate->NoteMoreRegions();
  return grant;
}

absl::Status Engine::KeepGrant(const ChannelRef& channel, const std::shared_ptr<DirectGate>& gate) {
  std::shared_ptr<DirectGate> former;
  {
    MutexLock lock(&mutex_);
    const auto found = channels_.find(channel->remote_engine);
    if (closing_ || found == channels_.end() || found->second != channel) {
      return NoChannel(identity_.id, channel->remote_engine);
    }
    former = std::exchange(channel->direct, gate);
  }
  if (former != nullptr) former->Close([](const absl::Status&) {});
  return absl::OkStatus();
}

void Engine::DropGranted(DirectGate* gate) {
  std::shared_ptr<DirectGate> dropped;
  MutexLock lock(&mutex_);
  const auto found = granted_.find(gate);
  if (found == granted_.end()) return;
  dropped = std::move(found->second);
  granted_.erase(found);
}

void Engine::NoteMoreRegions() {
  MutexLock lock(&mutex_);
  for (const auto& [raw, gate] : granted_) gate->NoteMoreRegions();
}

void Engine::CloseGranted(bool all, const std::shared_ptr<DirectVerdict>& verdict,
                          const GateRef& gate) {
  std::vector<std::shared_ptr<DirectGate>> granted;
  {
    MutexLock lock(&mutex_);
    for (const auto& [raw, grant] : granted_) {
      if (all || grant->closed()) granted.push_back(grant);
    }
  }
  for (const auto& grant : granted) {
    grant->Close([verdict, gate](const absl::Status& left) {
      if (verdict != nullptr) verdict->Note(left);
    });
  }
}

void Engine::CountDirect(Channel* channel, DirectGate* direct) {
  const direct::Counts counts = direct->TakeCounts();
  const uint64_t transfers = counts.reads + counts.writes;
  const uint64_t bytes = counts.bytes_read + counts.bytes_written;
  for (auto* sum : {&channel->transfers, &channel->direct_transfers}) {
    sum->fetch_add(transfers, std::memory_order_relaxed);
  }
  for (auto* sum : {&channel->bytes, &channel->direct_bytes}) {
    sum->fetch_add(bytes, std::memory_order_relaxed);
  }
  completed_.fetch_add(transfers, std::memory_order_relaxed);
  bytes_read_.fetch_add(counts.bytes_read, std::memory_order_relaxed);
  bytes_written_.fetch_add(counts.bytes_written, std::memory_order_relaxed);
  context_->log->CopiedByClient(counts);
  if (context_->metrics == nullptr) return;
  context_->metrics->CountDirect(/*read=*/true, counts.reads, counts.bytes_read,
                                 counts.descriptors_read);
  context_->metrics->CountDirect(/*read=*/false, counts.writes, counts.bytes_written,
                                 counts.descriptors_written);
}

void Engine::CountDirect() {
  std::vector<std::pair<ChannelRef, std::shared_ptr<DirectGate>>> direct;
  {
    MutexLock lock(&mutex_);
    for (const auto& [name, channel] : channels_) {
      if (channel->direct != nullptr) direct.emplace_back(channel, channel->direct);
    }
  }
  for (const auto& [channel, gate] : direct) CountDirect(channel.get(), gate.get());
}

}  // namespace hixld
