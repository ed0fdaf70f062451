#include "client/cpp/direct_copies.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/log.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

// A transfer waits no longer for the daemon to grant something; it takes the other way then.
constexpr int64_t kAskTimeout = kNanosPerSecond;
constexpr int64_t kFirstBackoff = 10 * kNanosPerMilli;
constexpr int64_t kLastBackoff = kNanosPerSecond;

}  // namespace

DirectCopies::DirectCopies(bool enabled)
    : enabled_(enabled), view_(std::make_unique<const View>()) {}

void DirectCopies::Publish() { view_.Replace(std::make_unique<const View>(wanted_)); }

void DirectCopies::ForgetLocal() {
  MutexLock lock(&mutex_);
  if (wanted_.local == nullptr) return;
  wanted_.local = nullptr;
  local_missing_.store(true, std::memory_order_release);
  Publish();
}

void DirectCopies::SetLocal(std::shared_ptr<const LocalRanges> local) {
  MutexLock lock(&mutex_);
  wanted_.local = std::move(local);
  local_missing_.store(false, std::memory_order_release);
  Publish();
}

void DirectCopies::Drop(const std::string& remote) {
  MutexLock lock(&mutex_);
  if (wanted_.paths.erase(remote) != 0) Publish();
}

void DirectCopies::DropAll() {
  MutexLock lock(&mutex_);
  wanted_.paths.clear();
  wanted_.local = nullptr;
  local_missing_.store(true, std::memory_order_release);
  Publish();
}

std::shared_ptr<DirectPath> DirectCopies::PathTo(const std::string& remote) const {
  MutexLock lock(&mutex_);
  const auto found = wanted_.paths.find(remote);
  return found == wanted_.paths.end() ? nullptr : found->second;
}

bool DirectCopies::Wants(const Session& session, const TransferCall& call) const {
  if (!enabled_ || call.channel_id == 0) return false;
  uint64_t left = session.direct_max_bytes();
  if (left == 0) return false;
  for (size_t i = 0; i < call.batch.count; ++i) {
    const uint64_t length = call.batch.length(i);
    if (length > left) return false;
    left -= length;
  }
  return true;
}

bool DirectCopies::Reach(const std::shared_ptr<Session>& session, const TransferCall& call,
                         int64_t deadline) {
  if (reaching_.exchange(true, std::memory_order_acquire)) return false;
  const absl::Cleanup done = [this] { reaching_.store(false, std::memory_order_release); };
  return ReachAlone(session, call, std::min(deadline, MonotonicNanos() + kAskTimeout));
}

bool DirectCopies::ReachAlone(const std::shared_ptr<Session>& session, const TransferCall& call,
                              int64_t deadline) {
  const std::shared_ptr<DirectPath> path = PathTo(call.remote_engine);
  if (path != nullptr && path->usable() && path->IsFor(*session, call.channel_id)) {
    if (path->MapFor(call.batch, &files_, deadline)) return true;
    if (!path->outdated()) return false;
  }
  return AskForGrant(session, call, deadline);
}

bool DirectCopies::AskForGrant(const std::shared_ptr<Session>& session, const TransferCall& call,
                               int64_t deadline) {
  Attempt& attempt = attempts_[call.remote_engine];
  if (attempt.session != session->number() || attempt.channel_id != call.channel_id) {
    attempt = {
        .session = session->number(), .channel_id = call.channel_id, .backoff_ns = kFirstBackoff};
  }
  const int64_t now = MonotonicNanos();
  if (attempt.refused || now < attempt.next_ns) return false;
  auto grant = session->GetDirectGrant(call.engine_handle, call.channel_id, deadline);
  absl::StatusOr<std::shared_ptr<DirectPath>> path =
      grant.ok() ? DirectPath::Make(session, call.channel_id, *std::move(grant)) : grant.status();
  attempt.next_ns = MonotonicNanos() + attempt.backoff_ns;
  if (!path.ok()) {
    attempt.refused = ApiCodeOf(path.status()) == ApiCode::kUnsupported;
    attempt.backoff_ns = std::min(attempt.backoff_ns * 2, kLastBackoff);
    Log(LogLevel::kDebug, absl::StrCat("transfers with ", call.remote_engine,
                                       " go to the daemon: ", path.status().message()));
    return false;
  }
  attempt.backoff_ns = kFirstBackoff;
  (*path)->MapFor(call.batch, &files_, deadline);
  MutexLock lock(&mutex_);
  wanted_.paths[call.remote_engine] = *std::move(path);
  Publish();
  return true;
}

}  // namespace hixld::client
