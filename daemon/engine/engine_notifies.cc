// Notifies: short messages to the engine at a channel's other end (contract 1.10).
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/inbound.h"
#include "daemon/telemetry/notify_metrics.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {

// A notify that has not been answered yet.
struct Engine::Sending {
  std::string remote_engine;  // as given
  std::string name;           // canonical; empty when malformed
  Endpoint endpoint;
  Notify notify;
  int64_t deadline_ns = 0;
  bool reconnected = false;
  absl::AnyInvocable<void(absl::Status)> done;
};

void Engine::SendNotify(absl::string_view remote_engine, Notify notify, int64_t timeout_ms,
                        absl::AnyInvocable<void(absl::Status)> done) {
  if (!open()) return done(ClosedError());
  if (timeout_ms <= 0) {
    return done(ParamInvalid(absl::StrCat("timeout_ms is ", timeout_ms),
                             {.object = "timeout_ms", .allowed = "1..2147483647"}));
  }
  if (absl::Status bad = CheckNotify(notify); !bad.ok()) return done(bad);
  auto sending = std::make_shared<Sending>();
  sending->remote_engine = std::string(remote_engine);
  sending->notify = std::move(notify);
  // Programs that give one millisecond expect TIMEOUT and nothing sent (contract 1.10).
  sending->deadline_ns = timeout_ms == 1 ? 0 : MonotonicNanos() + timeout_ms * kNanosPerMilli;
  sending->done = std::move(done);
  const auto endpoint = ParseEndpoint(remote_engine);
  if (endpoint.ok()) {
    sending->endpoint = *endpoint;
    sending->name = endpoint->ToString();
  }
  RunNotify(sending);
}

void Engine::RunNotify(const std::shared_ptr<Sending>& sending) {
  ChannelRef channel;
  std::shared_ptr<RemoteChannel> remote;
  std::shared_ptr<Engine> local;
  std::shared_ptr<NotifySource> source;
  {
    MutexLock lock(&mutex_);
    const auto found = channels_.find(sending->name);
    if (found != channels_.end() && found->second->established) channel = found->second;
    if (channel != nullptr && IsOpen(*channel)) {
      remote = channel->remote;
      local = channel->local.lock();
      source = channel->notify_source;
    }
  }
  if (!open()) return sending->done(ClosedError());
  if (channel == nullptr) {
    return sending->done(NoChannel(identity_.id, sending->remote_engine));
  }
  if (MonotonicNanos() >= sending->deadline_ns) {
    return NotifySent(sending, channel,
                      Timeout("the notify's time was over before it was sent",
                              {.object = "timeout_ms", .allowed = "2 ms and more"}));
  }
  if (remote != nullptr) {
    return remote->Notify(
        std::move(sending->notify.name), std::move(sending->notify.message), sending->deadline_ns,
        [self = shared_from_this(), sending, channel](const absl::Status& status) {
          self->NotifySent(sending, channel, status);
        });
  }
  if (local != nullptr) {
    return NotifySent(sending, channel, local->TakeIn(source, std::move(sending->notify)));
  }
  if (sending->reconnected) {
    return NotifySent(
        sending, channel,
        Failed(absl::StrCat("the connection to ", sending->remote_engine, " was lost again"),
               {.object = absl::StrCat("engine ", sending->remote_engine)}));
  }
  sending->reconnected = true;
  auto waiter = std::make_shared<ConnectWaiter>();
  waiter->deadline_ns = sending->deadline_ns;
  waiter->done = [self = shared_from_this(), sending, channel](const absl::Status& status) {
    if (!status.ok()) return self->NotifySent(sending, channel, status);
    self->RunNotify(sending);
  };
  WaitForChannel(sending->endpoint, std::move(waiter));
}

void Engine::NotifySent(const std::shared_ptr<Sending>& sending, const ChannelRef& channel,
                        const absl::Status& status) {
  if (status.ok()) {
    channel->notifies.fetch_add(1, std::memory_order_relaxed);
    notifies_sent_.fetch_add(1, std::memory_order_relaxed);
  }
  if (context_->notify_metrics != nullptr) context_->notify_metrics->Sent(status);
  sending->done(status);
}

absl::Status Engine::TakeIn(const std::shared_ptr<NotifySource>& source, Notify notify) {
  absl::Status taken = notifies_.Push(source, std::move(notify));
  if (taken.ok() && context_->notify_metrics != nullptr) context_->notify_metrics->Received();
  return taken;
}

NotifyQueue::Batch Engine::TakeNotifies(uint64_t after_sequence) {
  return notifies_.Take(after_sequence);
}

absl::Status Engine::Inbound::OnNotify(std::string name, std::string message) {
  absl::Status taken =
      engine_->TakeIn(notify_source_, {.name = std::move(name), .message = std::move(message)});
  if (taken.ok()) notifies_.fetch_add(1, std::memory_order_relaxed);
  return taken;
}

}  // namespace hixld
