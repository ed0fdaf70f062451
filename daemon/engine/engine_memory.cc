// Regions of an engine, and the proof that nobody uses one any more.
#include <algorithm>
#include <iterator>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/engine/direct_verdict.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/inbound.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixld {
namespace {

// UB endpoints reach memory of their own placement only; other protocols reach both (contract 7).
bool MayRegister(const EndpointSet& set, MemoryType type) {
  const char* const placement = type == MemoryType::kDevice ? ":device" : ":host";
  return std::any_of(set.endpoints.begin(), set.endpoints.end(), [&](const std::string& endpoint) {
    return !absl::StartsWith(endpoint, "ub") || absl::EndsWith(endpoint, placement);
  });
}

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<const Region>>> Engine::Register(
    std::vector<RegionTable::Request> requests, uint64_t other_regions) {
  const uint64_t limit = context_->limits.max_regions_per_session;
  std::shared_lock<FairSharedMutex> planning(planning_);
  if (!open()) return ClosedError();
  HIXLD_RETURN_IF_ERROR(CheckProduct(requests));
  auto added = regions_.Add(std::move(requests), limit > other_regions ? limit - other_regions : 0);
  if (added.ok()) NoteMoreRegions();
  return added;
}

absl::Status Engine::CheckProduct(const std::vector<RegionTable::Request>& requests) const {
  if (options_.endpoints.empty()) return absl::OkStatus();
  for (const MemoryType type : {MemoryType::kDevice, MemoryType::kHost}) {
    uint64_t bytes = 0;
    for (const auto& request : requests) {
      if (request.type == type) bytes += request.length;
    }
    if (bytes == 0) continue;
    if (!MayRegister(options_.endpoints, type)) {
      return Unsupported(absl::StrCat("engine ", identity_.id, " (", options_.endpoints.product,
                                      ") has ", absl::StrJoin(options_.endpoints.endpoints, ", "),
                                      ", which reach no memory of type ", MemoryTypeName(type)),
                         {.object = absl::StrCat("engine ", identity_.id),
                          .option = "comm_resource_config.protocol_desc, LocalCommRes",
                          .allowed = "endpoints of both placements",
                          .text_code = kRegistrationFailed});
    }
    const uint64_t limit = MaxRegisteredBytes(options_.form, type);
    if (limit == 0) continue;
    for (const auto& region : regions_.Load()->regions()) {
      if (region->type == type) bytes += region->length;
    }
    if (bytes > limit) {
      return Failed(absl::StrCat("engine ", identity_.id, " would have ", bytes, " bytes of ",
                                 MemoryTypeName(type), " memory registered; a ",
                                 options_.endpoints.product, " takes ", limit),
                    {.object = absl::StrCat("engine ", identity_.id),
                     .limit = absl::StrCat(limit, " bytes"),
                     .text_code = kRegistrationFailed});
    }
  }
  return absl::OkStatus();
}

std::string Engine::ConnectedTo() const {
  MutexLock lock(&mutex_);
  for (const auto& [name, channel] : channels_) {
    if (channel->established) return name;
  }
  return "";
}

uint64_t Engine::FirstKnown(const std::vector<uint64_t>& sorted_ids) const {
  for (const auto& region : regions_.Load()->regions()) {
    if (std::binary_search(sorted_ids.begin(), sorted_ids.end(), region->id)) return region->id;
  }
  return 0;
}

void Engine::Deregister(std::vector<uint64_t> region_ids,
                        absl::AnyInvocable<void(absl::StatusOr<uint32_t>)> done) {
  if (!open()) return done(ClosedError());
  std::sort(region_ids.begin(), region_ids.end());
  uint32_t unknown = 0;
  std::vector<TransferRef> ending;
  {
    std::unique_lock<FairSharedMutex> planning(planning_);
    const std::string connected = options_.may_deregister_connected() ? "" : ConnectedTo();
    const uint64_t known = connected.empty() ? 0 : FirstKnown(region_ids);
    if (known != 0) {
      planning.unlock();
      return done(Failed(absl::StrCat("region ", known, " of engine ", identity_.id,
                                      " cannot be deregistered while the engine is connected to ",
                                      connected, "; disconnect first"),
                         {.object = absl::StrCat("region ", known)}));
    }
    unknown = static_cast<uint32_t>(regions_.Remove(region_ids));
  }
  if (unknown < region_ids.size()) {
    TellRegionsGone();
    NoteRegionsGone();
  }
  auto verdict = std::make_shared<DirectVerdict>();
  auto gate = std::make_shared<Gate>([done = std::move(done), unknown, verdict]() mutable {
    const absl::Status left = verdict->status();
    left.ok() ? done(unknown) : done(left);
  });
  CloseGranted(/*all=*/unknown < region_ids.size(), verdict, gate);
  {
    // Those that were planned before may use the memory until they end; later ones can't find it.
    MutexLock lock(&mutex_);
    for (const auto& [id, transfer] : transfers_) {
      if (transfer->state == TransferState::kWaiting) transfer->gates.push_back(gate);
    }
  }
  if (!region_ids.empty()) ending = InboundTouching(region_ids, gate);
  FenceInbound(gate);
  for (const auto& transfer : ending) {
    transfer->Cancel(Failed(
        absl::StrCat("engine ", identity_.id, " deregistered the memory during the transfer"),
        {.object = absl::StrCat("engine ", identity_.id)}));
  }
}

std::vector<std::shared_ptr<Transfer>> Engine::InboundTouching(
    const std::vector<uint64_t>& region_ids, const GateRef& gate) {
  // A transfer's gates belong to its initiator's lock, so they are hung in after this one's.
  std::vector<TransferRef> touching;
  {
    MutexLock lock(&mutex_);
    for (const auto& [transfer, initiator] : touching_) {
      std::vector<uint64_t> common;
      std::set_intersection(transfer->target_regions.begin(), transfer->target_regions.end(),
                            region_ids.begin(), region_ids.end(), std::back_inserter(common));
      if (region_ids.empty() || !common.empty()) touching.push_back(transfer);
    }
    for (const auto& transfer : touching) touching_.find(transfer)->second.push_back(gate);
  }
  return touching;
}

std::vector<std::shared_ptr<Engine::Inbound>> Engine::InboundChannels() const {
  MutexLock lock(&mutex_);
  return {inbound_.begin(), inbound_.end()};
}

void Engine::FenceInbound(const GateRef& gate) {
  for (const auto& channel : InboundChannels()) channel->handle().Fence([gate] {});
}

void Engine::TellRegionsGone() {
  for (const auto& channel : InboundChannels()) channel->handle().RegionsGone();
}

// An engine that listens is unique on its host: its new channel replaces one that it left behind
// (contract 1.7). Engines that only are clients may share an id, and so may engines of different
// hosts on loopback or on the wildcard address.
bool Engine::SameInitiator(const InboundRequest& a, const InboundRequest& b) {
  if (a.initiator_engine != b.initiator_engine) return false;
  const auto initiator = ParseEndpoint(a.initiator_engine);
  if (!initiator.ok() || !initiator->listens()) return false;
  const auto host = [](const std::string& address) {
    return address.substr(0, address.rfind(':'));
  };
  return host(a.peer_address) == host(b.peer_address);
}

absl::StatusOr<std::shared_ptr<InboundChannel>> Engine::AcceptChannel(
    const InboundRequest& request, std::shared_ptr<InboundHandle> handle) {
  HIXLD_RETURN_IF_ERROR(
      LinkRule::Make(request.initiator_engine, request.endpoints, identity_.id, options_.endpoints)
          .status());
  auto inbound = std::make_shared<Inbound>(shared_from_this(), request, std::move(handle));
  std::shared_ptr<Inbound> stale;
  {
    MutexLock lock(&mutex_);
    if (closing_) return ClosedError();
    if (inbound_.size() >= context_->limits.max_channels_per_engine) {
      return ResourceExhausted(
          absl::StrCat("engine ", identity_.id, " has ", inbound_.size(),
                       " channels from other nodes; limit ",
                       context_->limits.max_channels_per_engine,
                       " (limits.max_channels_per_engine)"),
          {.object = absl::StrCat("engine ", identity_.id),
           .limit = absl::StrCat(context_->limits.max_channels_per_engine, " channels"),
           .option = "limits.max_channels_per_engine"});
    }
    for (const auto& other : inbound_) {
      if (SameInitiator(other->request(), request)) stale = other;
    }
    if (stale != nullptr) inbound_.erase(stale);
    inbound_.insert(inbound);
  }
  if (stale != nullptr) stale->handle().Close("replaced by a new channel of the same engine");
  return inbound;
}

absl::Status Engine::Inbound::Resolve(uint64_t address, uint64_t length,
                                      std::vector<TargetResolver::Part>* parts) {
  if (!engine_->open()) return engine_->ClosedError();
  std::shared_ptr<const RegionSnapshot> snapshot = engine_->Regions();
  if (const Region* region = length == 0 ? nullptr : snapshot->Find(address, length)) {
    parts->push_back({.memory = {.access = region->access.get(),
                                 .offset = region->access_offset + (address - region->address)},
                      .length = length,
                      .before = address - region->address,
                      .after = region->end() - (address + length),
                      .pin = std::move(snapshot)});
    return absl::OkStatus();
  }
  const auto granted = grants_.Load();
  if (granted != nullptr && length != 0 && address + length > address) {
    return ResolveGranted(snapshot, granted, address, length, parts);
  }
  std::vector<RegionPart> found;
  const absl::Status status = snapshot->Resolve(address, length, &found);
  if (!status.ok()) return Annotate(status, absl::StrCat("engine ", engine_->identity_.id));
  for (const RegionPart& part : found) {
    parts->push_back({.memory = {.access = part.region->access.get(), .offset = part.offset},
                      .length = part.length,
                      .pin = snapshot});
  }
  return absl::OkStatus();
}

void Engine::Inbound::OnClosed(absl::string_view reason) {
  // Keeps this alive until the engine's lock is free again.
  const std::shared_ptr<Inbound> self = shared_from_this();
  MutexLock lock(&engine_->mutex_);
  engine_->inbound_.erase(self);
}

}  // namespace hixld
