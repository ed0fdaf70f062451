// One engine: what one initialised Hixl object is to the daemon (contract 1.2 to 1.9).
//
// Every call may come from any thread and none blocks; those that wait answer through a callback,
// exactly once. See docs/design/transfer-life.md for the locks and the order in which things end.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "daemon/direct/direct_granter.h"
#include "daemon/engine/batch.h"
#include "daemon/engine/channel.h"
#include "daemon/engine/fair_shared_mutex.h"
#include "daemon/engine/link_rule.h"
#include "daemon/engine/notify_queue.h"
#include "daemon/engine/options.h"
#include "daemon/engine/transfer.h"
#include "daemon/link/link.h"
#include "daemon/memory/region.h"
#include "daemon/memory/uncovered.h"
#include "daemon/ring/transfer_end.h"
#include "daemon/session/session.h"
#include "proto/base/clock.h"
#include "proto/base/endpoint.h"
#include "proto/base/mutex.h"
#include "proto/ring/layout.h"
#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld {

class DirectVerdict;
class NotifyMetrics;
class TransferMetrics;

struct EngineLimits {
  uint64_t max_engines_per_session = 64;
  uint64_t max_regions_per_session = 262'144;
  uint64_t max_regions_per_call = 16'384;
  uint64_t max_channels_per_engine = 4096;
  uint64_t max_transfers_per_engine = 4096;
  uint64_t max_descriptors_per_transfer = 1'048'576;
  NotifyQueue::Limits notifies;
  // Whether synchronous transfers may reach memory that its owner has not registered.
  bool relay_unregistered = true;
};

// Copies that clients make by themselves (docs/direct-copies.md).
struct DirectOptions {
  uint64_t max_bytes = 0;  // of one transfer; 0: none are granted
  // How long whoever takes memory back waits for a client that neither leaves nor ends.
  int64_t patience_ns = 5 * kNanosPerSecond;
};

// Finds the engines of this daemon.
class EngineDirectory {
 public:
  virtual ~EngineDirectory() = default;
  // The engine that listens at `endpoint`; nullptr when there is none here.
  virtual std::shared_ptr<Engine> FindListening(const Endpoint& endpoint) = 0;
};

// What all engines of a daemon share.
struct EngineContext {
  EngineLimits limits;
  BatchingOptions batching;  // of engines that do not say otherwise
  TransferSink* local = nullptr;
  LinkManager* links = nullptr;
  Loop* control = nullptr;  // timers, and callbacks that must not run under a caller's locks
  uint32_t workers = 1;
  EngineDirectory* directory = nullptr;
  // The product of a device by its physical id; null: none is known.
  std::function<Product(int32_t device_id)> product_of;
  // Physical ids of the devices that are there; null: none.
  std::function<std::vector<int32_t>()> device_ids;
  // Called when memory that transfers may have named is registered no more; may be null.
  std::function<void()> regions_gone;
  std::string node;  // what engines without a net_instance_id have in common
  TransferLog* log = nullptr;
  TransferMetrics* metrics = nullptr;       // may be null
  NotifyMetrics* notify_metrics = nullptr;  // may be null
  DirectOptions direct;
  std::atomic<uint64_t> next_id{1};  // channels and transfers
};

struct EngineIdentity {
  uint64_t handle = 0;
  uint64_t session_id = 0;
  pid_t pid = 0;  // of the client's process; 0: not visible here
  uid_t uid = 0;
  std::string id;  // as peers name it
  Endpoint endpoint;
  int32_t device_id = 0;
};

struct ChannelDescription {
  uint64_t key = 0;
  std::string remote_engine;
  std::string transport;
  bool initiator = true;
  std::string state;
  uint64_t transfers = 0;
  uint64_t bytes = 0;
  // Of these, those that the client copied by itself.
  uint64_t direct_transfers = 0;
  uint64_t direct_bytes = 0;
  uint64_t notifies = 0;
  std::string protocol;  // where the limits of a product count
};

struct EngineDescription {
  EngineIdentity identity;
  uint16_t listen_port = 0;
  std::map<std::string, std::string> options;
  std::string kind;  // "Comm", "Hixl", "Fabric"; empty when the client did not tell
  std::vector<EffectiveOption> effective;
  std::shared_ptr<const RegionSnapshot> regions;
  uint64_t transfers_active = 0;
  uint64_t transfers_completed = 0;
  uint64_t transfers_failed = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t transfers_relayed = 0;
  uint64_t notifies_sent = 0;
  uint64_t notifies_received = 0;
  uint64_t notifies_queued = 0;
  std::vector<ChannelDescription> channels;
};

struct TransferArgs {
  std::string remote_engine;
  // Instead of remote_engine: the id that Connect gave; 0 = none.
  uint64_t channel_id = 0;
  CopyDirection direction = CopyDirection::kRead;
  // What is to be copied: a view that is valid during the call only, or a batch to keep, which a
  // call that may have to wait then need not copy.
  BatchView batch;
  std::optional<OwnedBatch> owned;
  int64_t timeout_ns = 0;
  uint64_t user_data = 0;
  // Unregistered memory may go through the relay: synchronous calls only (contract 1.9).
  bool may_relay = false;
  // Called before it starts, with registered memory around its ranges, here and at the peer; some
  // of it where there is much. May be null.
  absl::AnyInvocable<void(absl::Span<const ring::Extent> local,
                          absl::Span<const ring::Extent> remote)>
      on_accepted;
};

struct TransferReport {
  uint64_t id = 0;
  TransferState state = TransferState::kWaiting;
  uint64_t user_data = 0;
  absl::Status status;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(EngineContext* context, EngineIdentity identity, EngineOptions options);
  ~Engine();

  const EngineIdentity& identity() const { return identity_; }
  const EndpointSet& endpoints() const { return options_.endpoints; }
  // The listening socket; given before anybody else sees the engine.
  void SetListener(std::unique_ptr<EngineListener> listener) { listener_ = std::move(listener); }
  // Whose plain memory relayed transfers reach; given before anybody else sees the engine.
  void SetSession(const std::shared_ptr<Session>& session) { session_ = session; }
  bool open() const { return open_.load(std::memory_order_acquire); }

  // Memory. `other_regions`: how many regions the session has in its other engines.
  absl::StatusOr<std::vector<std::shared_ptr<const Region>>> Register(
      std::vector<RegionTable::Request> requests, uint64_t other_regions);
  // Answers with the number of unknown ids once no transfer can touch the known ones any more.
  // FAILED for a known one while client channels exist (contract 1.3, B10), unless the options say
  // that it may.
  void Deregister(std::vector<uint64_t> region_ids,
                  absl::AnyInvocable<void(absl::StatusOr<uint32_t>)> done);
  std::shared_ptr<const RegionSnapshot> Regions() const { return regions_.Load(); }

  struct Connected {
    uint64_t channel_id = 0;
    std::string transport;
  };
  void Connect(absl::string_view remote_engine, int64_t timeout_ms,
               absl::AnyInvocable<void(absl::StatusOr<Connected>)> done);
  void Disconnect(absl::string_view remote_engine, int64_t timeout_ms,
                  absl::AnyInvocable<void(absl::Status)> done);

  using SyncDone = TransferDone;
  // Answered when the transfer has ended. timeout_ns 0 = no deadline. Returns a function that
  // cancels the transfer, for a caller that goes away.
  absl::AnyInvocable<void()> TransferSync(TransferArgs args, SyncDone done);
  // Answered with the transfer's id as soon as it is accepted. timeout_ns 0 = no deadline.
  void TransferAsync(TransferArgs args, absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done);

  // By id: unknown or already reported ids come back FAILED with PARAM_INVALID.
  std::vector<TransferReport> Query(absl::Span<const uint64_t> ids);
  // Every outstanding one in submission order (contract 1.9); max_results 0 = no limit.
  std::vector<TransferReport> QueryAll(uint32_t max_results, bool skip_waiting);

  // Answers OK when the notify waits in the remote engine's queue. Needs a channel and makes none
  // (contract 1.10), but opens a broken one again. After TIMEOUT, and FAILED by a lost link, it may
  // have arrived or not; it is never sent twice.
  void SendNotify(absl::string_view remote_engine, Notify notify, int64_t timeout_ms,
                  absl::AnyInvocable<void(absl::Status)> done);
  // What has been sent to this engine; see NotifyQueue::Take.
  NotifyQueue::Batch TakeNotifies(uint64_t after_sequence);

  // Ends everything; `closed` runs when no byte of any transfer that touches this engine's memory
  // can land any more, peers have been told and the port is free. Every call gets its answer.
  void Close(absl::string_view reason, absl::AnyInvocable<void()> closed);

  // Lets the client copy on this channel by itself; see DirectGranter::Grant.
  absl::StatusOr<DirectGrant> GrantDirect(uint64_t channel_id,
                                          std::shared_ptr<DirectCopier> copier);

  // The target's side: a channel from another daemon.
  absl::StatusOr<std::shared_ptr<InboundChannel>> AcceptChannel(
      const InboundRequest& request, std::shared_ptr<InboundHandle> handle);

  // Counts what clients have copied by themselves since the last call, too.
  EngineDescription Describe();
  // Appends the transfers that run now.
  void DescribeTransfers(std::vector<TransferDescription>* out) const;

 private:
  class Inbound;
  struct Pending;
  using PendingRef = std::shared_ptr<Pending>;
  using ChannelRef = std::shared_ptr<Channel>;
  using TransferRef = std::shared_ptr<Transfer>;

  void FinishClose(const std::string& reason);

  // engine_memory.cc
  // What the product does not let this engine register.
  absl::Status CheckProduct(const std::vector<RegionTable::Request>& requests) const;
  // Some engine that a client channel leads to; empty when there is none.
  std::string ConnectedTo() const;
  uint64_t FirstKnown(const std::vector<uint64_t>& sorted_ids) const;
  std::vector<std::shared_ptr<Inbound>> InboundChannels() const;
  void FenceInbound(const GateRef& gate);
  // Initiators elsewhere fetch the regions anew before they promise that a range is registered.
  void TellRegionsGone();
  void NoteRegionsGone() const {
    if (context_->regions_gone) context_->regions_gone();
  }
  static bool SameInitiator(const InboundRequest& a, const InboundRequest& b);
  // Transfers of this daemon's engines that touch these regions, or any when empty; the gate opens
  // when they have ended.
  std::vector<TransferRef> InboundTouching(const std::vector<uint64_t>& region_ids,
                                           const GateRef& gate);

  // engine_direct.cc
  absl::StatusOr<ChannelRef> DirectChannel(uint64_t channel_id, std::shared_ptr<Engine>* target);
  absl::Status MayGrant(const Engine& target, const DirectCopier& copier) const;
  absl::StatusOr<DirectGrant> MakeGrant(const ChannelRef& channel,
                                        const std::shared_ptr<Engine>& target,
                                        std::shared_ptr<DirectCopier> copier);
  // The grant replaces the channel's former one, unless the channel is gone meanwhile.
  absl::Status KeepGrant(const ChannelRef& channel, const std::shared_ptr<DirectGate>& gate);
  void DropGranted(DirectGate* gate);
  void NoteMoreRegions();
  // Takes grants of this engine's memory back, all of them or (again) those that are closed; `gate`
  // opens when the clients have left, and `verdict` (may be null) says which ones did not.
  void CloseGranted(bool all, const std::shared_ptr<DirectVerdict>& verdict, const GateRef& gate);
  void CountDirect(Channel* channel, DirectGate* direct);
  void CountDirect();

  // engine_channels.cc
  absl::StatusOr<Endpoint> CheckRemote(absl::string_view remote_engine) const;
  absl::Status CheckRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForChannel(const Endpoint& endpoint, std::shared_ptr<ConnectWaiter> waiter);
  void OpenChannel(const ChannelRef& channel, int64_t deadline_ns);
  std::shared_ptr<TransferRoute> RouteTo(std::shared_ptr<RemoteChannel> remote) const;
  absl::StatusOr<std::shared_ptr<const LinkRule>> RuleFor(
      const Channel& channel, const std::shared_ptr<Engine>& local,
      const std::shared_ptr<RemoteChannel>& remote) const;
  // What the attempt that had until `deadline_ns` has brought.
  void ChannelOpened(const ChannelRef& channel, int64_t deadline_ns, std::shared_ptr<Engine> local,
                     absl::StatusOr<std::shared_ptr<RemoteChannel>> remote);
  void ChannelBroken(const ChannelRef& channel, const absl::Status& reason);
  // Cancels the channel's transfers; the gate opens when they have all ended. With `forget` nobody
  // may ask for them any more, nor for those that have ended already.
  void DropTransfers(uint64_t channel_key, const absl::Status& reason, bool forget,
                     const GateRef& gate);
  // Drops the channel itself too; false when it is there no more.
  bool DropChannel(const ChannelRef& channel, const absl::Status& reason, bool forget,
                   const GateRef& gate);
  // The same, for a caller that need not know when.
  void DropChannel(const ChannelRef& channel, const absl::Status& reason);
  bool IsOpen(const Channel& channel) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerAt(int64_t deadline_ns, std::shared_ptr<ConnectWaiter> waiter);

  // engine_transfers.cc
  void Begin(const PendingRef& pending, TransferArgs args);
  ChannelRef FindChannel(const Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(const PendingRef& pending, const BatchView& batch);
  // Once the channel is open again, and once the target's regions have been fetched again.
  void RunConnected(const PendingRef& pending, const BatchView& batch);
  void RunRefreshed(const PendingRef& pending, const BatchView& batch,
                    const std::shared_ptr<RemoteChannel>& remote);
  void Keep(const PendingRef& pending, const BatchView& batch);
  // What happens when the target refuses a range.
  static absl::AnyInvocable<void(const std::shared_ptr<Transfer>&, const absl::Status&)> OnRefused(
      const PendingRef& pending);
  void RunOn(const PendingRef& pending, const BatchView& batch, const ChannelRef& channel,
             const std::shared_ptr<RemoteChannel>& remote,
             const std::shared_ptr<TransferRoute>& route, const std::shared_ptr<Engine>& target,
             const std::shared_ptr<const LinkRule>& rule);
  void Prepare(const TransferRef& transfer, std::shared_ptr<TransferJob> job,
               const PendingRef& pending, const ChannelRef& channel,
               std::shared_ptr<TransferRoute> route);
  // Puts the transfer on both engines' books, or says why not.
  absl::Status Admit(const TransferRef& transfer, const ChannelRef& channel);
  void Ended(const TransferRef& transfer, absl::Status status);
  void Finish(const TransferRef& transfer, absl::Status status);
  // Off the books again, as if it had not started.
  void Withdraw(const TransferRef& transfer);
  void Measure(const Transfer& transfer, TransferState state) const;
  void LogEnd(const Transfer& transfer, const absl::Status& status) const;
  void DropAfterFailure(uint64_t channel_key, const absl::Status& status);
  TransferReport ReportOf(const Transfer& transfer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TransferDescription DescribeTransfer(const Transfer& transfer) const;
  absl::Status ClosedError() const;

  // engine_relay.cc
  class RelayTicket;
  bool Relays() const;
  absl::Status NotRelayed(const Pending& pending, absl::Status status) const;
  void BeginRelay(const PendingRef& pending, const BatchView& batch);
  void RunRelay(const PendingRef& pending);
  void WaitForRelay(const PendingRef& pending);
  void RelayEnded(uint32_t buffers);
  // How many buffers of the pool so many bytes need.
  uint32_t BuffersFor(const BatchView& batch) const;
  bool RelayOpened(const PendingRef& pending, const BatchView& batch,
                   const std::shared_ptr<RemoteChannel>& remote);
  absl::StatusOr<std::shared_ptr<const RegionSnapshot>> Extended(
      std::shared_ptr<const RegionSnapshot> regions, absl::Span<const uint64_t> addresses,
      absl::Span<const uint64_t> lengths) const;
  absl::Status ExtendForRelay(const Pending& pending, const BatchView& batch, const Engine* target,
                              std::shared_ptr<const RegionSnapshot>* local,
                              std::shared_ptr<const RegionSnapshot>* remote) const;
  std::shared_ptr<MemoryAccess> PlainMemory(const AddressRange& range) const;

  // engine_notifies.cc
  struct Sending;
  void RunNotify(const std::shared_ptr<Sending>& sending);
  void NotifySent(const std::shared_ptr<Sending>& sending, const ChannelRef& channel,
                  const absl::Status& status);
  absl::Status TakeIn(const std::shared_ptr<NotifySource>& source, Notify notify);

  EngineContext* const context_;
  const EngineIdentity identity_;
  const EngineOptions options_;
  std::unique_ptr<EngineListener> listener_;
  std::weak_ptr<Session> session_;
  RegionTable regions_;
  NotifyQueue notifies_;
  std::atomic<bool> open_{true};

  // Held shared from the look-up of regions until the transfer is on the books, and exclusively
  // while regions go: whoever removes a region then sees every transfer that was planned with it.
  // Taken before mutex_; two engines' may be held shared together.
  FairSharedMutex planning_;

  mutable Mutex mutex_;  // guards what follows; no callback runs under it
  // By the canonical id of the remote engine.
  std::unordered_map<std::string, ChannelRef> channels_ ABSL_GUARDED_BY(mutex_);
  // The same by their keys, for transfers that name them so.
  std::unordered_map<uint64_t, ChannelRef> by_key_ ABSL_GUARDED_BY(mutex_);
  // Running ones, and ended asynchronous ones that have not been reported. Ids grow.
  absl::btree_map<uint64_t, TransferRef> transfers_ ABSL_GUARDED_BY(mutex_);
  // Running transfers of other engines of this daemon that touch this one's memory.
  // The gates open when the transfer has ended.
  absl::flat_hash_map<TransferRef, std::vector<GateRef>> touching_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<Inbound>> inbound_ ABSL_GUARDED_BY(mutex_);
  // By which clients of this daemon copy from and to this engine's memory, until they are empty.
  std::map<DirectGate*, std::shared_ptr<DirectGate>> granted_ ABSL_GUARDED_BY(mutex_);
  uint64_t active_ ABSL_GUARDED_BY(mutex_) = 0;
  // Buffers of the pool that relayed transfers have, and those that wait for some, in order.
  uint32_t relays_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<PendingRef> relay_waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::AnyInvocable<void()>> on_closed_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;

  std::atomic<uint64_t> completed_{0};
  std::atomic<uint64_t> failed_{0};
  std::atomic<uint64_t> bytes_read_{0};
  std::atomic<uint64_t> bytes_written_{0};
  std::atomic<uint64_t> relayed_{0};
  std::atomic<uint64_t> notifies_sent_{0};
};

}  // namespace hixld
