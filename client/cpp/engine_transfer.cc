// Transfers and their status (contract 1.8, 1.9).
#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/checks.h"
#include "client/cpp/engine.h"
#include "client/cpp/log.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixld::client {
namespace {

constexpr int64_t kAsyncLinkTimeout = 3000 * kNanosPerMilli;
constexpr size_t kQueriesPerRequest = 1024;

absl::Status BadPiece(size_t index, const std::string& what, const std::string& allowed) {
  return ParamInvalid(absl::StrCat("piece ", index, " of the batch has ", what),
                      {.object = absl::StrCat("piece ", index), .allowed = allowed});
}

absl::Status CheckAddresses(const BatchView& batch) {
  if (batch.blocks != nullptr) return absl::OkStatus();  // whoever made them has checked them
  for (size_t i = 0; i < batch.count; ++i) {
    if (batch.local(i) == 0) return BadPiece(i, "local address 0", "an address above 0");
    if (batch.remote(i) == 0) return BadPiece(i, "remote address 0", "an address above 0");
  }
  return absl::OkStatus();
}

// What is only looked at once the link is known to exist.
absl::Status CheckPieces(const BatchView& batch) {
  if (batch.count == 0) {
    return ParamInvalid("the batch is empty", {.object = "batch", .allowed = "1 piece and more"});
  }
  if (batch.blocks != nullptr) return absl::OkStatus();
  for (size_t i = 0; i < batch.count; ++i) {
    const uint64_t length = batch.length(i);
    if (length == 0) return BadPiece(i, "length 0", "1 byte and more");
    if (length > UINT64_MAX - batch.local(i) || length > UINT64_MAX - batch.remote(i)) {
      return BadPiece(i, "an end beyond 2^64", "ranges that end below 2^64");
    }
  }
  return absl::OkStatus();
}

absl::Status UnknownRequest(uint64_t request) {
  return ParamInvalid(
      absl::StrCat("transfer request ", request,
                   " is unknown: never made, told before, or disconnected"),
      {.object = absl::StrCat("transfer request ", request), .text_code = kInvalidHandle});
}

}  // namespace

// Links, checks and sends once. A link that turned out to be gone is made again with AutoConnect:
// nothing was moved then.
template <typename Send>
absl::Status Engine::Carry(const std::string& remote, TransferDirection direction,
                           const BatchView& batch, int64_t deadline, Send send) {
  absl::Status status;
  for (int attempt = 0; attempt < 2; ++attempt) {
    HIXLD_ASSIGN_OR_RETURN(const Attachment live, LinkedTo(remote, deadline));
    HIXLD_RETURN_IF_ERROR(CheckPieces(batch));
    const TransferCall call = {.engine_handle = live.handle,
                               .remote_engine = remote,
                               .channel_id = ChannelTo(remote, live.number()),
                               .direction = direction,
                               .batch = batch};
    status = Noted(live, send(live, call));
    AfterError(remote, status);
    if (ApiCodeOf(status) != ApiCode::kNotConnected || !auto_connect()) break;
  }
  return status;
}

absl::Status Engine::Transfer(const std::string& remote, TransferDirection direction,
                              const BatchView& batch, int32_t timeout_ms) {
  HIXLD_RETURN_IF_ERROR(CheckTimeout(timeout_ms));
  const Use use(this, remote);
  // A grant is there only while the link is, and covers nothing that would be refused.
  const TransferTrace trace = Trace(remote, direction, batch);
  if (direct_.TryCopy(remote, direction, batch)) {
    trace.Ended("SUCCESS");
    return absl::OkStatus();
  }
  HIXLD_RETURN_IF_ERROR(CheckAddresses(batch));
  const int64_t deadline = MonotonicNanos() + timeout_ms * kNanosPerMilli;
  absl::Status status = Carry(
      remote, direction, batch, deadline,
      [&](const Attachment& live, TransferCall call) -> absl::Status {
        if (CopiedHere(live, call, deadline)) return absl::OkStatus();
        const int64_t left = (deadline - MonotonicNanos()) / kNanosPerMilli;
        if (left <= 0) {
          return Timeout(absl::StrCat("the link to ", remote, " took all of ", timeout_ms, " ms"),
                         {.object = absl::StrCat("engine ", remote)});
        }
        call.timeout_ms = static_cast<int32_t>(left);
        return live.submitter->Transfer(call);
      });
  trace.Ended(status.ok() ? "SUCCESS" : status.message());
  return status;
}

absl::StatusOr<uint64_t> Engine::Submit(const std::string& remote, TransferDirection direction,
                                        const BatchView& batch, const void* user_data) {
  HIXLD_RETURN_IF_ERROR(CheckAddresses(batch));
  const Use use(this, remote);
  uint64_t request = 0;
  TransferTrace trace = Trace(remote, direction, batch);
  HIXLD_RETURN_IF_ERROR(
      Carry(remote, direction, batch, MonotonicNanos() + kAsyncLinkTimeout,
            [&](const Attachment& live, const TransferCall& call) -> absl::Status {
              HIXLD_ASSIGN_OR_RETURN(const uint64_t transfer, live.submitter->Submit(call));
              MutexLock lock(&mutex_);
              request = requests_.Add({.peer = remote,
                                       .transfer_id = transfer,
                                       .session = live.number(),
                                       .user_data = user_data,
                                       .trace = std::move(trace)});
              return absl::OkStatus();
            }));
  return request;
}

TransferTrace Engine::Trace(const std::string& remote, TransferDirection direction,
                            const BatchView& batch) const {
  if (!LogEnabled(LogLevel::kDebug)) return {};
  const std::string local = id();
  const bool read = direction == TransferDirection::kRead;
  return TransferTrace(read ? "READ" : "WRITE", read ? remote : local, read ? local : remote,
                       batch.count, [&](size_t i) -> TransferTrace::Piece {
                         return {.source = read ? batch.remote(i) : batch.local(i),
                                 .target = read ? batch.local(i) : batch.remote(i),
                                 .length = batch.length(i)};
                       });
}

// Nobody will ask for these any more.
void Engine::Forget(const std::vector<Request>& requests) {
  const Attachment live = Current();
  if (!live.alive()) return;
  for (const Request& request : requests) {
    const bool runs = request.state == RequestState::kWaiting && request.session == live.number();
    if (runs) live.submitter->Forget(request.transfer_id);
  }
}

// Brings the states of these requests up to date.
absl::Status Engine::Refresh(absl::Span<const uint64_t> requests) {
  const Attachment live = Current();
  absl::InlinedVector<uint64_t, 2> asked;
  absl::InlinedVector<uint64_t, 2> transfers;
  {
    MutexLock lock(&mutex_);
    for (const uint64_t id : requests) {
      Request* request = requests_.Get(id);
      if (request == nullptr || request->state != RequestState::kWaiting) continue;
      if (!live.alive() || request->session != live.number()) {
        request->state = RequestState::kFailed;
        request->message = "the daemon that ran this transfer is gone";
        continue;
      }
      asked.push_back(id);
      transfers.push_back(request->transfer_id);
    }
  }
  if (asked.empty()) return absl::OkStatus();
  return Ask(live, asked, transfers);
}

absl::Status Engine::Ask(const Attachment& live, absl::Span<const uint64_t> requests,
                         absl::Span<const uint64_t> transfers) {
  const absl::StatusOr<TransferReports> reports = live.submitter->Query(live.handle, transfers);
  const absl::Status status = Noted(live, reports.status());
  if (!status.ok() && !IsSessionLost(status)) return status;
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request* request = requests_.Get(requests[i]);
    if (request == nullptr) continue;  // its peer was disconnected meanwhile
    if (!status.ok()) {
      request->state = RequestState::kFailed;
      request->message = std::string(status.message());
    } else if ((*reports)[i].outcome != TransferOutcome::kWaiting) {
      request->state = (*reports)[i].outcome == TransferOutcome::kCompleted
                           ? RequestState::kCompleted
                           : RequestState::kFailed;
      request->message = (*reports)[i].message;
    }
  }
  return absl::OkStatus();
}

// Takes one request's state for the program and releases it if that is terminal. False: there is
// nothing to tell. With AutoConnect a failure takes the peer's later requests along, because its
// link is dropped.
bool Engine::Take(uint64_t id, const QueryArgs& args, std::set<std::string>* failed_peers,
                  QueryResult* result, std::string* message) {
  MutexLock lock(&mutex_);
  Request* request = requests_.Get(id);
  if (request == nullptr) return false;
  if (auto_connect() && failed_peers->count(request->peer) != 0) {
    request->state = RequestState::kFailed;
  }
  if (request->state == RequestState::kWaiting && args.skip_waiting) return false;
  *result = {.request = id, .user_data = request->user_data, .state = request->state};
  *message = request->message;
  if (request->state == RequestState::kFailed) failed_peers->insert(request->peer);
  if (request->state != RequestState::kWaiting) {
    request->trace.Ended(request->state == RequestState::kCompleted ? "SUCCESS" : *message);
    requests_.Remove(id);
  }
  return true;
}

absl::StatusOr<RequestState> Engine::Query(uint64_t request, std::string* message) {
  MutexLock querying(&query_mutex_);
  HIXLD_RETURN_IF_ERROR(Refresh({&request, 1}));
  std::set<std::string> failed_peers;
  QueryResult result;
  if (!Take(request, {}, &failed_peers, &result, message)) return UnknownRequest(request);
  for (const std::string& peer : failed_peers) AfterError(peer, Failed(*message));
  return result.state;
}

absl::StatusOr<std::vector<QueryResult>> Engine::QueryAll(const QueryArgs& args) {
  if (kind() != EngineKind::kHixl) {
    return Unsupported(
        absl::StrCat("a ", EngineKindName(kind()), " engine does not tell all transfers at once"),
        {.object = absl::StrCat("engine ", config_.local_engine),
         .option = "LocalCommRes, comm_resource_config.protocol_desc"});
  }
  MutexLock querying(&query_mutex_);
  std::vector<uint64_t> outstanding;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, request] : requests_.requests()) outstanding.push_back(id);
  }
  std::vector<QueryResult> results;
  std::set<std::string> failed_peers;
  for (size_t first = 0; first < outstanding.size() && results.size() < args.max_results;
       first += kQueriesPerRequest) {
    const size_t last = std::min(first + kQueriesPerRequest, outstanding.size());
    const std::vector<uint64_t> chunk(outstanding.begin() + static_cast<ptrdiff_t>(first),
                                      outstanding.begin() + static_cast<ptrdiff_t>(last));
    const absl::Status refreshed = Refresh(chunk);
    // What was taken already must reach the program.
    if (!refreshed.ok() && results.empty()) return refreshed;
    if (!refreshed.ok()) break;
    for (size_t i = 0; i < chunk.size() && results.size() < args.max_results; ++i) {
      QueryResult result;
      std::string message;
      if (Take(chunk[i], args, &failed_peers, &result, &message)) results.push_back(result);
    }
  }
  for (const std::string& peer : failed_peers) {
    AfterError(peer, Failed(absl::StrCat("a transfer with ", peer, " failed")));
  }
  return results;
}

}  // namespace hixld::client
