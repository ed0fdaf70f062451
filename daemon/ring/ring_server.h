// Serves the sessions' shared-memory rings on the data workers: takes batches out, hands them to
// the engines, publishes how they end. See docs/ring-protocol.md.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/ring/transfer_end.h"
#include "proto/base/mutex.h"
#include "proto/ring/consumer.h"
#include "proto/ring/layout.h"
#include "transports/loop/loop.h"

namespace hixld {

// What carries out a batch: the engines, or a test.
class RingHandler {
 public:
  // Called at most once, before TransferDone, when the batch has been accepted.
  using Accepted = absl::AnyInvocable<void(absl::Span<const ring::Extent> local,
                                           absl::Span<const ring::Extent> remote)>;

  virtual ~RingHandler() = default;
  // Runs on the session's worker and never blocks. `batch` has not been checked beyond its shape.
  // `accepted` is null for a batch without a verdict.
  virtual void Run(uint64_t session_id, ring::Consumer::Batch batch, Accepted accepted,
                   TransferDone done) = 0;
};

class RingServer {
 public:
  struct Options {
    ring::Geometry geometry;
    uint32_t max_descriptors = 1'048'576;
    // How long a ring without work is still looked at before it sleeps on its eventfd.
    int64_t linger_ns = 100'000;
  };

  // `workers` and `handler` must outlive the server and every batch.
  RingServer(WorkerSet* workers, RingHandler* handler, Options options);
  ~RingServer();

  struct Grant {
    // For the client; they stay the server's.
    int memory_fd = -1;
    int wake_fd = -1;
    uint64_t size = 0;
  };
  // Makes a session's rings; PARAM_INVALID when it has some already. `on_nonsense` is called once,
  // on a worker, when the client wrote something into the rings that no client library writes:
  // the session should be closed.
  absl::StatusOr<Grant> Open(uint64_t session_id,
                             absl::AnyInvocable<void(absl::Status)> on_nonsense);
  // Stops serving; batches that run end on their own and publish into memory that lives as long
  // as they do.
  void Close(uint64_t session_id);

  // Memory that was registered is so no more: clients ask for verdicts again.
  void RegionsGone();

  size_t size() const;

 private:
  class Ring;

  WorkerSet* const workers_;
  RingHandler* const handler_;
  const Options options_;
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Ring>> rings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld
