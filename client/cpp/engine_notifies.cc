// Notifies (contract 1.10).
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/checks.h"
#include "client/cpp/engine.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

constexpr size_t kMaxNotifyBytes = 1024;
constexpr int64_t kFetchTimeout = 30 * kNanosPerSecond;

absl::Status CheckPart(const char* what, size_t bytes) {
  if (bytes <= kMaxNotifyBytes) return absl::OkStatus();
  return ParamInvalid(absl::StrCat("the notify's ", what, " has ", bytes, " bytes"),
                      {.object = absl::StrCat("notify ", what),
                       .limit = absl::StrCat(kMaxNotifyBytes, " bytes"),
                       .allowed = absl::StrCat("0..", kMaxNotifyBytes, " bytes")});
}

}  // namespace

absl::Status Engine::SendNotify(const std::string& remote, const std::string& name,
                                const std::string& message, int32_t timeout_ms) {
  HIXLD_RETURN_IF_ERROR(CheckPart("name", name.size()));
  HIXLD_RETURN_IF_ERROR(CheckTimeout(timeout_ms));
  HIXLD_RETURN_IF_ERROR(CheckPart("message", message.size()));
  const int64_t deadline = MonotonicNanos() + timeout_ms * kNanosPerMilli;
  // Never links by itself, not even with AutoConnect; a link that went down with its daemon is
  // there for the program, and is made again.
  if (!HasLink(remote)) {
    return NotConnected(absl::StrCat("there is no link to ", remote),
                        {.object = absl::StrCat("engine ", remote)});
  }
  if (timeout_ms == 1) {
    return Timeout("a notify within 1 ms is over before it is sent",
                   {.object = "timeout", .allowed = "2 ms and more"});
  }
  HIXLD_ASSIGN_OR_RETURN(const Attachment live, LinkedTo(remote, deadline));
  v1::SendNotifyRequest request;
  request.set_engine_handle(live.handle);
  request.set_remote_engine(remote);
  request.set_name(name);
  request.set_message(message);
  request.set_timeout_ms(MillisLeft(deadline));
  v1::SendNotifyResponse response;
  const absl::Status status =
      Noted(live, live.session->rpc().SendNotify(request, &response, deadline + kAnswerGrace));
  if (ApiCodeOf(status) == ApiCode::kNotConnected) DropLink(remote);
  return status;
}

absl::StatusOr<std::vector<Engine::Notify>> Engine::GetNotifies() {
  MutexLock fetching(&notify_mutex_);
  std::vector<Notify> notifies;
  NotifyCursor* const cursor = &notify_cursor_;
  const absl::Status status = Idempotent(
      [&, cursor](const Attachment& live) { return FetchNotifies(live, cursor, &notifies); });
  // What has been fetched will not come again.
  if (!status.ok() && notifies.empty()) return status;
  return notifies;
}

absl::Status Engine::FetchNotifies(const Attachment& live, NotifyCursor* cursor,
                                   std::vector<Notify>* notifies) {
  if (cursor->session != live.number()) *cursor = {.session = live.number()};
  bool more = true;
  while (more) {
    v1::GetNotifiesRequest request;
    request.set_engine_handle(live.handle);
    request.set_after_sequence(cursor->sequence);
    v1::GetNotifiesResponse response;
    HIXLD_RETURN_IF_ERROR(
        live.session->rpc().GetNotifies(request, &response, MonotonicNanos() + kFetchTimeout));
    for (auto& notify : *response.mutable_notifies()) {
      notifies->push_back({.name = std::move(*notify.mutable_name()),
                           .message = std::move(*notify.mutable_message())});
    }
    cursor->sequence = response.last_sequence();
    more = response.more();
  }
  return absl::OkStatus();
}

}  // namespace hixld::client
