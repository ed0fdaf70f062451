#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/submitter.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

constexpr int64_t kControlTimeout = 10 * kNanosPerSecond;
constexpr size_t kBytesPerPiece = 3 * sizeof(uint64_t);
// Room for the names and framing beside the arrays.
constexpr size_t kMaxPieces = (kMaxMessageBytes - 4096) / kBytesPerPiece;

absl::Status CheckSize(const BatchView& batch) {
  if (batch.count <= kMaxPieces) return absl::OkStatus();
  return ResourceExhausted(
      absl::StrCat("a batch of ", batch.count, " pieces does not fit in one request"),
      {.object = "batch",
       .limit = absl::StrCat(kMaxPieces, " pieces a call"),
       .allowed = absl::StrCat("1..", kMaxPieces, " pieces a call")});
}

template <typename Request>
void Fill(const TransferCall& call, Request* request) {
  request->set_engine_handle(call.engine_handle);
  request->set_remote_engine(call.remote_engine);
  request->set_op(call.direction == TransferDirection::kRead ? v1::TRANSFER_OP_READ
                                                             : v1::TRANSFER_OP_WRITE);
  request->set_timeout_ms(call.timeout_ms);
  const int count = static_cast<int>(call.batch.count);
  auto* batch = request->mutable_batch();
  batch->mutable_local_addresses()->Resize(count, 0);
  batch->mutable_remote_addresses()->Resize(count, 0);
  batch->mutable_lengths()->Resize(count, 0);
  uint64_t* local = batch->mutable_local_addresses()->mutable_data();
  uint64_t* remote = batch->mutable_remote_addresses()->mutable_data();
  uint64_t* length = batch->mutable_lengths()->mutable_data();
  for (size_t i = 0; i < call.batch.count; ++i) {
    local[i] = call.batch.local(i);
    remote[i] = call.batch.remote(i);
    length[i] = call.batch.length(i);
  }
}

TransferOutcome OutcomeOf(const v1::TransferStatusResult& result) {
  switch (result.state()) {
    case v1::TRANSFER_STATE_WAITING:
      return TransferOutcome::kWaiting;
    case v1::TRANSFER_STATE_COMPLETED:
      return TransferOutcome::kCompleted;
    default:
      return TransferOutcome::kFailed;
  }
}

class GrpcSubmitter : public Submitter {
 public:
  explicit GrpcSubmitter(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  absl::Status Transfer(const TransferCall& call) override {
    HIXLD_RETURN_IF_ERROR(CheckSize(call.batch));
    v1::TransferRequest request;
    Fill(call, &request);
    v1::TransferResponse response;
    // The daemon keeps the deadline. Without its answer, or its end, bytes may still land.
    HIXLD_RETURN_IF_ERROR(session_->rpc().Transfer(request, &response, kNoDeadline));
    if (response.state() == v1::TRANSFER_STATE_COMPLETED) return absl::OkStatus();
    if (response.state() == v1::TRANSFER_STATE_TIMEOUT) {
      return Timeout(absl::StrCat("transfer with ", call.remote_engine, " took longer than ",
                                  call.timeout_ms, " ms"));
    }
    return Failed(absl::StrCat("transfer with ", call.remote_engine, " failed"));
  }

  absl::StatusOr<uint64_t> Submit(const TransferCall& call) override {
    HIXLD_RETURN_IF_ERROR(CheckSize(call.batch));
    v1::SubmitTransferRequest request;
    Fill(call, &request);
    v1::SubmitTransferResponse response;
    HIXLD_RETURN_IF_ERROR(
        session_->rpc().SubmitTransfer(request, &response, MonotonicNanos() + kControlTimeout));
    return response.transfer_id();
  }

  absl::StatusOr<TransferReports> Query(uint64_t engine_handle,
                                        absl::Span<const uint64_t> transfer_ids) override {
    v1::GetTransferStatusRequest request;
    request.set_engine_handle(engine_handle);
    request.mutable_transfer_ids()->Assign(transfer_ids.begin(), transfer_ids.end());
    v1::GetTransferStatusResponse response;
    HIXLD_RETURN_IF_ERROR(
        session_->rpc().GetTransferStatus(request, &response, MonotonicNanos() + kControlTimeout));
    if (response.results_size() != static_cast<int>(transfer_ids.size())) {
      return Failed(absl::StrCat("hixld reports on ", response.results_size(), " of ",
                                 transfer_ids.size(), " transfers"));
    }
    TransferReports reports;
    reports.reserve(transfer_ids.size());
    for (const v1::TransferStatusResult& result : response.results()) {
      reports.push_back({.transfer_id = result.transfer_id(),
                         .outcome = OutcomeOf(result),
                         .message = result.message()});
    }
    return reports;
  }

  // The daemon drops them with their channel or engine.
  void Forget(uint64_t) override {}

 private:
  const std::shared_ptr<Session> session_;
};

}  // namespace

std::unique_ptr<Submitter> MakeGrpcSubmitter(std::shared_ptr<Session> session) {
  return std::make_unique<GrpcSubmitter>(std::move(session));
}

}  // namespace hixld::client
