// What one engine copies by itself instead of asking the daemon: small synchronous transfers to
// engines of the same daemon and user. See docs/direct-copies.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "client/cpp/direct_path.h"
#include "client/cpp/peer_files.h"
#include "client/cpp/range_table.h"
#include "client/cpp/session.h"
#include "client/cpp/snapshot_cell.h"
#include "client/cpp/submitter.h"
#include "proto/base/mutex.h"

namespace hixld::client {

// Thread-safe.
class DirectCopies {
 public:
  // Not `enabled`: everything goes to the daemon.
  explicit DirectCopies(bool enabled);

  // The hot path: true when the batch was copied, on a grant that is there. False says nothing;
  // the daemon has to do it.
  bool TryCopy(const std::string& remote, TransferDirection direction, const BatchView& batch) {
    if (!enabled_) return false;
    const SnapshotCell<View>::Reader view(&view_);
    if (view->local == nullptr) return false;
    const auto path = view->paths.find(remote);
    return path != view->paths.end() && path->second->Copy(*view->local, direction, batch);
  }

  // Whether the daemon would grant it: what follows is tried for these only.
  bool Wants(const Session& session, const TransferCall& call) const;
  // Gets what TryCopy lacked, a grant or a mapping; true when it may succeed now. Asks the daemon,
  // at most now and then, and never in two threads at once.
  bool Reach(const std::shared_ptr<Session>& session, const TransferCall& call, int64_t deadline);

  // The link is dropped. Copies under way end by themselves; the daemon waits for them.
  void Drop(const std::string& remote);
  // The session was replaced.
  void DropAll();

  // This process's registered host memory: forgotten whenever that changes, and given again when a
  // transfer misses it.
  void ForgetLocal();
  void SetLocal(std::shared_ptr<const LocalRanges> local);
  bool local_missing() const { return local_missing_.load(std::memory_order_acquire); }

 private:
  struct View {
    std::shared_ptr<const LocalRanges> local;
    std::unordered_map<std::string, std::shared_ptr<DirectPath>> paths;
  };
  // When the daemon was asked for a channel's grant.
  struct Attempt {
    uint64_t session = 0;
    uint64_t channel_id = 0;
    bool refused = false;  // for ever
    int64_t next_ns = 0;
    int64_t backoff_ns = 0;
  };

  bool ReachAlone(const std::shared_ptr<Session>& session, const TransferCall& call,
                  int64_t deadline);
  bool AskForGrant(const std::shared_ptr<Session>& session, const TransferCall& call,
                   int64_t deadline);
  std::shared_ptr<DirectPath> PathTo(const std::string& remote) const;
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool enabled_;
  SnapshotCell<View> view_;
  PeerFiles files_;
  std::atomic<bool> local_missing_{true};
  // Held by the one thread that reaches; guards the attempts.
  std::atomic<bool> reaching_{false};
  std::map<std::string, Attempt> attempts_;

  mutable Mutex mutex_;
  // What the current view is made of.
  View wanted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
