// Transfers with memory that nobody has registered (contract 1.11): they get regions of their own,
// for as long as they run, over the plain memory of both processes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/inbound.h"
#include "daemon/engine/pending_transfer.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

absl::Status RelayOff(absl::string_view engine) {
  return Failed(
      absl::StrCat("engine ", engine, " relays no transfers of unregistered memory (BufferPool)"),
      {.object = absl::StrCat("engine ", engine),
       .option = "BufferPool",
       .allowed = "registered memory, or BufferPool above 0:0 on both sides"});
}

}  // namespace

bool Engine::Relays() const {
  return context_->limits.relay_unregistered &&
         options_.unregistered == EngineOptions::Unregistered::kRelayed;
}

absl::Status Engine::NotRelayed(const Pending& pending, absl::Status status) const {
  const bool invalid = options_.unregistered == EngineOptions::Unregistered::kInvalid;
  if (invalid && pending.ticket == nullptr) return status;
  const char* option =
      context_->limits.relay_unregistered ? "BufferPool" : "security.relay_unregistered_memory";
  return Failed(absl::StrCat(status.message(), " (", option, ")"),
                {.object = absl::StrCat("engine ", identity_.id),
                 .option = option,
                 .allowed = "registered memory"});
}

std::shared_ptr<MemoryAccess> Engine::PlainMemory(const AddressRange& range) const {
  const std::shared_ptr<Session> session = session_.lock();
  return session == nullptr ? nullptr : session->PlainMemoryAccess(range.address, range.length);
}

uint32_t Engine::BuffersFor(const BatchView& batch) const {
  const uint64_t pool = options_.RelayBytes(options_.relay_buffers);
  uint64_t bytes = 0;
  for (const uint64_t length : batch.lengths)
    bytes = std::min(pool, bytes + std::min(pool, length));
  return static_cast<uint32_t>(std::max<uint64_t>(
      1, (bytes + options_.relay_buffer_bytes - 1) / options_.relay_buffer_bytes));
}

void Engine::BeginRelay(const PendingRef& pending, const BatchView& batch) {
  Keep(pending, batch);
  pending->buffers = BuffersFor(batch);
  absl::Status refused;
  bool now = false;
  {
    MutexLock lock(&mutex_);
    now = relay_waiting_.empty() && relays_ + pending->buffers <= options_.relay_buffers;
    if (closing_) {
      refused = ClosedError();
    } else if (now) {
      relays_ += pending->buffers;
    } else if (relay_waiting_.size() >= context_->limits.max_transfers_per_engine) {
      refused = ResourceExhausted(
          absl::StrCat(relay_waiting_.size(), " transfers of engine ", identity_.id,
                       " wait to be relayed (limits.max_transfers_per_engine)"),
          {.object = absl::StrCat("engine ", identity_.id),
           .limit = absl::StrCat(context_->limits.max_transfers_per_engine, " transfers"),
           .option = "limits.max_transfers_per_engine"});
    } else {
      relay_waiting_.push_back(pending);
    }
  }
  if (!refused.ok()) return pending->Refuse(refused);
  return now ? RunRelay(pending) : WaitForRelay(pending);
}

void Engine::RunRelay(const PendingRef& pending) {
  pending->ticket = std::make_shared<RelayTicket>(shared_from_this(), pending->buffers);
  Run(pending, pending->owned.view());
}

// Waiting for a buffer counts against the transfer's time (contract 1.11).
void Engine::WaitForRelay(const PendingRef& pending) {
  context_->control->Post([self = shared_from_this(), pending] {
    self->context_->control->AddTimer(
        pending->deadline_ns, [weak = std::weak_ptr<Engine>(self), pending] {
          const auto engine = weak.lock();
          if (engine == nullptr) return;
          {
            MutexLock lock(&engine->mutex_);
            auto& waiting = engine->relay_waiting_;
            const auto found = std::find(waiting.begin(), waiting.end(), pending);
            if (found == waiting.end()) return;
            waiting.erase(found);
          }
          // It may have been what those behind it waited for.
          engine->RelayEnded(0);
          pending->Refuse(Timeout(
              absl::StrCat(pending->buffers, " of all ", engine->options_.relay_buffers,
                           " relay buffers of engine ", engine->identity_.id,
                           " were not free together in the transfer's whole time (BufferPool)"),
              {.object = absl::StrCat("engine ", engine->identity_.id), .option = "BufferPool"}));
        });
  });
}

void Engine::RelayEnded(uint32_t buffers) {
  std::vector<PendingRef> next;
  {
    MutexLock lock(&mutex_);
    relays_ -= buffers;
    // In order, so that one that needs many is not overtaken for ever.
    while (!relay_waiting_.empty() &&
           relays_ + relay_waiting_.front()->buffers <= options_.relay_buffers) {
      relays_ += relay_waiting_.front()->buffers;
      next.push_back(std::move(relay_waiting_.front()));
      relay_waiting_.pop_front();
    }
  }
  for (const PendingRef& pending : next) RunRelay(pending);
}

// Whether the target lets the transfer at the ranges that it has not registered. False: it is being
// asked, or the transfer has been refused.
bool Engine::RelayOpened(const PendingRef& pending, const BatchView& batch,
                         const std::shared_ptr<RemoteChannel>& remote) {
  if (remote == nullptr || pending->ticket->GrantedBy(remote)) return true;
  std::vector<AddressRange> gaps =
      Uncovered(*remote->Regions(), RangesOf(batch.remote, batch.lengths));
  if (gaps.empty()) {
    pending->ticket->Granted(remote, 0, {});
    return true;
  }
  if (!pending->refreshed) {
    // It may have been registered since.
    RunRefreshed(pending, batch, remote);
    return false;
  }
  std::vector<AddressRange> asked = gaps;
  remote->OpenRelay(std::move(asked), pending->deadline_ns,
                    [self = shared_from_this(), pending, remote,
                     gaps = std::move(gaps)](const absl::StatusOr<uint64_t>& id) mutable {
                      if (!id.ok()) return pending->Refuse(id.status());
                      pending->ticket->Granted(remote, *id, std::move(gaps));
                      self->Run(pending, pending->owned.view());
                    });
  return false;
}

absl::StatusOr<std::shared_ptr<const RegionSnapshot>> Engine::Extended(
    std::shared_ptr<const RegionSnapshot> regions, absl::Span<const uint64_t> addresses,
    absl::Span<const uint64_t> lengths) const {
  const std::vector<AddressRange> gaps = Uncovered(*regions, RangesOf(addresses, lengths));
  if (gaps.empty()) return regions;
  if (!open()) return ClosedError();
  if (!Relays()) return RelayOff(identity_.id);
  bool gone = false;
  auto extended = WithUncovered(*regions, gaps, [this, &gone](const AddressRange& gap) {
    auto access = PlainMemory(gap);
    gone = gone || access == nullptr;
    return access;
  });
  if (gone) return ClosedError();
  return extended;
}

absl::Status Engine::ExtendForRelay(const Pending& pending, const BatchView& batch,
                                    const Engine* target,
                                    std::shared_ptr<const RegionSnapshot>* local,
                                    std::shared_ptr<const RegionSnapshot>* remote) const {
  if (pending.ticket == nullptr) return absl::OkStatus();
  HIXLD_RETURN_IF_ERROR(CheckOneKind(batch, **local, **remote, kRelayedBatch));
  HIXLD_ASSIGN_OR_RETURN(*local, Extended(*local, batch.local, batch.lengths));
  if (target != nullptr) {
    HIXLD_ASSIGN_OR_RETURN(*remote, target->Extended(*remote, batch.remote, batch.lengths));
    return absl::OkStatus();
  }
  // What the target has registered since needs no grant.
  const auto gaps = Uncovered(**remote, pending.ticket->ranges());
  if (gaps.empty()) return absl::OkStatus();
  *remote = WithUncovered(**remote, gaps, [](const AddressRange&) { return nullptr; });
  return absl::OkStatus();
}

RelayGrants::MakeAccess Engine::Inbound::PlainMemory() const {
  return [this](const AddressRange& range) { return engine_->PlainMemory(range); };
}

absl::StatusOr<uint64_t> Engine::Inbound::OpenRelay(std::vector<AddressRange> ranges) {
  if (!engine_->open()) return engine_->ClosedError();
  if (!engine_->Relays()) return RelayOff(engine_->identity_.id);
  return grants_.Open(std::move(ranges), PlainMemory());
}

void Engine::Inbound::CloseRelay(uint64_t id) { grants_.Close(id, PlainMemory()); }

// A range that is not registered as a whole: registered parts as such, the others if granted.
absl::Status Engine::Inbound::ResolveGranted(const std::shared_ptr<const RegionSnapshot>& regions,
                                             const std::shared_ptr<const RegionSnapshot>& granted,
                                             uint64_t address, uint64_t length,
                                             std::vector<TargetResolver::Part>* parts) const {
  const size_t before = parts->size();
  const uint64_t end = address + length;
  uint64_t at = address;
  while (at < end) {
    const std::shared_ptr<const RegionSnapshot>* pin = &regions;
    const Region* region = RegionAt(*regions, at);
    if (region == nullptr) {
      pin = &granted;
      region = RegionAt(*granted, at);
    }
    if (region == nullptr || region->access == nullptr) {
      parts->resize(before);
      std::vector<RegionPart> none;
      const absl::Status status = regions->Resolve(address, length, &none);
      return status.ok() ? engine_->ClosedError()
                         : Annotate(status, absl::StrCat("engine ", engine_->identity_.id));
    }
    const uint64_t part_end = std::min(end, region->end());
    parts->push_back({.memory = {.access = region->access.get(),
                                 .offset = region->access_offset + (at - region->address)},
                      .length = part_end - at,
                      .pin = *pin});
    at = part_end;
  }
  return absl::OkStatus();
}

}  // namespace hixld
