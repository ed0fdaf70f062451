#include "daemon/engine/engine_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// "0.0.0.0:p" or "[::]:p" for an endpoint of either family: an engine that listens on every
// address is reachable under any.
std::string WildcardOf(const Endpoint& endpoint) {
  return endpoint.ipv6 ? absl::StrCat("[::]:", endpoint.port)
                       : absl::StrCat("0.0.0.0:", endpoint.port);
}

absl::Status InUse(absl::string_view id, uint64_t session) {
  return Failed(absl::StrCat("engine ", id, " is already in use by session ", session),
                {.object = absl::StrCat("engine ", id)});
}

}  // namespace

EngineRegistry::EngineRegistry(EngineContext* context) : context_(context) {
  context_->directory = this;
}

EngineRegistry::~EngineRegistry() = default;

void EngineRegistry::Open(std::shared_ptr<Session> session, OpenEngineArgs args,
                          absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Engine>>)> done) {
  auto options = ParseEngineOptions(args.options, context_->batching);
  if (!options.ok()) return done(options.status());
  const auto endpoint = ParseEndpoint(args.local_engine);
  if (!endpoint.ok()) return done(endpoint.status());
  options->profile = std::move(args.profile);
  const absl::Status applied = ApplyProduct(ProductOf(args.device_id), context_->node, &*options);
  if (!applied.ok()) return done(applied);
  Create(session, std::move(args), std::move(*options), *endpoint, std::move(done));
}

std::vector<int32_t> EngineRegistry::DeviceIds() const {
  return context_->device_ids ? context_->device_ids() : std::vector<int32_t>();
}

Product EngineRegistry::ProductOf(int32_t device_id) const {
  return context_->product_of ? context_->product_of(device_id) : Product{};
}

void EngineRegistry::Create(
    const std::shared_ptr<Session>& session, OpenEngineArgs args, EngineOptions options,
    const Endpoint& endpoint,
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Engine>>)> done) {
  if (endpoint.listens()) {
    const std::shared_ptr<Engine> holder = Holder(endpoint.ToString());
    if (holder != nullptr && holder->open()) {
      return done(InUse(args.local_engine, holder->identity().session_id));
    }
    if (holder != nullptr) {
      // It is closing, as after its client's death: the id is free in a moment.
      holder->Close("closing", [this, session, args = std::move(args), options = std::move(options),
                                endpoint, done = std::move(done)]() mutable {
        context_->control->Post([this, session, args = std::move(args),
                                 options = std::move(options), endpoint,
                                 done = std::move(done)]() mutable {
          Create(session, std::move(args), std::move(options), endpoint, std::move(done));
        });
      });
      return;
    }
  }
  EngineIdentity identity;
  identity.handle = next_handle_.fetch_add(1, std::memory_order_relaxed);
  identity.session_id = session->id();
  const PeerCredentials owner = session->Describe().credentials;
  identity.pid = owner.pid;
  identity.uid = owner.uid;
  identity.id = args.local_engine;
  identity.endpoint = endpoint;
  identity.device_id = args.device_id;
  std::unique_ptr<EngineListener> listener;
  if (endpoint.listens() || args.listen_on_any_port) {
    auto listening = context_->links->Listen(endpoint);
    if (!listening.ok()) return done(listening.status());
    listener = std::move(*listening);
    if (!endpoint.listens()) {
      identity.endpoint = endpoint.WithPort(listener->port());
      identity.id = identity.endpoint.ToString();
    }
  }
  auto engine = std::make_shared<Engine>(context_, identity, std::move(options));
  engine->SetSession(session);
  if (listener != nullptr) engine->SetListener(std::move(listener));
  const absl::Status status =
      Insert(engine, identity.endpoint.listens() ? identity.endpoint.ToString() : "");
  // A session that has ended meanwhile has been told to everybody already.
  if (!status.ok() || !session->open()) {
    Close(engine, "its session has ended", [] {});
    return done(status.ok() ? Failed(absl::StrCat("session ", session->id(), " has ended"))
                            : status);
  }
  done(std::move(engine));
}

absl::Status EngineRegistry::Insert(const std::shared_ptr<Engine>& engine,
                                    const std::string& address) {
  const EngineIdentity& identity = engine->identity();
  const uint64_t limit = context_->limits.max_engines_per_session;
  MutexLock lock(&mutex_);
  if (stopping_) return Failed("the daemon is stopping");
  uint64_t count = 0;
  for (const auto& [handle, other] : engines_) {
    if (other->identity().session_id == identity.session_id) ++count;
  }
  if (count >= limit) {
    return ResourceExhausted(
        absl::StrCat("session ", identity.session_id, " has ", count, " engines; limit ", limit,
                     " (limits.max_engines_per_session)"),
        {.object = absl::StrCat("session ", identity.session_id),
         .limit = absl::StrCat(limit, " engines"),
         .option = "limits.max_engines_per_session"});
  }
  if (!address.empty()) {
    const auto [at, inserted] = listening_.emplace(address, engine);
    if (!inserted) return InUse(identity.id, at->second->identity().session_id);
  }
  engines_.emplace(identity.handle, engine);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Engine>> EngineRegistry::Find(uint64_t session_id,
                                                             uint64_t handle) const {
  {
    MutexLock lock(&mutex_);
    const auto found = engines_.find(handle);
    if (found != engines_.end() && found->second->identity().session_id == session_id) {
      return found->second;
    }
  }
  return Failed(absl::StrCat("engine handle ", handle, " is unknown in session ", session_id,
                             " or has been closed"),
                {.object = absl::StrCat("engine handle ", handle)});
}

void EngineRegistry::Close(const std::shared_ptr<Engine>& engine, absl::string_view reason,
                           absl::AnyInvocable<void()> closed) {
  engine->Close(reason, [this, engine, closed = std::move(closed)]() mutable {
    {
      MutexLock lock(&mutex_);
      const EngineIdentity& identity = engine->identity();
      engines_.erase(identity.handle);
      const auto found = listening_.find(identity.endpoint.ToString());
      if (found != listening_.end() && found->second == engine) listening_.erase(found);
    }
    closed();
  });
}

void EngineRegistry::CloseThese(std::vector<std::shared_ptr<Engine>> engines,
                                absl::string_view reason, absl::AnyInvocable<void()> closed) {
  auto gate = std::make_shared<Gate>(std::move(closed));
  for (const auto& engine : engines) Close(engine, reason, [gate] {});
}

void EngineRegistry::CloseAll(absl::string_view reason, absl::AnyInvocable<void()> closed) {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  CloseThese(All(), reason, std::move(closed));
}

void EngineRegistry::OnSessionEnd(uint64_t session_id, absl::AnyInvocable<void()> released) {
  std::vector<std::shared_ptr<Engine>> engines;
  for (auto& engine : All()) {
    if (engine->identity().session_id == session_id) engines.push_back(std::move(engine));
  }
  CloseThese(std::move(engines), "its client is gone", std::move(released));
}

std::vector<std::shared_ptr<Engine>> EngineRegistry::All() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Engine>> all;
  all.reserve(engines_.size());
  for (const auto& [handle, engine] : engines_) all.push_back(engine);
  return all;
}

uint64_t EngineRegistry::RegionsOfSession(uint64_t session_id, const Engine* except) const {
  uint64_t count = 0;
  for (const auto& engine : All()) {
    if (engine.get() == except || engine->identity().session_id != session_id) continue;
    count += engine->Regions()->size();
  }
  return count;
}

absl::StatusOr<std::shared_ptr<InboundChannel>> EngineRegistry::AcceptChannel(
    const InboundRequest& request, std::shared_ptr<InboundHandle> handle) {
  const auto endpoint = ParseEndpoint(request.target_engine);
  if (!endpoint.ok()) return endpoint.status();
  const std::shared_ptr<Engine> engine = FindListening(*endpoint);
  if (engine == nullptr) {
    return Failed(absl::StrCat("engine ", request.target_engine, " does not exist on this node"),
                  {.object = absl::StrCat("engine ", request.target_engine)});
  }
  return engine->AcceptChannel(request, std::move(handle));
}

std::shared_ptr<Engine> EngineRegistry::Holder(const std::string& address) const {
  MutexLock lock(&mutex_);
  const auto found = listening_.find(address);
  return found == listening_.end() ? nullptr : found->second;
}

std::shared_ptr<Engine> EngineRegistry::FindListening(const Endpoint& endpoint) {
  std::shared_ptr<Engine> engine = Holder(endpoint.ToString());
  if (engine == nullptr) engine = Holder(WildcardOf(endpoint));
  return engine != nullptr && engine->open() ? engine : nullptr;
}

}  // namespace hixld
