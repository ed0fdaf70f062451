// One grant of the daemon: copies on one channel that this process makes by itself. See
// docs/direct-copies.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/peer_files.h"
#include "client/cpp/range_table.h"
#include "client/cpp/session.h"
#include "client/cpp/submitter.h"
#include "proto/base/mutex.h"
#include "proto/direct/copier.h"

namespace hixld::client {

// Thread-safe.
class DirectPath {
 public:
  static absl::StatusOr<std::shared_ptr<DirectPath>> Make(std::shared_ptr<Session> session,
                                                          uint64_t channel_id,
                                                          Session::DirectGrant grant);

  bool IsFor(const Session& session, uint64_t channel_id) const {
    return session_->number() == session.number() && channel_id_ == channel_id;
  }
  // Until the daemon takes the grant back, or is gone.
  bool usable() const { return session_->alive() && !gate_->closed(); }
  // The target has registered memory that this grant does not name.
  bool outdated() const { return gate_->outdated(); }

  // Copies the batch; false: nothing is known to have been copied, and the daemon has to do it or
  // say what is wrong with it. That is so for whatever is not plainly allowed, and for memory that
  // is not there any more. No lock and no allocation; no system call between memory that this
  // library or the daemon has mapped.
  bool Copy(const LocalRanges& local, TransferDirection direction, const BatchView& batch);

  // Asks for the files that the batch lies in; whether a Copy may succeed now that did not before.
  bool MapFor(const BatchView& batch, PeerFiles* files, int64_t deadline);

 private:
  struct Place {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t file_offset = 0;
    uint32_t file = 0;
    direct::RegionKind kind = direct::RegionKind::kFile;
  };
  // kFile: between memory of the program and a file, by the kernel, which tells of pages that are
  // not there. kProcess: between plain memory, by the kernel as well.
  enum class Way { kNone, kMemory, kFile, kProcess };
  struct Checked {
    Way way = Way::kNone;
    uint64_t bytes = 0;
  };
  struct Block {
    std::byte* target = nullptr;
    const std::byte* source = nullptr;
    uint64_t length = 0;
  };

  DirectPath(std::shared_ptr<Session> session, uint64_t channel_id, Session::DirectGrant grant,
             std::unique_ptr<direct::Copier> gate);
  Checked Check(const LocalRanges& local, const BatchView& batch) const;
  Way WayBetween(const LocalRange& local, const Place& place) const;
  // Where a place of a file that is mapped begins in this process.
  std::byte* Base(const Place& place) const;
  void CopyMemory(const BatchView& batch, bool read) const;
  bool CopyFile(const BatchView& batch, bool read) const;
  bool CopyProcess(const BatchView& batch, bool read);
  absl::Status MapFile(uint32_t file, PeerFiles* files, int64_t deadline);

  const std::shared_ptr<Session> session_;
  const uint64_t channel_id_;
  const uint64_t grant_id_;
  const UniqueFd target_pidfd_;
  const std::unique_ptr<direct::Copier> gate_;
  const RangeTable<Place> places_;
  // nullptr: not mapped yet.
  std::vector<std::atomic<const PeerFile*>> files_;
  // Whose plain memory is copied.
  const pid_t pid_;
  // The kernel forbids copying the target's plain memory.
  std::atomic<bool> process_denied_{false};

  Mutex mutex_;
  // What keeps them mapped.
  std::vector<std::shared_ptr<const PeerFile>> mappings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
