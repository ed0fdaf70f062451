#include "transports/tcp/tcp_transport.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "transports/tcp/context.h"
#include "transports/tcp/initiator_link.h"
#include "transports/tcp/lane_acceptor.h"
#include "transports/tcp/target_link.h"

namespace hixld {
namespace {

class TcpInitiatorLink : public InitiatorLink {
 public:
  explicit TcpInitiatorLink(std::shared_ptr<InitiatorLinkCore> core) : core_(std::move(core)) {}
  ~TcpInitiatorLink() override {
    core_->Close(NotConnected("the link is gone"), 0);
    core_->Disown();
  }
  absl::string_view transport() const override { return "tcp"; }
  void Submit(std::shared_ptr<TransferJob> job) override { core_->Submit(std::move(job)); }
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    core_->Cancel(job, std::move(reason));
  }
  void OnControlMessage(absl::string_view payload) override { core_->OnControlMessage(payload); }
  void Close(absl::Status reason, int64_t fenced_at_ns) override {
    core_->Close(std::move(reason), fenced_at_ns);
  }
  std::vector<LaneStats> Lanes() const override { return core_->Lanes(); }

 private:
  const std::shared_ptr<InitiatorLinkCore> core_;
};

// The links that lanes may belong to.
class TargetRegistry {
 public:
  void Add(uint64_t id, const std::shared_ptr<TargetLinkCore>& core) {
    MutexLock lock(&mutex_);
    links_[id] = core;
  }
  void Remove(uint64_t id, const TargetLinkCore* core) {
    MutexLock lock(&mutex_);
    const auto found = links_.find(id);
    if (found != links_.end() && found->second.get() == core) links_.erase(found);
  }
  std::shared_ptr<TargetLinkCore> Find(uint64_t id) const {
    MutexLock lock(&mutex_);
    const auto found = links_.find(id);
    return found == links_.end() ? nullptr : found->second;
  }

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<TargetLinkCore>> links_ ABSL_GUARDED_BY(mutex_);
};

class TcpTargetLink : public TargetLink {
 public:
  TcpTargetLink(std::shared_ptr<TargetRegistry> registry, uint64_t id,
                std::shared_ptr<TargetLinkCore> core)
      : registry_(std::move(registry)), id_(id), core_(std::move(core)) {
    registry_->Add(id_, core_);
  }
  ~TcpTargetLink() override {
    registry_->Remove(id_, core_.get());
    core_->Close(NotConnected("the link is gone"), [] {});
    core_->Disown();
  }
  void OnControlMessage(absl::string_view payload) override { core_->OnControlMessage(payload); }
  void Close(absl::Status reason, absl::AnyInvocable<void()> closed) override {
    registry_->Remove(id_, core_.get());
    core_->Close(std::move(reason), std::move(closed));
  }
  void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) override {
    core_->FenceChannel(channel, std::move(fenced));
  }
  std::vector<LaneStats> Lanes() const override { return core_->Lanes(); }

 private:
  const std::shared_ptr<TargetRegistry> registry_;
  const uint64_t id_;
  const std::shared_ptr<TargetLinkCore> core_;
};

class TcpTransportImpl : public TcpTransport {
 public:
  TcpTransportImpl(WorkerSet* workers, TcpOptions options)
      : context_(std::make_shared<TcpContext>(workers, std::move(options))),
        registry_(std::make_shared<TargetRegistry>()),
        acceptor_(std::make_shared<LaneAcceptor>(
            context_,
            [context = context_, registry = registry_](UniqueFd socket, LaneAcceptor::Hello hello) {
              const auto core = registry->Find(hello.link_id);
              if (core == nullptr) {
                context->refused_lanes.fetch_add(1, std::memory_order_relaxed);
                return;
              }
              core->AcceptLane(std::move(socket), hello.lane, hello.generation, hello.proof);
            })) {}

  std::unique_ptr<InitiatorLink> Connect(const Endpoint& peer, LaneIdentity identity,
                                         ControlPath* control) override {
    auto core = std::make_shared<InitiatorLinkCore>(context_, peer, std::move(identity), control);
    core->Start();
    return std::make_unique<TcpInitiatorLink>(std::move(core));
  }

  std::unique_ptr<TargetLink> Serve(LaneIdentity identity, TargetResolver* resolver,
                                    ControlPath* control) override {
    const uint64_t id = identity.link_id;
    auto core = std::make_shared<TargetLinkCore>(context_, std::move(identity), resolver, control);
    return std::make_unique<TcpTargetLink>(registry_, id, std::move(core));
  }

  void AcceptLane(UniqueFd socket) override { acceptor_->Accept(std::move(socket)); }

  Counters counters() const override {
    return {.malformed_frames = context_->malformed_frames.load(std::memory_order_relaxed),
            .refused_lanes = context_->refused_lanes.load(std::memory_order_relaxed),
            .cancelled_transfers = context_->cancelled_transfers.load(std::memory_order_relaxed),
            .resent_stripes = context_->resent_stripes.load(std::memory_order_relaxed)};
  }

 private:
  const std::shared_ptr<TcpContext> context_;
  const std::shared_ptr<TargetRegistry> registry_;
  const std::shared_ptr<LaneAcceptor> acceptor_;
};

}  // namespace

std::unique_ptr<TcpTransport> TcpTransport::Create(WorkerSet* workers, TcpOptions options) {
  return std::make_unique<TcpTransportImpl>(workers, std::move(options));
}

}  // namespace hixld
