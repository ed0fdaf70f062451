// One engine's channels to others (contract 1.7): the initiator's side.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/engine/link_rule.h"
#include "daemon/engine/notify_queue.h"
#include "daemon/engine/transfer.h"
#include "daemon/link/link.h"
#include "proto/base/endpoint.h"
#include "proto/base/status.h"

namespace hixld {

class DirectGate;
class Engine;

// NOT_CONNECTED: `engine` has no channel to `remote`.
inline absl::Status NoChannel(absl::string_view engine, absl::string_view remote) {
  return NotConnected(absl::StrCat("engine ", engine, " is not connected to ", remote),
                      {.object = absl::StrCat("engine ", remote)});
}

// Somebody who waits for a channel to open: a Connect call, or a transfer that needs it.
struct ConnectWaiter {
  int64_t deadline_ns = 0;
  // A Connect call: SUCCESS for the first, ALREADY_CONNECTED for those that joined it.
  bool connect_call = false;
  std::atomic<bool> answered{false};
  absl::AnyInvocable<void(absl::Status)> done;

  // Only the first answer counts; returns whether this one did.
  bool Answer(absl::Status status) {
    if (answered.exchange(true, std::memory_order_acq_rel)) return false;
    done(std::move(status));
    return true;
  }
};

// Guarded by its engine's lock, except for the counters.
struct Channel {
  enum class State : uint8_t {
    kConnecting,
    kOpen,
    kBroken,  // the link is lost or the peer closed it; the next operation opens it again
  };

  uint64_t key = 0;           // unique in this daemon
  std::string remote_engine;  // canonical
  Endpoint endpoint;
  State state = State::kConnecting;
  // A Connect has succeeded: from then on the channel exists until Disconnect.
  bool established = false;
  uint32_t worker = 0;
  // Exactly one of these is set while it is open.
  std::weak_ptr<Engine> local;
  std::shared_ptr<RemoteChannel> remote;
  // How transfers reach `remote`.
  std::shared_ptr<TransferRoute> remote_route;
  // With `local`: its share of that engine's queue.
  std::shared_ptr<NotifySource> notify_source;
  // What the two products allow; nullptr: everything. Set when it opens.
  std::shared_ptr<const LinkRule> rule;
  std::vector<std::shared_ptr<ConnectWaiter>> waiters;
  // The client's own copies on this channel; null: none were granted. Locks of a gate are taken
  // under no lock of an engine, except to look at it.
  std::shared_ptr<DirectGate> direct;

  // All of them, and those that the client copied by itself.
  std::atomic<uint64_t> transfers{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> direct_transfers{0};
  std::atomic<uint64_t> direct_bytes{0};
  std::atomic<uint64_t> notifies{0};
};

// Where the transfers of a channel to another daemon go.
class RemoteRoute : public TransferRoute {
 public:
  explicit RemoteRoute(std::shared_ptr<RemoteChannel> channel) : channel_(std::move(channel)) {}
  absl::string_view transport() const override { return channel_->transport(); }
  void Submit(std::shared_ptr<TransferJob> job) override { channel_->Submit(std::move(job)); }
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    channel_->Cancel(job, std::move(reason));
  }

 private:
  const std::shared_ptr<RemoteChannel> channel_;
};

// Where the transfers between two engines of this daemon go.
class LocalRoute : public TransferRoute {
 public:
  explicit LocalRoute(TransferSink* sink) : sink_(sink) {}
  absl::string_view transport() const override { return sink_->transport(); }
  void Submit(std::shared_ptr<TransferJob> job) override { sink_->Submit(std::move(job)); }
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    sink_->Cancel(job, std::move(reason));
  }

 private:
  TransferSink* const sink_;
};

}  // namespace hixld
