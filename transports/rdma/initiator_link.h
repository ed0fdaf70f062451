// The initiator's end of a link: transfers wait in one queue, and every lane takes from it what
// it has room for.
//
// Locks: `mutex_` guards jobs, queue, keys and the view of the lanes; no verbs call, callback or
// message is made under it. Lanes are set up and taken down on the context's control thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "proto/base/mutex.h"
#include "proto/wire/rdma.pb.h"
#include "transports/rdma/connect.h"
#include "transports/rdma/context.h"
#include "transports/rdma/job_queue.h"
#include "transports/rdma/key_range.h"
#include "transports/rdma/remote_keys.h"
#include "transports/rdma/send_lane.h"
#include "transports/transport.h"

namespace hixld::rdma {

class InitiatorCore : public SendLane::Source,
                      public EventListener,
                      public std::enable_shared_from_this<InitiatorCore> {
 public:
  // `fallback` (may be null) carries what RDMA cannot. `route_source` is the address from which
  // packets to the peer leave; zero = unknown. `peer` is its name in messages.
  InitiatorCore(std::shared_ptr<Context> context, std::string peer, Gid route_source,
                RdmaClass treatment, std::shared_ptr<TransferSink> fallback, ControlPath* control);

  void Start();
  void Submit(std::shared_ptr<TransferJob> transfer);
  void Cancel(const std::shared_ptr<TransferJob>& transfer, absl::Status reason);
  void OnControlMessage(absl::string_view payload);
  void Close(absl::Status reason, int64_t fenced_at_ns);
  std::vector<LaneStats> Lanes() const;
  // Why transfers go over the fall-back; empty while they do not.
  std::string Trouble() const;
  // Whether new transfers go over the fall-back.
  bool away() const { return has_fallback_ && away_.load(std::memory_order_relaxed); }
  // `control` and `fallback` are not used any more when this returns.
  void LetGo();

  // SendLane::Source
  void OnProven(SendLane& lane) override;
  void TakeWork(SendLane& lane, size_t max_works, uint64_t max_bytes,
                std::vector<Work>* out) override;
  void OnSent(SendLane& lane, const std::vector<Work>& sent) override;
  void OnBroken(SendLane& lane, absl::Status why, SendLane::Culprit culprit,
                std::vector<Work> unknown) override;

  // EventListener
  void OnPortDown(uint32_t device, uint32_t port, const std::string& why) override;
  void OnPortsChanged() override;
  void OnQueuePairFailed(uint32_t device, uint32_t number, const std::string& why) override;

 private:
  // What a lane is doing; changed on the control thread only.
  enum class LaneState : uint8_t { kDown, kOpening, kProving, kUp, kClosing };
  struct LaneSlot {
    LaneState state = LaneState::kDown;
    uint64_t attempt = 0;
    uint32_t failures = 0;  // attempts in a row that moved no byte
    Loop::TimerId timer = 0;
    // While opening.
    std::unique_ptr<VerbsQueuePair> queue_pair;
    std::shared_ptr<CompletionQueue> completions;
    uint32_t depth = 0;
    uint32_t sequence = 0;
    // The way that this attempt takes.
    uint32_t device = 0;
    uint32_t remote_device = 0;
    LaneEnd end;
    uint32_t peer_mtu = 0;
    std::string local_name;
    std::string remote_name;
    std::shared_ptr<SendLane> lane;
    // WRITEs that may still land in the target's memory, until it says that its end is gone.
    std::vector<Work> limbo;
    std::string trouble;  // the last one
    uint64_t reopened = 0;
    uint64_t bytes_sent = 0;  // by earlier attempts
    uint64_t bytes_received = 0;
  };
  static const char* StateText(LaneState state);
  // Collects what to do once `mutex_` is free.
  struct Outcome {
    absl::InlinedVector<std::pair<std::unique_ptr<Job>, absl::Status>, 4> ended;
    std::vector<std::unique_ptr<Job>> elsewhere;  // in moving_
    bool kick = false;                            // lanes that have nothing to do
    std::shared_ptr<SendLane> idle;               // this one
  };
  struct MissingKeys {
    std::shared_ptr<TransferJob> transfer;
    MemoryAccess* access = nullptr;  // of local memory to register, or null
    uint64_t offset = 0;
    uint32_t device = 0;
    uint32_t remote_device = 0;
    std::vector<hixl::wire::v1::RdmaRange> ranges;
  };
  using KeysOf = std::pair<uint32_t, uint64_t>;  // the target's device, channel

  // Jobs (initiator_jobs.cc).
  // The last keys that were found: blocks of a list mostly lie under the same ones.
  struct LastKeys {
    const MemoryAccess* access = nullptr;
    KeyRange local;
    uint64_t channel = 0;
    KeyRange remote;
  };
  std::optional<Keys> FindKeys(const SendLane& lane, Job& job, const Range& range, LastKeys* last,
                               std::vector<MissingKeys>* missing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False when there is none.
  bool FindLocal(const SendLane& lane, const MemoryAccess* access, uint64_t offset, LastKeys* last);
  bool FindRemote(const SendLane& lane, uint64_t channel, uint64_t address, LastKeys* last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForKeys(std::vector<MissingKeys> missing);
  void OnLocalKey(const std::weak_ptr<TransferJob>& transfer, const absl::Status& status);
  std::vector<hixl::wire::v1::RdmaRange> UnknownRanges(const SendLane& lane, const Job& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndJob(Job* job, absl::Status status, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveElsewhere(Job* job, const absl::Status& why, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(Job* job, Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(const Work& work, uint32_t lane, Outcome* outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SubmitElsewhere(const std::shared_ptr<TransferJob>& transfer);
  Job* Find(const TransferJob* transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Carry(Outcome outcome);
  void KickLanes();
  std::shared_ptr<SendLane> TakeIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushLanesOf(const std::weak_ptr<TransferJob>& transfer);
  void ArmDeadline(int64_t deadline_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnDeadline();
  void OnKeyReply(const hixl::wire::v1::RdmaKeyReply& reply);
  void OnKeysRevoked(uint64_t channel);
  bool NoteKeyTrouble(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportKeyTrouble(const absl::Status& status);

  // Lanes (initiator_link.cc), on the control thread.
  void Handle(const hixl::wire::v1::RdmaMessage& message);
  void OnOffer(const hixl::wire::v1::RdmaOffer& offer);
  absl::StatusOr<std::vector<PortPair>> Ways(std::vector<UsablePort>* local);
  void OpenLane(uint32_t index);
  absl::Status TryOpenLane(uint32_t index);
  void OnLaneOpened(const hixl::wire::v1::RdmaLaneOpened& message);
  absl::Status Complete(LaneSlot& slot, uint32_t index,
                        const hixl::wire::v1::RdmaLaneOpened& message);
  void OnLaneUp(uint32_t index, uint64_t attempt);
  void FailOpening(uint32_t index, const absl::Status& why);
  void OnLaneClosed(uint32_t index, uint64_t attempt);
  void OnLaneBroken(const hixl::wire::v1::RdmaLaneBroken& message);
  void CloseTargetEnd(uint32_t index);
  void RetryLater(uint32_t index);
  void ReleaseLimbo(uint32_t index);
  void NoteLanes();
  void OnGiveUp();
  void OpenDownLanes();
  std::shared_ptr<TransferSink> Fallback();
  void Send(const hixl::wire::v1::RdmaMessage& message);
  uint32_t UpLanes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Context> context_;
  const std::string peer_;
  const Gid route_source_;
  const RdmaClass treatment_;

  Mutex control_mutex_;
  ControlPath* control_ ABSL_GUARDED_BY(control_mutex_);
  std::shared_ptr<TransferSink> fallback_ ABSL_GUARDED_BY(control_mutex_);
  const bool has_fallback_;

  // On the control thread.
  std::vector<UsablePort> remote_ports_;
  std::string offer_;  // the last one
  bool ever_up_ = false;
  Loop::TimerId give_up_timer_ = 0;
  Loop::TimerId deadline_timer_ = 0;
  uint64_t next_attempt_ = 1;

  mutable Mutex mutex_;
  absl::flat_hash_map<const TransferJob*, std::unique_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  // On their way to the fall-back, with the reason of those that were cancelled meanwhile.
  std::unordered_map<const TransferJob*, absl::Status> moving_ ABSL_GUARDED_BY(mutex_);
  JobQueue queue_ ABSL_GUARDED_BY(mutex_);
  // Written on the control thread, under the lock; read there without it.
  std::vector<LaneSlot> lanes_;
  std::map<KeysOf, RemoteKeys> keys_ ABSL_GUARDED_BY(mutex_);
  struct KeyWaiters {
    KeysOf of;
    // Keys of the channel were revoked since: the answer does not count.
    bool outdated = false;
    std::weak_ptr<TransferJob> transfer;
  };
  std::map<uint64_t, KeyWaiters> asked_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_request_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t armed_deadline_ns_ ABSL_GUARDED_BY(mutex_) = kNoDeadline;
  // Lanes take nothing any more; set once.
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  int64_t fenced_at_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  // No lane for too long: transfers go elsewhere or fail with this.
  absl::Status given_up_ ABSL_GUARDED_BY(mutex_);
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
  // The last reason why memory could not be registered, here or at the target.
  std::string key_trouble_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> away_{false};  // given_up_ is an error
  uint32_t next_kick_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hixld::rdma
