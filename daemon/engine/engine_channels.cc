// Connect and disconnect (contract 1.7), and channels that open again after a loss.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/batcher.h"
#include "daemon/engine/engine.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixld {
namespace {

absl::Status CheckTimeout(int64_t timeout_ms) {
  if (timeout_ms > 0) return absl::OkStatus();
  return ParamInvalid(absl::StrCat("timeout_ms is ", timeout_ms, "; allowed: 1..2147483647"),
                      {.object = "timeout_ms", .allowed = "1..2147483647"});
}

}  // namespace

absl::StatusOr<Endpoint> Engine::CheckRemote(absl::string_view remote_engine) const {
  const absl::Status self =
      ParamInvalid(absl::StrCat("engine ", identity_.id, " cannot connect to itself"),
                   {.object = absl::StrCat("engine ", remote_engine)});
  if (remote_engine == identity_.id) return self;
  HIXLD_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(remote_engine));
  if (endpoint.ToString() == identity_.endpoint.ToString()) return self;
  if (!endpoint.listens()) {
    return ParamInvalid(absl::StrCat("engine id \"", remote_engine,
                                     "\" has no port, so that nobody can connect to it"),
                        {.object = absl::StrCat("engine ", remote_engine),
                         .allowed = "a.b.c.d:port or [v6]:port with port 1..65535"});
  }
  return endpoint;
}

void Engine::Connect(absl::string_view remote_engine, int64_t timeout_ms,
                     absl::AnyInvocable<void(absl::StatusOr<Connected>)> done) {
  if (!open()) return done(ClosedError());
  if (absl::Status status = CheckTimeout(timeout_ms); !status.ok()) return done(status);
  const auto endpoint = CheckRemote(remote_engine);
  if (!endpoint.ok()) return done(endpoint.status());
  auto waiter = std::make_shared<ConnectWaiter>();
  waiter->deadline_ns = MonotonicNanos() + timeout_ms * kNanosPerMilli;
  waiter->connect_call = true;
  waiter->done = [self = shared_from_this(), name = endpoint->ToString(),
                  done = std::move(done)](absl::Status status) mutable {
    if (!status.ok()) return done(status);
    Connected connected;
    {
      MutexLock lock(&self->mutex_);
      const auto found = self->channels_.find(name);
      if (found != self->channels_.end()) {
        const Channel& channel = *found->second;
        connected.channel_id = channel.key;
        connected.transport = channel.remote != nullptr
                                  ? std::string(channel.remote->transport())
                                  : std::string(self->context_->local->transport());
      }
    }
    done(std::move(connected));
  };
  WaitForChannel(*endpoint, std::move(waiter));
}

bool Engine::IsOpen(const Channel& channel) const {
  if (channel.state != Channel::State::kOpen) return false;
  if (channel.remote != nullptr) return channel.remote->open();
  const std::shared_ptr<Engine> local = channel.local.lock();
  return local != nullptr && local->open();
}

void Engine::AnswerAt(int64_t deadline_ns, std::shared_ptr<ConnectWaiter> waiter) {
  Loop* const control = context_->control;
  control->Post([control, deadline_ns, waiter = std::move(waiter)]() mutable {
    control->AddTimer(deadline_ns, [waiter = std::move(waiter)] {
      waiter->Answer(
          Timeout("the connection was not made in time", {.text_code = kConnectTimedOut}));
    });
  });
}

// Whether one more channel is within the limits; its place is in channels_ already.
absl::Status Engine::CheckRoom() const {
  if (closing_) return ClosedError();
  const uint64_t of_product =
      options_.profile.kind == EngineKind::kComm ? MaxCommLinks(options_.form) : 0;
  uint64_t limit = context_->limits.max_channels_per_engine;
  std::string option = "limits.max_channels_per_engine";
  if (of_product != 0 && of_product < limit) {
    limit = of_product;
    option = "LocalCommRes";  // version 1.3 has no such limit
  }
  if (channels_.size() <= limit) return absl::OkStatus();
  return ResourceExhausted(absl::StrCat("engine ", identity_.id, " has ", channels_.size() - 1,
                                        " channels; limit ", limit, " (", option, ")"),
                           {.object = absl::StrCat("engine ", identity_.id),
                            .limit = absl::StrCat(limit, " channels"),
                            .option = option});
}

void Engine::WaitForChannel(const Endpoint& endpoint, std::shared_ptr<ConnectWaiter> waiter) {
  const std::string name = endpoint.ToString();
  ChannelRef channel;
  absl::Status answer;
  bool start = false;
  {
    MutexLock lock(&mutex_);
    auto& slot = channels_[name];
    answer = slot == nullptr ? CheckRoom() : absl::OkStatus();
    if (!answer.ok()) {
      channels_.erase(name);
    } else if (slot == nullptr) {
      slot = std::make_shared<Channel>();
      slot->key = context_->next_id.fetch_add(1, std::memory_order_relaxed);
      slot->remote_engine = name;
      slot->endpoint = endpoint;
      slot->worker = static_cast<uint32_t>(slot->key % context_->workers);
      slot->waiters.push_back(waiter);
      by_key_.emplace(slot->key, slot);
      channel = slot;
      start = true;
    } else if (slot->state == Channel::State::kConnecting) {
      slot->waiters.push_back(waiter);
      channel = slot;
    } else if (!IsOpen(*slot)) {
      slot->state = Channel::State::kConnecting;
      slot->waiters.push_back(waiter);
      channel = slot;
      start = true;
    } else if (waiter->connect_call) {
      answer =
          AlreadyConnected(absl::StrCat("engine ", identity_.id, " is already connected to ", name),
                           {.object = absl::StrCat("engine ", name)});
    }
  }
  if (start) return OpenChannel(channel, waiter->deadline_ns);
  if (channel != nullptr) return AnswerAt(waiter->deadline_ns, waiter);
  waiter->Answer(std::move(answer));
}

void Engine::OpenChannel(const ChannelRef& channel, int64_t deadline_ns) {
  std::shared_ptr<Engine> local = context_->directory->FindListening(channel->endpoint);
  if (local != nullptr && local.get() != this) {
    return ChannelOpened(channel, deadline_ns, std::move(local), nullptr);
  }
  const std::weak_ptr<Engine> weak = weak_from_this();
  LinkManager::ChannelRequest request;
  request.endpoint = channel->endpoint;
  request.initiator_engine = identity_.id;
  request.target_engine = channel->remote_engine;
  request.endpoints = options_.endpoints;
  request.traffic_class = options_.traffic_class;
  request.service_level = options_.service_level;
  request.deadline_ns = deadline_ns;
  request.on_broken = [weak,
                       weak_channel = std::weak_ptr<Channel>(channel)](const absl::Status& reason) {
    const auto self = weak.lock();
    const auto broken = weak_channel.lock();
    if (self != nullptr && broken != nullptr) self->ChannelBroken(broken, reason);
  };
  request.on_outdated = context_->regions_gone;
  context_->links->OpenChannel(
      std::move(request), [self = shared_from_this(), channel,
                           deadline_ns](absl::StatusOr<std::shared_ptr<RemoteChannel>> remote) {
        self->ChannelOpened(channel, deadline_ns, nullptr, std::move(remote));
      });
}

std::shared_ptr<TransferRoute> Engine::RouteTo(std::shared_ptr<RemoteChannel> remote) const {
  if (remote == nullptr) return nullptr;
  std::shared_ptr<TransferRoute> route = std::make_shared<RemoteRoute>(std::move(remote));
  if (options_.batching.window_ns <= 0) return route;
  return std::make_shared<Batcher>(options_.batching, std::move(route), context_->control,
                                   &context_->next_id, context_->log);
}

absl::StatusOr<std::shared_ptr<const LinkRule>> Engine::RuleFor(
    const Channel& channel, const std::shared_ptr<Engine>& local,
    const std::shared_ptr<RemoteChannel>& remote) const {
  return LinkRule::Make(identity_.id, options_.endpoints, channel.remote_engine,
                        local != nullptr ? local->endpoints() : remote->PeerEndpoints());
}

void Engine::ChannelOpened(const ChannelRef& channel, int64_t deadline_ns,
                           std::shared_ptr<Engine> local,
                           absl::StatusOr<std::shared_ptr<RemoteChannel>> remote) {
  std::vector<std::shared_ptr<ConnectWaiter>> waiters;
  absl::Status failure = remote.status();
  std::shared_ptr<const LinkRule> rule;
  if (failure.ok()) {
    auto made = RuleFor(*channel, local, *remote);
    failure = made.status();
    if (made.ok()) rule = *std::move(made);
  }
  int64_t retry_until_ns = 0;
  bool fresh = false;
  {
    MutexLock lock(&mutex_);
    const auto found = channels_.find(channel->remote_engine);
    const bool current = !closing_ && found != channels_.end() && found->second == channel;
    if (!current && failure.ok()) {
      failure = closing_ ? ClosedError() : NoChannel(identity_.id, channel->remote_engine);
    }
    if (failure.ok()) {
      fresh = !channel->established;
      channel->state = Channel::State::kOpen;
      channel->established = true;
      channel->local = local;
      channel->notify_source =
          local == nullptr ? nullptr : std::make_shared<NotifySource>(identity_.id);
      channel->remote = *remote;
      channel->remote_route = RouteTo(*remote);
      channel->rule = std::move(rule);
    } else if (current) {
      // Whoever joined with a later deadline goes on when this attempt ran out of time.
      if (ApiCodeOf(failure) == ApiCode::kTimeout) {
        for (const auto& waiter : channel->waiters) {
          if (waiter->answered.load(std::memory_order_acquire)) continue;
          if (waiter->deadline_ns > deadline_ns) {
            retry_until_ns = std::max(retry_until_ns, waiter->deadline_ns);
          } else {
            waiters.push_back(waiter);
          }
        }
      }
      if (retry_until_ns == 0) {
        channel->state = Channel::State::kBroken;
        if (!channel->established) {
          channels_.erase(found);
          by_key_.erase(channel->key);
        }
      }
    }
    if (retry_until_ns == 0) waiters.swap(channel->waiters);
  }
  if (!failure.ok()) {
    if (remote.ok() && *remote != nullptr) (*remote)->Close();
    for (const auto& waiter : waiters) waiter->Answer(failure);
    if (retry_until_ns != 0) OpenChannel(channel, retry_until_ns);
    return;
  }
  bool connected = false;
  bool wanted = !fresh;
  for (const auto& waiter : waiters) {
    const bool joined = waiter->connect_call && connected;
    const bool counted = waiter->Answer(
        joined ? AlreadyConnected(absl::StrCat("engine ", identity_.id, " is already connected to ",
                                               channel->remote_engine),
                                  {.object = absl::StrCat("engine ", channel->remote_engine)})
               : absl::OkStatus());
    wanted = wanted || counted;
    connected = connected || (counted && waiter->connect_call);
  }
  // Everybody was told that it took too long, so it must not exist.
  if (!wanted) {
    DropChannel(channel, NoChannel(identity_.id, channel->remote_engine));
  }
}

void Engine::ChannelBroken(const ChannelRef& channel, const absl::Status& reason) {
  std::vector<TransferRef> running;
  {
    MutexLock lock(&mutex_);
    if (channel->state == Channel::State::kOpen) channel->state = Channel::State::kBroken;
    for (const auto& [id, transfer] : transfers_) {
      if (transfer->channel_key == channel->key && transfer->state == TransferState::kWaiting) {
        running.push_back(transfer);
      }
    }
  }
  for (const auto& transfer : running) transfer->Cancel(reason);
  NoteRegionsGone();
  // With AutoConnect a dead peer's channel goes by itself (contract 1.7).
  if (options_.auto_connect) DropChannel(channel, reason);
}

void Engine::DropTransfers(uint64_t channel_key, const absl::Status& reason, bool forget,
                           const GateRef& gate) {
  std::vector<TransferRef> running;
  {
    MutexLock lock(&mutex_);
    for (auto it = transfers_.begin(); it != transfers_.end();) {
      const TransferRef& transfer = it->second;
      const bool ended = transfer->state != TransferState::kWaiting;
      if (transfer->channel_key != channel_key || (ended && !forget)) {
        ++it;
      } else if (ended) {
        it = transfers_.erase(it);
      } else {
        transfer->dropped = forget;
        transfer->gates.push_back(gate);
        running.push_back(transfer);
        ++it;
      }
    }
  }
  for (const auto& transfer : running) transfer->Cancel(reason);
}

void Engine::DropChannel(const ChannelRef& channel, const absl::Status& reason) {
  DropChannel(channel, reason, /*forget=*/false, std::make_shared<Gate>());
}

bool Engine::DropChannel(const ChannelRef& channel, const absl::Status& reason, bool forget,
                         const GateRef& gate) {
  std::vector<std::shared_ptr<ConnectWaiter>> waiters;
  std::shared_ptr<DirectGate> direct;
  {
    MutexLock lock(&mutex_);
    const auto found = channels_.find(channel->remote_engine);
    if (found == channels_.end() || found->second != channel) return false;
    channels_.erase(found);
    by_key_.erase(channel->key);
    waiters.swap(channel->waiters);
    direct.swap(channel->direct);
  }
  for (const auto& waiter : waiters) waiter->Answer(reason);
  // The target is told once nothing of ours can land there any more.
  auto fenced = std::make_shared<Gate>([channel, gate] {
    if (channel->remote != nullptr) channel->remote->Close();
  });
  if (direct != nullptr) direct->Close([fenced](const absl::Status&) {});
  DropTransfers(channel->key, reason, forget, fenced);
  return true;
}

void Engine::Disconnect(absl::string_view remote_engine, int64_t timeout_ms,
                        absl::AnyInvocable<void(absl::Status)> done) {
  if (!open()) return done(ClosedError());
  if (absl::Status status = CheckTimeout(timeout_ms); !status.ok()) return done(status);
  const auto endpoint = ParseEndpoint(remote_engine);
  ChannelRef channel;
  bool dead = false;
  if (endpoint.ok()) {
    MutexLock lock(&mutex_);
    const auto found = channels_.find(endpoint->ToString());
    if (found != channels_.end() && found->second->established) channel = found->second;
    dead = channel != nullptr && options_.auto_connect && !IsOpen(*channel);
  }
  const absl::Status none = NoChannel(identity_.id, remote_engine);
  if (channel == nullptr) return done(none);
  // Answers when all transfers are fenced, or at the deadline: a peer that is silent can hold up
  // writes into its own memory only.
  auto waiter = std::make_shared<ConnectWaiter>();
  waiter->done = std::move(done);
  const absl::Status reason = Failed(absl::StrCat("engine ", identity_.id, " disconnected from ",
                                                  channel->remote_engine, " during the transfer"),
                                     {.object = absl::StrCat("engine ", channel->remote_engine)});
  auto gate = std::make_shared<Gate>(
      [waiter, dead, none] { waiter->Answer(dead ? none : absl::OkStatus()); });
  if (!DropChannel(channel, reason, /*forget=*/true, gate)) {
    waiter->Answer(none);
    return;
  }
  gate.reset();
  if (waiter->answered.load(std::memory_order_acquire)) return;
  Loop* const control = context_->control;
  const int64_t deadline_ns = MonotonicNanos() + timeout_ms * kNanosPerMilli;
  control->Post([control, deadline_ns, waiter]() {
    control->AddTimer(deadline_ns, [waiter] { waiter->Answer(absl::OkStatus()); });
  });
}

}  // namespace hixld
