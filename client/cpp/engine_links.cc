// Links to peers (contract 1.7, 1.12).
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/checks.h"
#include "client/cpp/engine.h"
#include "client/cpp/log.h"
#include "proto/base/clock.h"
#include "proto/base/endpoint.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixld::client {
namespace {

constexpr int32_t kQuietDisconnectMillis = 1000;
constexpr int64_t kFirstBackoff = 10 * kNanosPerMilli;
constexpr int64_t kLastBackoff = 200 * kNanosPerMilli;

absl::Status WithConnectCode(absl::Status status) {
  return ApiCodeOf(status) == ApiCode::kTimeout ? WithTextCode(std::move(status), kConnectTimedOut)
                                                : status;
}

absl::Status NoLink(const std::string& remote) {
  return NotConnected(absl::StrCat("there is no link to ", remote),
                      {.object = absl::StrCat("engine ", remote), .option = "AutoConnect"});
}

}  // namespace

absl::Status Engine::CheckRemote(const std::string& remote) const {
  if (remote == config_.local_engine || remote == id()) {
    return ParamInvalid(absl::StrCat("engine ", remote, " cannot be linked to itself"),
                        {.object = absl::StrCat("engine ", remote), .allowed = "another engine"});
  }
  HIXLD_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(remote));
  if (endpoint.listens()) return absl::OkStatus();
  return ParamInvalid(absl::StrCat("engine \"", remote, "\" has no port to connect to"),
                      {.object = absl::StrCat("engine ", remote),
                       .allowed = "a.b.c.d:port or [v6]:port, port 1..65535"});
}

absl::Status Engine::Connect(const std::string& remote, int32_t timeout_ms) {
  HIXLD_RETURN_IF_ERROR(CheckTimeout(timeout_ms));
  HIXLD_RETURN_IF_ERROR(CheckRemote(remote));
  const int64_t deadline = MonotonicNanos() + timeout_ms * kNanosPerMilli;
  HIXLD_RETURN_IF_ERROR(MakeRoom(remote, deadline));
  return WithConnectCode(
      Idempotent([&](const Attachment& live) { return ConnectIn(live, remote, deadline); }));
}

absl::Status Engine::ConnectIn(const Attachment& live, const std::string& remote,
                               int64_t deadline) {
  v1::ConnectRequest request;
  request.set_engine_handle(live.handle);
  request.set_remote_engine(remote);
  request.set_timeout_ms(MillisLeft(deadline));
  v1::ConnectResponse response;
  const absl::Status status =
      live.session->rpc().Connect(request, &response, deadline + kAnswerGrace);
  if (status.ok() || ApiCodeOf(status) == ApiCode::kAlreadyConnected) {
    NoteLink(remote, live.number(), status.ok() ? response.channel_id() : 0);
  }
  return status;
}

absl::Status Engine::Disconnect(const std::string& remote, int32_t timeout_ms) {
  HIXLD_RETURN_IF_ERROR(CheckTimeout(timeout_ms));
  const int64_t deadline = MonotonicNanos() + timeout_ms * kNanosPerMilli;
  const bool known = HasLink(remote);
  uint64_t linked_in = 0;
  {
    MutexLock lock(&mutex_);
    const auto link = links_.find(remote);
    if (link != links_.end()) linked_in = link->second.session;
  }
  uint64_t session = 0;
  const absl::Status status = Idempotent([&](const Attachment& live) {
    session = live.number();
    v1::DisconnectRequest request;
    request.set_engine_handle(live.handle);
    request.set_remote_engine(remote);
    request.set_timeout_ms(MillisLeft(deadline));
    v1::DisconnectResponse response;
    return live.session->rpc().Disconnect(request, &response, deadline + kAnswerGrace);
  });
  DropLink(remote);
  // A link that went down with its daemon is disconnected by forgetting it.
  const bool gone = IsSessionLost(status) ||
                    (session != linked_in && ApiCodeOf(status) == ApiCode::kNotConnected);
  if (known && gone) return absl::OkStatus();
  return status;
}

absl::Status Engine::ConnectAsync(const std::string& remote, int32_t timeout_ms) {
  HIXLD_RETURN_IF_ERROR(CheckTimeout(timeout_ms));
  return async_connects_->Connect(remote, timeout_ms);
}

absl::Status Engine::DisconnectAsync(const std::string& remote, int32_t timeout_ms) {
  HIXLD_RETURN_IF_ERROR(CheckTimeout(timeout_ms));
  return async_connects_->Disconnect(remote, timeout_ms);
}

bool Engine::HasLink(const std::string& remote) const {
  MutexLock lock(&mutex_);
  return links_.count(remote) != 0;
}

uint64_t Engine::ChannelTo(const std::string& remote, uint64_t session) const {
  MutexLock lock(&mutex_);
  const auto link = links_.find(remote);
  return link == links_.end() || link->second.session != session ? 0 : link->second.channel_id;
}

void Engine::NoteLink(const std::string& remote, uint64_t session, uint64_t channel_id) {
  MutexLock lock(&mutex_);
  Link& link = links_[remote];
  // An answer that says "connected already" does not tell the channel.
  if (channel_id == 0 && link.session == session) channel_id = link.channel_id;
  link = {.session = session, .channel_id = channel_id, .last_used = link.last_used};
  links_changed_.SignalAll();
}

void Engine::DropLink(const std::string& remote) {
  std::vector<Request> dropped;
  {
    MutexLock lock(&mutex_);
    links_.erase(remote);
    dropped = requests_.DropPeer(remote);
  }
  direct_.Drop(remote);
  Forget(dropped);
}

// A session in which the link to `remote` exists: it exists already, or it is made because of
// AutoConnect, or made again because the daemon was replaced.
absl::StatusOr<Engine::Attachment> Engine::LinkedTo(const std::string& remote, int64_t deadline) {
  absl::Status status;
  for (int attempt = 0; attempt < 2; ++attempt) {
    HIXLD_ASSIGN_OR_RETURN(const Attachment live, Attach());
    bool again = false;
    HIXLD_ASSIGN_OR_RETURN(const bool ours, BeginLinking(live, remote, deadline, &again));
    if (!ours) return live;
    status = Noted(live, Relink(live, remote, again, deadline));
    {
      MutexLock lock(&mutex_);
      linking_.erase(remote);
      links_changed_.SignalAll();
    }
    if (status.ok()) return live;
    if (!IsSessionLost(status)) break;
  }
  return status;
}

// False: the link is there. True: the caller has to make it; others wait for him.
absl::StatusOr<bool> Engine::BeginLinking(const Attachment& live, const std::string& remote,
                                          int64_t deadline, bool* again) {
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline)};
  MutexLock lock(&mutex_);
  while (true) {
    const auto link = links_.find(remote);
    if (link != links_.end() && link->second.session == live.number()) return false;
    if (link == links_.end() && !auto_connect()) return NoLink(remote);
    *again = link != links_.end();
    if (linking_.insert(remote).second) return true;
    if (!links_changed_.WaitUntil(&mutex_, until)) {
      return Timeout(absl::StrCat("the link to ", remote, " is not made in time"),
                     {.object = absl::StrCat("engine ", remote)});
    }
  }
}

absl::Status Engine::Relink(const Attachment& live, const std::string& remote, bool again,
                            int64_t deadline) {
  HIXLD_RETURN_IF_ERROR(CheckRemote(remote));
  HIXLD_RETURN_IF_ERROR(MakeRoom(remote, deadline));
  int64_t backoff = kFirstBackoff;
  while (true) {
    const absl::Status status = ConnectIn(live, remote, deadline);
    if (status.ok() || ApiCodeOf(status) == ApiCode::kAlreadyConnected) return absl::OkStatus();
    // After a restart of the daemon that both sides use, the peer comes back about when we do.
    const bool worth_waiting = again && !IsSessionLost(status) &&
                               ApiCodeOf(status) == ApiCode::kFailed &&
                               MonotonicNanos() + backoff < deadline;
    if (!worth_waiting) return WithConnectCode(status);
    std::this_thread::sleep_for(std::chrono::nanoseconds(backoff));
    backoff = std::min(backoff * 2, kLastBackoff);
  }
}

Engine::Use::Use(Engine* engine, const std::string& remote)
    : engine_(engine->config_.options.pools_channels() ? engine : nullptr), remote_(remote) {
  if (engine_ == nullptr) return;
  MutexLock lock(&engine_->mutex_);
  ++engine_->busy_[remote_];
}

Engine::Use::~Use() {
  if (engine_ == nullptr) return;
  MutexLock lock(&engine_->mutex_);
  const auto link = engine_->links_.find(remote_);
  if (link != engine_->links_.end()) link->second.last_used = ++engine_->uses_;
  const auto busy = engine_->busy_.find(remote_);
  if (--busy->second == 0) engine_->busy_.erase(busy);
  engine_->links_changed_.SignalAll();
}

PoolPlan Engine::PlanRoomFor(const std::string& remote) {
  if (links_.count(remote) != 0) return {.room = true};
  std::set<std::string> busy;
  for (const auto& [id, request] : requests_.requests()) busy.insert(request.peer);
  std::vector<PooledLink> links;
  for (const auto& [peer, link] : links_) {
    links.push_back({.peer = peer,
                     .last_used = link.last_used,
                     .busy = busy_.count(peer) != 0 || busy.count(peer) != 0});
  }
  return PlanRoom(config_.options.channel_pool, std::move(links));
}

absl::Status Engine::MakeRoom(const std::string& remote, int64_t deadline) {
  if (!config_.options.pools_channels()) return absl::OkStatus();
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline)};
  std::vector<std::string> evicted;
  bool room = false;
  {
    MutexLock lock(&mutex_);
    while (!room) {
      PoolPlan plan = PlanRoomFor(remote);
      // A transfer to an evicted peer waits until it is disconnected, and links it again then.
      for (const std::string& peer : plan.evict) {
        links_.erase(peer);
        linking_.insert(peer);
        evicted.push_back(peer);
      }
      room = plan.room;
      if (!room && !links_changed_.WaitUntil(&mutex_, until)) break;
    }
  }
  Evict(evicted);
  if (room) return absl::OkStatus();
  const int64_t most = config_.options.channel_pool.max_channels;
  return ResourceExhausted(
      absl::StrCat("all ", most, " links of the channel pool are in use; none to ", remote),
      {.object = absl::StrCat("engine ", remote),
       .limit = absl::StrCat(most, " links"),
       .option = "channel_pool.max_channel",
       .allowed = "1..512"});
}

void Engine::Evict(const std::vector<std::string>& peers) {
  for (const std::string& peer : peers) {
    const absl::Status status = Disconnect(peer, kQuietDisconnectMillis);
    Log(LogLevel::kInfo, absl::StrCat("channel pool: disconnected from ", peer, ": ",
                                      status.ok() ? "ok" : std::string(status.message())));
    MutexLock lock(&mutex_);
    linking_.erase(peer);
    links_changed_.SignalAll();
  }
}

// What a failed transfer does to its link (contract 1.8, 1.12).
void Engine::AfterError(const std::string& remote, const absl::Status& status) {
  if (status.ok() || IsSessionLost(status)) return;
  if (ApiCodeOf(status) == ApiCode::kNotConnected) {
    DropLink(remote);
  } else if (auto_connect()) {
    const absl::Status dropped = Disconnect(remote, kQuietDisconnectMillis);
    if (!dropped.ok()) {
      Log(LogLevel::kInfo, absl::StrCat("disconnect from ", remote, ": ", dropped.message()));
    }
  }
}

}  // namespace hixld::client
