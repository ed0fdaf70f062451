#include "transports/local/local_transport.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "transports/local/local_copy.h"
#include "transports/local/mapped_copy.h"
#include "transports/local/relayed_copy.h"
#include "transports/staging/staging_pool.h"

namespace hixld {
namespace {

bool AllMapped(const TransferJob& job) {
  return std::all_of(job.pieces.begin(), job.pieces.end(), [](const CopyPiece& piece) {
    return piece.local.access->mapped() != nullptr && piece.remote.access->mapped() != nullptr;
  });
}

class LocalTransportImpl : public LocalTransport {
 public:
  LocalTransportImpl(WorkerSet* workers, LocalTransportOptions options)
      : workers_(workers), options_(options) {
    const uint64_t share = options_.staging_bytes / workers_->size();
    for (uint32_t i = 0; i < workers_->size(); ++i) {
      staging_.push_back(
          StagingPool::Create(&workers_->at(i), share, std::min(share / 2, options_.chunk_bytes)));
    }
  }

  absl::string_view transport() const override { return "local"; }

  void Submit(std::shared_ptr<TransferJob> job) override {
    if (AllMapped(*job)) {
      auto copy = std::make_shared<MappedCopy>(workers_, options_, job);
      job->sink_state = std::shared_ptr<LocalCopy>(copy);
      copy->Start();
      return;
    }
    const uint32_t worker = job->worker % workers_->size();
    auto copy = std::make_shared<RelayedCopy>(&workers_->at(worker), staging_[worker],
                                              options_.chunk_bytes, job);
    job->sink_state = std::shared_ptr<LocalCopy>(copy);
    copy->Start();
  }

  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    auto copy = std::static_pointer_cast<LocalCopy>(job->sink_state.lock());
    if (copy != nullptr) copy->Cancel(std::move(reason));
  }

 private:
  WorkerSet* const workers_;
  const LocalTransportOptions options_;
  std::vector<std::shared_ptr<StagingPool>> staging_;  // one per worker
};

}  // namespace

std::unique_ptr<LocalTransport> LocalTransport::Create(WorkerSet* workers,
                                                       LocalTransportOptions options) {
  return std::make_unique<LocalTransportImpl>(workers, options);
}

}  // namespace hixld
