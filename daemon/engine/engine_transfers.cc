// Transfers of an engine (contract 1.8, 1.9).
#include <algorithm>
#include <shared_mutex>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/pending_transfer.h"
#include "daemon/engine/relay_rounds.h"
#include "daemon/telemetry/log.h"
#include "daemon/telemetry/transfer_metrics.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixld {
namespace {

constexpr char kAbandoned[] = "the caller went away during the transfer";

// The regions that hold the addresses, as many as a verdict has room for. Of many regions each
// answer begins with another one, so that a client which asks again comes to know all.
using Extents = absl::InlinedVector<ring::Extent, 2>;
Extents ExtentsOf(const RegionSnapshot& regions, absl::Span<const uint64_t> addresses,
                  uint64_t turn) {
  constexpr size_t kMost = ring::kMaxExtents / 2;
  Extents extents;
  const Region* last = nullptr;
  for (size_t i = 0; i < addresses.size() && extents.size() < kMost; ++i) {
    const uint64_t address = addresses[(turn + i) % addresses.size()];
    if (last != nullptr && address >= last->address && address < last->end()) continue;
    last = RegionAt(regions, address);
    if (last == nullptr) continue;
    const ring::Extent extent = {.begin = last->address, .end = last->end()};
    const auto same = [&](const ring::Extent& e) { return e.begin == extent.begin; };
    if (std::none_of(extents.begin(), extents.end(), same)) extents.push_back(extent);
  }
  return extents;
}

}  // namespace

absl::AnyInvocable<void()> Engine::TransferSync(TransferArgs args, SyncDone done) {
  auto pending = std::make_shared<Pending>();
  pending->sync_done = std::move(done);
  Begin(pending, std::move(args));
  return [pending] { pending->Abandon(); };
}

void Engine::TransferAsync(TransferArgs args,
                           absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) {
  auto pending = std::make_shared<Pending>();
  pending->async_done = std::move(done);
  Begin(pending, std::move(args));
}

void Engine::Begin(const PendingRef& pending, TransferArgs args) {
  pending->engine = shared_from_this();
  if (!open()) return pending->Refuse(ClosedError());
  if (args.owned) {
    pending->owned = *std::move(args.owned);
    pending->waited = true;
    args.batch = pending->owned.view();
  }
  const absl::Status shape = CheckBatch(args.batch, context_->limits.max_descriptors_per_transfer);
  if (!shape.ok()) return pending->Refuse(shape);
  pending->remote_engine = args.remote_engine;
  pending->channel_id = args.channel_id;
  pending->direction = args.direction;
  pending->user_data = args.user_data;
  pending->may_relay = args.may_relay;
  pending->on_accepted = std::move(args.on_accepted);
  if (args.timeout_ns > 0) {
    const int64_t now = MonotonicNanos();
    pending->deadline_ns =
        args.timeout_ns < kNoDeadline - now ? now + args.timeout_ns : kNoDeadline;
  }
  if (pending->channel_id == 0) {
    const auto endpoint = ParseEndpoint(args.remote_engine);
    if (endpoint.ok()) pending->name = endpoint->ToString();
  }
  Run(pending, args.batch);
}

Engine::ChannelRef Engine::FindChannel(const Pending& pending) {
  if (pending.channel_id == 0) {
    const auto found = channels_.find(pending.name);
    return found == channels_.end() ? nullptr : found->second;
  }
  const auto found = by_key_.find(pending.channel_id);
  return found == by_key_.end() ? nullptr : found->second;
}

void Engine::Run(const PendingRef& pending, const BatchView& batch) {
  ChannelRef channel;
  std::shared_ptr<RemoteChannel> remote;
  std::shared_ptr<TransferRoute> route;
  std::shared_ptr<Engine> target;
  std::shared_ptr<const LinkRule> rule;
  bool is_open = false;
  {
    MutexLock lock(&mutex_);
    channel = FindChannel(*pending);
    if (channel != nullptr && !channel->established && !options_.auto_connect) channel = nullptr;
    if (channel != nullptr) {
      if (pending->remote_engine.empty()) pending->remote_engine = channel->remote_engine;
      is_open = IsOpen(*channel);
      remote = channel->remote;
      route = channel->remote_route;
      rule = channel->rule;
      if (is_open) target = channel->local.lock();
    }
  }
  if (!open()) return pending->Refuse(ClosedError());
  if (channel == nullptr && (!options_.auto_connect || pending->remote_engine.empty())) {
    const std::string remote_name = pending->remote_engine.empty()
                                        ? absl::StrCat("channel ", pending->channel_id)
                                        : absl::StrCat("engine ", pending->remote_engine);
    return pending->Refuse(
        NotConnected(absl::StrCat("engine ", identity_.id, " is not connected to ", remote_name),
                     {.object = remote_name}));
  }
  if (batch.size() == 0) {
    return pending->Refuse(ParamInvalid("the batch has no descriptors",
                                        {.object = "batch", .allowed = "at least one descriptor"}));
  }
  if (is_open && (remote != nullptr || target != nullptr)) {
    return RunOn(pending, batch, channel, remote, route, target, rule);
  }
  RunConnected(pending, batch);
}

void Engine::Keep(const PendingRef& pending, const BatchView& batch) {
  if (!pending->waited) pending->owned = OwnedBatch(batch);
  pending->waited = true;
}

void Engine::RunConnected(const PendingRef& pending, const BatchView& batch) {
  if (pending->reconnected) {
    return pending->Refuse(
        Failed(absl::StrCat("the connection to ", pending->remote_engine, " was lost again"),
               {.object = absl::StrCat("engine ", pending->remote_engine)}));
  }
  pending->reconnected = true;
  const auto endpoint = CheckRemote(pending->remote_engine);
  if (!endpoint.ok()) return pending->Refuse(endpoint.status());
  Keep(pending, batch);
  auto waiter = std::make_shared<ConnectWaiter>();
  waiter->deadline_ns = pending->connect_deadline_ns();
  waiter->done = [self = shared_from_this(), pending](const absl::Status& status) {
    if (!status.ok()) return pending->Refuse(status);
    self->Run(pending, pending->owned.view());
  };
  WaitForChannel(*endpoint, std::move(waiter));
}

void Engine::RunRefreshed(const PendingRef& pending, const BatchView& batch,
                          const std::shared_ptr<RemoteChannel>& remote) {
  pending->refreshed = true;
  Keep(pending, batch);
  remote->RefreshRegions(pending->connect_deadline_ns(),
                         [self = shared_from_this(), pending](const absl::Status& status) {
                           if (!status.ok()) return pending->Refuse(status);
                           self->Run(pending, pending->owned.view());
                         });
}

// The target does not have a range that its list had. With a fresh list the transfer is planned
// again, once: relayed, sent again if the range is back, or refused. An asynchronous one was
// accepted and fails; the list is fetched for those after it.
auto Engine::OnRefused(const PendingRef& pending)
    -> absl::AnyInvocable<void(const TransferRef&, const absl::Status&)> {
  if (pending->refused) return nullptr;
  // Small enough to need no memory of its own: only few transfers are refused.
  return [pending](const TransferRef& transfer, const absl::Status& refusal) {
    const std::shared_ptr<Engine> self = pending->engine;
    const std::shared_ptr<RemoteChannel> remote = pending->remote;
    const bool again = pending->synchronous();
    pending->refused = true;
    if (again) {
      pending->moved = transfer->Job()->moved.load(std::memory_order_relaxed);
      self->Withdraw(transfer);
    }
    remote->RefreshRegions(
        pending->connect_deadline_ns(),
        [self, pending, transfer, again, refusal](const absl::Status& refreshed) {
          if (!again) return self->Finish(transfer, refusal);
          if (!refreshed.ok()) return pending->Refuse(refusal);
          pending->refreshed = true;
          self->Run(pending, pending->owned.view());
        });
  };
}

namespace {

// Both engines' planning locks, shared; always in one order.
class PlanningLocks {
 public:
  PlanningLocks(FairSharedMutex* a, FairSharedMutex* b) {
    if (b != nullptr && b < a) std::swap(a, b);
    first_ = std::shared_lock<FairSharedMutex>(*a);
    if (b != nullptr) second_ = std::shared_lock<FairSharedMutex>(*b);
  }

 private:
  std::shared_lock<FairSharedMutex> first_;
  std::shared_lock<FairSharedMutex> second_;
};

}  // namespace

void Engine::RunOn(const PendingRef& pending, const BatchView& batch, const ChannelRef& channel,
                   const std::shared_ptr<RemoteChannel>& remote,
                   const std::shared_ptr<TransferRoute>& route,
                   const std::shared_ptr<Engine>& target,
                   const std::shared_ptr<const LinkRule>& rule) {
  if (pending->ticket != nullptr && !RelayOpened(pending, batch, remote)) return;
  // One that may be relayed can wait for the target's refusal.
  const bool certain = !pending->may_relay || !Relays();
  if (remote != nullptr && remote->RegionsOutdated() && certain && !pending->refreshed) {
    return RunRefreshed(pending, batch, remote);
  }
  if (remote != nullptr && pending->synchronous()) Keep(pending, batch);
  auto transfer = std::make_shared<Transfer>();
  absl::Status status;
  BatchPlan plan;
  bool planned = false;
  struct {
    Extents local, remote;
  } verdict;
  transfer->relayed = pending->ticket != nullptr;
  {
    PlanningLocks planning(&planning_, target == nullptr ? nullptr : &target->planning_);
    std::shared_ptr<const RegionSnapshot> local_regions = regions_.Load();
    std::shared_ptr<const RegionSnapshot> remote_regions =
        target != nullptr ? target->regions_.Load() : remote->Regions();
    status = ExtendForRelay(*pending, batch, target.get(), &local_regions, &remote_regions);
    if (status.ok()) {
      // What is relayed does not go over the products' protocols.
      status = PlanBatch(batch, *local_regions, *remote_regions, target != nullptr, &plan,
                         transfer->relayed ? nullptr : rule.get());
    }
    if (status.ok() && options_.profile.kind == EngineKind::kFabric) {
      status = CheckOneKind(batch, *local_regions, *remote_regions, kFabricBatch);
    }
    planned = status.ok();
    if (planned) {
      auto job = std::make_shared<TransferJob>();
      job->pieces = std::move(plan.pieces);
      job->pins = {local_regions, remote_regions, std::move(pending->ticket)};
      transfer->pieces = job->pieces.size();
      transfer->target = target;
      transfer->target_regions = std::move(plan.remote_regions);
      transfer->descriptors = batch.size();
      transfer->bytes = job->bytes = plan.bytes;
      if (pending->on_accepted) {
        verdict.local = ExtentsOf(*local_regions, batch.local, context_->next_id);
        verdict.remote = ExtentsOf(*remote_regions, batch.remote, context_->next_id);
      }
      Prepare(transfer, std::move(job), pending, channel, route);
      if (remote != nullptr) {
        pending->remote = remote;
        transfer->on_refused = OnRefused(pending);
      }
      status = Admit(transfer, channel);
    }
  }
  if (!planned && plan.refused == BatchSide::kRemote && remote != nullptr && !pending->refreshed) {
    // The target may have registered memory since: its list is fetched once more.
    return RunRefreshed(pending, batch, remote);
  }
  if (!planned && plan.unregistered && pending->may_relay) {
    if (Relays() && pending->ticket == nullptr) return BeginRelay(pending, batch);
    status = NotRelayed(*pending, std::move(status));
  }
  if (!status.ok()) return pending->Refuse(status);
  if (pending->on_accepted) {
    std::exchange(pending->on_accepted, nullptr)(verdict.local, verdict.remote);
  }
  if (transfer->relayed) relayed_.fetch_add(1, std::memory_order_relaxed);
  if (pending->Running(transfer)) transfer->Cancel(Failed(kAbandoned));
  transfer->Start();
  if (pending->async_done) std::exchange(pending->async_done, nullptr)(transfer->id);
}

void Engine::Prepare(const TransferRef& transfer, std::shared_ptr<TransferJob> job,
                     const PendingRef& pending, const ChannelRef& channel,
                     std::shared_ptr<TransferRoute> route) {
  transfer->id = context_->next_id.fetch_add(1, std::memory_order_relaxed);
  transfer->direction = pending->direction;
  transfer->user_data = pending->user_data;
  transfer->started_ns = MonotonicNanos();
  transfer->deadline_ns = pending->deadline_ns;
  transfer->remote_engine = channel->remote_engine;
  transfer->channel_key = channel->key;
  transfer->synchronous = pending->synchronous();
  if (transfer->synchronous) {
    transfer->on_end = [pending](const Transfer& ended, const absl::Status& status) {
      std::exchange(pending->sync_done,
                    nullptr)(TransferEnd{.status = Pending::Told(status, pending->moved),
                                         .bytes = status.ok() ? ended.bytes : 0,
                                         .id = ended.id});
    };
  }
  if (route != nullptr) {
    transfer->route = std::move(route);
  } else {
    transfer->route = std::make_shared<LocalRoute>(context_->local);
  }
  const uint64_t buffers = options_.RelayBytes(pending->buffers);
  if (transfer->relayed && transfer->bytes > buffers) {
    transfer->route = std::make_shared<RelayRounds>(std::move(transfer->route), buffers,
                                                    context_->control, &context_->next_id);
  }
  job->id = transfer->id;
  job->direction = transfer->direction;
  job->deadline_ns = transfer->deadline_ns;
  job->worker = channel->worker;
  // The job refers to the transfer and the transfer to the job until it has ended.
  transfer->engine = shared_from_this();
  job->done = [transfer](absl::Status status) mutable {
    const TransferRef ended = std::move(transfer);
    const std::shared_ptr<Engine> engine = std::move(ended->engine);
    engine->Ended(ended, std::move(status));
  };
  transfer->SetJob(std::move(job));
}

absl::Status Engine::Admit(const TransferRef& transfer, const ChannelRef& channel) {
  if (transfer->target != nullptr) {
    MutexLock lock(&transfer->target->mutex_);
    if (transfer->target->closing_) return transfer->target->ClosedError();
    transfer->target->touching_.emplace(transfer, std::vector<GateRef>());
  }
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    const auto found = channels_.find(channel->remote_engine);
    if (closing_) {
      status = ClosedError();
    } else if (found == channels_.end() || found->second != channel) {
      status = NoChannel(identity_.id, channel->remote_engine);
    } else if (transfers_.size() >= context_->limits.max_transfers_per_engine) {
      status = ResourceExhausted(
          absl::StrCat("engine ", identity_.id, " has ", transfers_.size(),
                       " transfers that run or wait to be asked for; limit ",
                       context_->limits.max_transfers_per_engine,
                       " (limits.max_transfers_per_engine)"),
          {.object = absl::StrCat("engine ", identity_.id),
           .limit = absl::StrCat(context_->limits.max_transfers_per_engine, " transfers"),
           .option = "limits.max_transfers_per_engine"});
    } else {
      transfers_.emplace(transfer->id, transfer);
      ++active_;
    }
  }
  if (!status.ok()) {
    if (transfer->target != nullptr) {
      MutexLock lock(&transfer->target->mutex_);
      transfer->target->touching_.erase(transfer);
    }
    // Never submitted: nobody else will break the circle.
    transfer->Job()->done = nullptr;
    return status;
  }
  channel->transfers.fetch_add(1, std::memory_order_relaxed);
  channel->bytes.fetch_add(transfer->bytes, std::memory_order_relaxed);
  context_->log->Started(transfer->descriptors, transfer->pieces);
  return status;
}

void Engine::Ended(const TransferRef& transfer, absl::Status status) {
  if (transfer->on_refused && ApiCodeOf(status) == ApiCode::kParamInvalid) {
    return std::exchange(transfer->on_refused, nullptr)(transfer, status);
  }
  transfer->on_refused = nullptr;
  const bool moved = transfer->Job()->moved.load(std::memory_order_relaxed);
  Finish(transfer, Pending::Told(status, moved));
}

void Engine::Withdraw(const TransferRef& transfer) {
  std::vector<GateRef> gates;
  {
    MutexLock lock(&mutex_);
    --active_;
    transfers_.erase(transfer->id);
    gates.swap(transfer->gates);
  }
  context_->log->Withdrawn();
  transfer->DropJob();
}

void Engine::Finish(const TransferRef& transfer, absl::Status status) {
  const TransferState state = StateOf(status);
  std::vector<GateRef> gates;
  {
    MutexLock lock(&mutex_);
    transfer->state = state;
    transfer->status = status;
    --active_;
    if (transfer->synchronous || transfer->dropped) transfers_.erase(transfer->id);
    gates.swap(transfer->gates);
  }
  if (transfer->target != nullptr) {
    MutexLock lock(&transfer->target->mutex_);
    const auto found = transfer->target->touching_.find(transfer);
    for (auto& gate : found->second) gates.push_back(std::move(gate));
    transfer->target->touching_.erase(found);
  }
  transfer->target.reset();
  if (status.ok()) {
    completed_.fetch_add(1, std::memory_order_relaxed);
    auto& sum = transfer->direction == CopyDirection::kRead ? bytes_read_ : bytes_written_;
    sum.fetch_add(transfer->bytes, std::memory_order_relaxed);
  } else {
    failed_.fetch_add(1, std::memory_order_relaxed);
    TransferDescription description = DescribeTransfer(*transfer);
    description.state = state;
    description.ended_ns = MonotonicNanos();
    description.message = std::string(status.message());
    context_->log->Failed(std::move(description));
    if (options_.auto_connect) DropAfterFailure(transfer->channel_key, status);
  }
  context_->log->Ended(state, transfer->direction, transfer->bytes);
  Measure(*transfer, state);
  if (LogEnabled(LogLevel::kDebug)) LogEnd(*transfer, status);
  // It may wait long to be asked for, and must not keep memory alive meanwhile.
  transfer->DropJob();
  if (transfer->on_end) std::exchange(transfer->on_end, nullptr)(*transfer, status);
}

void Engine::Measure(const Transfer& transfer, TransferState state) const {
  if (context_->metrics == nullptr) return;
  context_->metrics->Count({.read = transfer.direction == CopyDirection::kRead,
                            .result = state == TransferState::kCompleted
                                          ? TransferResult::kCompleted
                                      : state == TransferState::kTimeout ? TransferResult::kTimeout
                                                                         : TransferResult::kFailed,
                            .transport = transfer.route->transport(),
                            .bytes = transfer.bytes,
                            .descriptors = transfer.descriptors,
                            .pieces = transfer.pieces,
                            .relayed = transfer.relayed,
                            .duration_ns = MonotonicNanos() - transfer.started_ns});
}

void Engine::LogEnd(const Transfer& transfer, const absl::Status& status) const {
  const bool read = transfer.direction == CopyDirection::kRead;
  LogDebug("transfer ended",
           {{"transfer", transfer.id},
            {"op", read ? "read" : "write"},
            {"source", read ? transfer.remote_engine : identity_.id},
            {"target", read ? identity_.id : transfer.remote_engine},
            {"bytes", transfer.bytes},
            {"descriptors", transfer.descriptors},
            {"pieces", transfer.pieces},
            {"time_us", (MonotonicNanos() - transfer.started_ns) / 1000},
            {"transport", transfer.route->transport()},
            {"relayed", transfer.relayed},
            {"result", status.ok() ? absl::string_view("completed") : status.message()}});
}

void Engine::DropAfterFailure(uint64_t channel_key, const absl::Status& status) {
  // Later, on the control loop: a transfer may end under the lock under which it was started.
  context_->control->Post([self = shared_from_this(), channel_key, status] {
    ChannelRef channel;
    {
      MutexLock lock(&self->mutex_);
      const auto found = self->by_key_.find(channel_key);
      if (found != self->by_key_.end()) channel = found->second;
    }
    if (channel == nullptr) return;
    self->DropChannel(channel, Annotate(status, "an earlier transfer failed"));
  });
}

TransferReport Engine::ReportOf(const Transfer& transfer) const {
  return {.id = transfer.id,
          .state = transfer.state,
          .user_data = transfer.user_data,
          .status = transfer.status};
}

std::vector<TransferReport> Engine::Query(absl::Span<const uint64_t> ids) {
  std::vector<TransferReport> reports;
  reports.reserve(ids.size());
  MutexLock lock(&mutex_);
  for (const uint64_t id : ids) {
    const auto found = transfers_.find(id);
    if (found == transfers_.end() || found->second->synchronous || found->second->dropped) {
      reports.push_back(
          {.id = id,
           .state = TransferState::kFailed,
           .status = ParamInvalid(
               absl::StrCat("transfer ", id, " is unknown or its end has been reported"),
               {.object = absl::StrCat("transfer ", id), .text_code = kInvalidHandle})});
      continue;
    }
    reports.push_back(ReportOf(*found->second));
    if (found->second->state != TransferState::kWaiting) transfers_.erase(found);
  }
  return reports;
}

std::vector<TransferReport> Engine::QueryAll(uint32_t max_results, bool skip_waiting) {
  std::vector<TransferReport> reports;
  MutexLock lock(&mutex_);
  for (auto it = transfers_.begin(); it != transfers_.end();) {
    if (max_results != 0 && reports.size() == max_results) break;
    const Transfer& transfer = *it->second;
    const bool waiting = transfer.state == TransferState::kWaiting;
    if (transfer.synchronous || transfer.dropped || (waiting && skip_waiting)) {
      ++it;
      continue;
    }
    reports.push_back(ReportOf(transfer));
    it = waiting ? std::next(it) : transfers_.erase(it);
  }
  return reports;
}

TransferDescription Engine::DescribeTransfer(const Transfer& transfer) const {
  TransferDescription description;
  description.id = transfer.id;
  description.local_engine = identity_.id;
  description.remote_engine = transfer.remote_engine;
  description.direction = transfer.direction;
  description.descriptors = transfer.descriptors;
  description.bytes = transfer.bytes;
  if (const auto job = transfer.Job()) {
    description.bytes_done = job->bytes_done.load(std::memory_order_relaxed);
  }
  description.started_ns = transfer.started_ns;
  description.deadline_ns = transfer.deadline_ns;
  description.transport = std::string(transfer.route->transport());
  return description;
}

}  // namespace hixld
