// One initialised engine: arguments checked, books kept, everything else asked of the daemon.
// See docs/client.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/async_connect.h"
#include "client/cpp/buffer_pool.h"
#include "client/cpp/channel_pool.h"
#include "client/cpp/connection.h"
#include "client/cpp/direct_copies.h"
#include "client/cpp/memory_table.h"
#include "client/cpp/options.h"
#include "client/cpp/request_table.h"
#include "client/cpp/submitter.h"
#include "client/cpp/transfer_log.h"
#include "proto/base/mutex.h"

namespace hixld::client {

struct EngineConfig {
  std::string local_engine;
  EngineOptions options;
  bool listen_on_any_port = false;
  int32_t device_id = 0;  // physical
  std::string product;    // of that device; "" = unknown
  DaemonAddress daemon;
};

// What the daemon knows of a device.
struct DeviceFacts {
  std::string product;  // "" where it does not say
  bool present = false;
  std::vector<int32_t> devices;  // physical ids of those that are there
};

struct QueryArgs {
  uint32_t max_results = UINT32_MAX;
  bool skip_waiting = false;
};

struct QueryResult {
  uint64_t request = 0;
  const void* user_data = nullptr;
  RequestState state = RequestState::kWaiting;
};

// Thread-safe. Results are those of contract 1.3, with the daemon's details. Must be destroyed in
// the process that opened it.
class Engine : private Recoverable {
 public:
  // PARAM_INVALID: the address. FAILED: no daemon, or it cannot open the engine.
  static absl::StatusOr<std::shared_ptr<Engine>> Open(EngineConfig config);
  // Stops the background connects, then releases everything in the daemon.
  ~Engine() override;

  // A device, by its physical id, as the daemon behind `connection` has it. FAILED: no daemon. The
  // session that it opens lives as long as `connection` is held.
  static absl::StatusOr<DeviceFacts> FactsOf(Connection& connection, int32_t device_id);

  // The name under which peers reach it.
  std::string id() const;
  bool auto_connect() const { return config_.options.auto_connect; }
  EngineKind kind() const { return config_.options.kind; }
  const std::string& product() const { return config_.product; }

  // All or none. Writes one handle per range.
  absl::Status Register(const std::vector<MemoryRange>& ranges, std::vector<uint64_t>* handles);
  absl::Status RegisterMemfd(const MemoryRange& range, int memfd, uint64_t offset,
                             uint64_t* handle);
  absl::Status Deregister(const std::vector<uint64_t>& handles);
  absl::StatusOr<std::unique_ptr<PoolBuffer>> Allocate(uint64_t length, MemoryKind kind);

  absl::Status Connect(const std::string& remote, int32_t timeout_ms);
  absl::Status Disconnect(const std::string& remote, int32_t timeout_ms);
  absl::Status ConnectAsync(const std::string& remote, int32_t timeout_ms);
  absl::Status DisconnectAsync(const std::string& remote, int32_t timeout_ms);
  const AsyncConnectPool& async_connects() const { return *async_connects_; }

  absl::Status Transfer(const std::string& remote, TransferDirection direction,
                        const BatchView& batch, int32_t timeout_ms);
  absl::StatusOr<uint64_t> Submit(const std::string& remote, TransferDirection direction,
                                  const BatchView& batch, const void* user_data);
  // PARAM_INVALID: unknown or told before. `message` says why a transfer failed.
  absl::StatusOr<RequestState> Query(uint64_t request, std::string* message);
  absl::StatusOr<std::vector<QueryResult>> QueryAll(const QueryArgs& args);

  absl::Status SendNotify(const std::string& remote, const std::string& name,
                          const std::string& message, int32_t timeout_ms);
  struct Notify {
    std::string name;
    std::string message;
  };
  // Everything that has arrived, which is told once.
  absl::StatusOr<std::vector<Notify>> GetNotifies();

 private:
  // The engine's existence in one session. Cheap to copy.
  struct Attachment {
    std::shared_ptr<Session> session;
    std::shared_ptr<Submitter> submitter;
    uint64_t handle = 0;

    bool alive() const { return session != nullptr && session->alive(); }
    uint64_t number() const { return session == nullptr ? 0 : session->number(); }
  };

  explicit Engine(EngineConfig config);

  // engine.cc: life in sessions
  bool Recover() override;
  absl::StatusOr<Attachment> Attach(Connection::Start start = Connection::Start::kAllowed);
  absl::StatusOr<Attachment> OpenIn(std::shared_ptr<Session> session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(attach_mutex_);
  Attachment Current() const;
  // Ends the session if `status` says that it is lost; returns `status`.
  absl::Status Noted(const Attachment& live, absl::Status status);
  // Runs an idempotent call, once more in a new session if the first one is lost.
  absl::Status Idempotent(const std::function<absl::Status(const Attachment&)>& call);

  // engine_memory.cc
  absl::Status RegisterAll(std::vector<Registration> wanted, std::vector<uint64_t>* handles);
  absl::Status TryRegisterAll(std::vector<Registration> wanted, std::vector<uint64_t>* handles);
  absl::Status CheckAll(const std::vector<Registration>& wanted,
                        std::vector<Registration>* missing) const;
  absl::Status SendRegistrations(const Attachment& live,
                                 const std::vector<Registration*>& registrations);
  absl::Status RegisterAgain(const Attachment& live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(attach_mutex_);
  absl::StatusOr<std::vector<uint64_t>> RegionsOf(const std::vector<uint64_t>& handles,
                                                  const Attachment& live);

  // Marks a peer as busy while it lives, so that its link is not evicted. `remote` must outlive it.
  class Use {
   public:
    Use(Engine* engine, const std::string& remote);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Engine* const engine_;  // nullptr without a channel pool
    const std::string& remote_;
  };

  // engine_links.cc
  absl::Status CheckRemote(const std::string& remote) const;
  absl::Status ConnectIn(const Attachment& live, const std::string& remote, int64_t deadline);
  absl::StatusOr<Attachment> LinkedTo(const std::string& remote, int64_t deadline);
  absl::StatusOr<bool> BeginLinking(const Attachment& live, const std::string& remote,
                                    int64_t deadline, bool* again);
  absl::Status Relink(const Attachment& live, const std::string& remote, bool again,
                      int64_t deadline);
  bool HasLink(const std::string& remote) const;
  void NoteLink(const std::string& remote, uint64_t session, uint64_t channel_id);
  uint64_t ChannelTo(const std::string& remote, uint64_t session) const;
  void DropLink(const std::string& remote);
  void AfterError(const std::string& remote, const absl::Status& status);
  // Makes room for a new link to `remote` where a channel pool says so (contract 3.2).
  // RESOURCE_EXHAUSTED when there is none until `deadline`.
  absl::Status MakeRoom(const std::string& remote, int64_t deadline);
  PoolPlan PlanRoomFor(const std::string& remote) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict(const std::vector<std::string>& peers);

  // engine_direct.cc
  bool CopiedHere(const Attachment& live, const TransferCall& call, int64_t deadline);
  // False: not yet again.
  bool PublishLocal();

  // engine_transfer.cc
  TransferTrace Trace(const std::string& remote, TransferDirection direction,
                      const BatchView& batch) const;
  void Forget(const std::vector<Request>& requests);
  template <typename Send>
  absl::Status Carry(const std::string& remote, TransferDirection direction, const BatchView& batch,
                     int64_t deadline, Send send);
  absl::Status Refresh(absl::Span<const uint64_t> requests);
  absl::Status Ask(const Attachment& live, absl::Span<const uint64_t> requests,
                   absl::Span<const uint64_t> transfers);
  bool Take(uint64_t request, const QueryArgs& args, std::set<std::string>* failed_peers,
            QueryResult* result, std::string* message);

  // engine_notifies.cc
  // The last answer with notifies that arrived, and the session that gave it.
  struct NotifyCursor {
    uint64_t session = 0;
    uint64_t sequence = 0;
  };
  absl::Status FetchNotifies(const Attachment& live, NotifyCursor* cursor,
                             std::vector<Notify>* notifies);

  const EngineConfig config_;
  const std::shared_ptr<Connection> connection_;

  // Orders registrations and deregistrations, so that the table is what the daemon has.
  Mutex register_mutex_;
  // Held while the engine is opened in a session, and when its books must match the session.
  mutable Mutex attach_mutex_ ABSL_ACQUIRED_AFTER(register_mutex_);
  Attachment attachment_ ABSL_GUARDED_BY(attach_mutex_);
  std::string id_ ABSL_GUARDED_BY(attach_mutex_);
  MemoryTable memory_ ABSL_GUARDED_BY(attach_mutex_);
  int64_t next_publish_ns_ ABSL_GUARDED_BY(attach_mutex_) = 0;
  // Orders status queries: the daemon tells an end once.
  Mutex query_mutex_;
  // Orders the fetching of notifies: each answer confirms the one before it.
  Mutex notify_mutex_;
  NotifyCursor notify_cursor_ ABSL_GUARDED_BY(notify_mutex_);
  // Guards links and requests.
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(attach_mutex_);
  CondVar links_changed_;
  // A link that the program has: the session in which the daemon has it, and the channel's id
  // there (0 = not told).
  struct Link {
    uint64_t session = 0;
    uint64_t channel_id = 0;
    // Order of the last transfer among all of this engine; 0 = none yet.
    uint64_t last_used = 0;
  };
  // By peer.
  std::map<std::string, Link> links_ ABSL_GUARDED_BY(mutex_);
  // Peers that a transfer is linking to now.
  std::set<std::string> linking_ ABSL_GUARDED_BY(mutex_);
  // Calls that are transferring with a peer, or about to; kept with a channel pool only.
  std::map<std::string, int> busy_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  RequestTable requests_ ABSL_GUARDED_BY(mutex_);

  DirectCopies direct_;

  std::unique_ptr<AsyncConnectPool> async_connects_;
};

}  // namespace hixld::client
