#include "transports/local/local_copy.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {

absl::Status DeadlinePassed(const TransferJob& job) {
  return Timeout(absl::StrCat("transfer ", job.id, " passed its deadline with ",
                              job.bytes_done.load(std::memory_order_relaxed), " of ", job.bytes,
                              " bytes copied"),
                 {.object = absl::StrCat("transfer ", job.id)});
}

void EndTransfer(std::shared_ptr<TransferJob> job, absl::Status status) {
  auto done = std::move(job->done);
  if (done) done(std::move(status));
}

}  // namespace hixld
