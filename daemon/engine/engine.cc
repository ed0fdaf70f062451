#include "daemon/engine/engine.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/inbound.h"
#include "daemon/engine/pending_transfer.h"
#include "proto/base/status.h"

namespace hixld {

Engine::Engine(EngineContext* context, EngineIdentity identity, EngineOptions options)
    : context_(context),
      identity_(std::move(identity)),
      options_(std::move(options)),
      notifies_(identity_.id, context->limits.notifies) {}

Engine::~Engine() = default;

absl::Status Engine::ClosedError() const {
  return Failed(absl::StrCat("engine ", identity_.id, " is closed"),
                {.object = absl::StrCat("engine ", identity_.id)});
}

void Engine::Close(absl::string_view reason, absl::AnyInvocable<void()> closed) {
  bool closed_already;
  {
    MutexLock lock(&mutex_);
    closed_already = closed_;
    if (!closed_already) {
      on_closed_.push_back(std::move(closed));
      if (closing_) return;
      closing_ = true;
    }
  }
  if (closed_already) return closed();
  open_.store(false, std::memory_order_release);
  {
    // From here on nothing new is planned with this engine's memory, in this daemon or from others.
    std::unique_lock<FairSharedMutex> planning(planning_);
    regions_.Clear();
  }
  NoteRegionsGone();
  notifies_.Close();
  auto gate = std::make_shared<Gate>(
      [self = shared_from_this(), reason = std::string(reason)] { self->FinishClose(reason); });
  if (listener_ != nullptr) listener_->Close([gate] {});
  const absl::Status why = Failed(absl::StrCat("engine ", identity_.id, " was closed: ", reason),
                                  {.object = absl::StrCat("engine ", identity_.id)});
  std::vector<TransferRef> running;
  std::vector<std::shared_ptr<ConnectWaiter>> waiters;
  std::vector<std::shared_ptr<DirectGate>> direct;
  std::deque<PendingRef> relays;
  {
    MutexLock lock(&mutex_);
    relays.swap(relay_waiting_);
    for (auto it = transfers_.begin(); it != transfers_.end();) {
      const TransferRef& transfer = it->second;
      if (transfer->state != TransferState::kWaiting) {
        it = transfers_.erase(it);
        continue;
      }
      transfer->dropped = true;
      transfer->gates.push_back(gate);
      running.push_back(transfer);
      ++it;
    }
    for (auto& [name, channel] : channels_) {
      for (auto& waiter : channel->waiters) waiters.push_back(std::move(waiter));
      channel->waiters.clear();
      if (channel->direct != nullptr) direct.push_back(std::move(channel->direct));
    }
  }
  for (const auto& copies : direct) copies->Close([gate](const absl::Status&) {});
  CloseGranted(/*all=*/true, nullptr, gate);
  for (const auto& transfer : InboundTouching({}, gate)) running.push_back(transfer);
  FenceInbound(gate);
  for (const auto& transfer : running) transfer->Cancel(why);
  for (const auto& waiter : waiters) waiter->Answer(why);
  for (const auto& relay : relays) relay->Refuse(why);
}

void Engine::FinishClose(const std::string& reason) {
  std::unordered_map<std::string, ChannelRef> channels;
  std::set<std::shared_ptr<Inbound>> inbound;
  std::vector<absl::AnyInvocable<void()>> on_closed;
  {
    MutexLock lock(&mutex_);
    channels.swap(channels_);
    by_key_.clear();
    inbound.swap(inbound_);
    on_closed.swap(on_closed_);
    closed_ = true;
  }
  for (auto& [name, channel] : channels) {
    if (channel->remote != nullptr) channel->remote->Close();
  }
  for (const auto& channel : inbound) {
    channel->handle().Close(absl::StrCat("engine ", identity_.id, " was closed: ", reason));
  }
  for (auto& callback : on_closed) callback();
}

EngineDescription Engine::Describe() {
  CountDirect();
  EngineDescription description;
  description.identity = identity_;
  description.listen_port = listener_ == nullptr ? 0 : listener_->port();
  description.options = options_.given;
  description.kind = std::string(EngineKindName(options_.profile.kind));
  description.effective = options_.profile.effective;
  description.regions = regions_.Load();
  description.transfers_completed = completed_.load(std::memory_order_relaxed);
  description.transfers_failed = failed_.load(std::memory_order_relaxed);
  description.bytes_read = bytes_read_.load(std::memory_order_relaxed);
  description.bytes_written = bytes_written_.load(std::memory_order_relaxed);
  description.transfers_relayed = relayed_.load(std::memory_order_relaxed);
  description.notifies_sent = notifies_sent_.load(std::memory_order_relaxed);
  const NotifyQueue::Totals notifies = notifies_.totals();
  description.notifies_received = notifies.received;
  description.notifies_queued = notifies.queued;
  MutexLock lock(&mutex_);
  description.transfers_active = active_;
  for (const auto& [name, channel] : channels_) {
    ChannelDescription out;
    out.key = channel->key;
    out.remote_engine = name;
    out.transport = channel->remote != nullptr ? std::string(channel->remote->transport())
                                               : std::string(context_->local->transport());
    out.state = channel->state == Channel::State::kConnecting ? "connecting"
                : IsOpen(*channel)                            ? "open"
                                                              : "broken";
    out.transfers = channel->transfers.load(std::memory_order_relaxed);
    out.bytes = channel->bytes.load(std::memory_order_relaxed);
    out.direct_transfers = channel->direct_transfers.load(std::memory_order_relaxed);
    out.direct_bytes = channel->direct_bytes.load(std::memory_order_relaxed);
    out.notifies = channel->notifies.load(std::memory_order_relaxed);
    if (channel->rule != nullptr) out.protocol = channel->rule->protocol();
    description.channels.push_back(std::move(out));
  }
  for (const auto& inbound : inbound_) {
    ChannelDescription out;
    out.remote_engine = inbound->request().initiator_engine;
    out.transport = std::string(inbound->handle().transport());
    out.key = inbound->handle().channel_id();
    out.initiator = false;
    out.state = "open";
    out.notifies = inbound->notifies();
    description.channels.push_back(std::move(out));
  }
  return description;
}

void Engine::DescribeTransfers(std::vector<TransferDescription>* out) const {
  MutexLock lock(&mutex_);
  for (const auto& [id, transfer] : transfers_) {
    if (transfer->state == TransferState::kWaiting) out->push_back(DescribeTransfer(*transfer));
  }
}

}  // namespace hixld
