#include "transports/rdma/rdma_transport.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "proto/base/fd.h"
#include "transports/rdma/context.h"
#include "transports/rdma/initiator_link.h"
#include "transports/rdma/target_link.h"
#include "transports/rdma/verbs.h"

namespace hixld {
namespace {

using rdma::Gid;

constexpr int64_t kShutdownNs = 5 * kNanosPerSecond;

// The address that packets to the peer leave from, as a GID; zero when unknown. Connecting a
// datagram socket sends nothing.
Gid RouteSource(const Endpoint& peer) {
  Gid gid = {};
  const UniqueFd fd(socket(peer.ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Endpoint target = peer.port == 0 ? peer.WithPort(9) : peer;
  sockaddr_storage own = {};
  socklen_t length = sizeof(own);
  if (!fd.valid() || connect(fd.get(), target.sockaddr_ptr(), target.address_len) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    return gid;
  }
  if (own.ss_family == AF_INET6) {
    memcpy(gid.data(), &reinterpret_cast<sockaddr_in6*>(&own)->sin6_addr, gid.size());
  } else {
    gid[10] = gid[11] = 0xff;
    memcpy(gid.data() + 12, &reinterpret_cast<sockaddr_in*>(&own)->sin_addr, 4);
  }
  return gid;
}

// The owner's handle; the core lives on until its queue pairs are gone.
class Initiator final : public RdmaInitiatorLink {
 public:
  explicit Initiator(std::shared_ptr<rdma::InitiatorCore> core) : core_(std::move(core)) {}
  ~Initiator() override {
    core_->LetGo();
    core_->Close(absl::CancelledError("the link is gone"), MonotonicNanos());
  }
  absl::string_view transport() const override { return core_->away() ? "tcp" : "rdma"; }
  void Submit(std::shared_ptr<TransferJob> job) override { core_->Submit(std::move(job)); }
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    core_->Cancel(job, std::move(reason));
  }
  void OnControlMessage(absl::string_view payload) override { core_->OnControlMessage(payload); }
  void Close(absl::Status reason, int64_t fenced_at_ns) override {
    core_->Close(std::move(reason), fenced_at_ns);
  }
  std::vector<LaneStats> Lanes() const override { return core_->Lanes(); }
  std::string Trouble() const override { return core_->Trouble(); }

 private:
  const std::shared_ptr<rdma::InitiatorCore> core_;
};

class Target final : public TargetLink {
 public:
  explicit Target(std::shared_ptr<rdma::TargetCore> core) : core_(std::move(core)) {}
  ~Target() override {
    core_->LetGo();
    core_->Close([] {});
  }
  void OnControlMessage(absl::string_view payload) override { core_->OnControlMessage(payload); }
  void Close(absl::Status reason, absl::AnyInvocable<void()> closed) override {
    core_->Close(std::move(closed));
  }
  void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) override {
    core_->FenceChannel(channel, std::move(fenced));
  }
  std::vector<LaneStats> Lanes() const override { return core_->Lanes(); }

 private:
  const std::shared_ptr<rdma::TargetCore> core_;
};

class Transport final : public RdmaTransport {
 public:
  explicit Transport(std::shared_ptr<rdma::Context> context) : context_(std::move(context)) {}
  ~Transport() override {
    context_->WaitForLanes(MonotonicNanos() + kShutdownNs);
    context_->Shutdown();
  }

  std::unique_ptr<RdmaInitiatorLink> Connect(const Endpoint& peer, RdmaClass treatment,
                                             std::shared_ptr<TransferSink> fallback,
                                             ControlPath* control) override {
    auto core = std::make_shared<rdma::InitiatorCore>(context_, peer.ToString(), RouteSource(peer),
                                                      treatment, std::move(fallback), control);
    core->Start();
    return std::make_unique<Initiator>(std::move(core));
  }

  std::unique_ptr<TargetLink> Serve(TargetResolver* resolver, ControlPath* control) override {
    auto core = std::make_shared<rdma::TargetCore>(context_, resolver, control);
    core->Start();
    return std::make_unique<Target>(std::move(core));
  }

  absl::StatusOr<std::vector<Port>> Ports() const override {
    auto usable = context_->Ports();
    if (!usable.ok()) return usable.status();
    std::vector<Port> ports;
    for (const rdma::UsablePort& port : *usable) {
      Port& out = ports.emplace_back(Port{port.Name(), port.mtu, {}});
      for (const auto& gid : port.gids) out.gids.push_back(rdma::GidText(gid.gid));
    }
    return ports;
  }

  Stats stats() const override {
    const rdma::RegistrationCounters& counters = *context_->counters();
    return {.registrations = counters.regions.load(std::memory_order_relaxed),
            .registered_bytes = counters.bytes.load(std::memory_order_relaxed),
            .registrations_made = counters.made.load(std::memory_order_relaxed),
            .registrations_failed = counters.failed.load(std::memory_order_relaxed)};
  }

 private:
  const std::shared_ptr<rdma::Context> context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RdmaTransport>> RdmaTransport::Create(
    WorkerSet* workers, RdmaOptions options, std::unique_ptr<rdma::Verbs> verbs) {
  auto context = rdma::Context::Create(workers, std::move(options), std::move(verbs));
  if (!context.ok()) return context.status();
  return std::make_unique<Transport>(*std::move(context));
}

absl::StatusOr<std::unique_ptr<RdmaTransport>> RdmaTransport::Create(WorkerSet* workers,
                                                                     RdmaOptions options) {
  return Create(workers, std::move(options), rdma::SystemVerbs());
}

}  // namespace hixld
