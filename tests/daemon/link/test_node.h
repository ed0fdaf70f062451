// One node of a link test: a real link manager over real sockets, with a transport that only
// records, and engines that only are names.
#pragma once

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/link/link_manager.h"
#include "proto/base/clock.h"
#include "proto/base/endpoint.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "transports/loop/loop.h"
#include "transports/tcp/tcp_transport.h"

namespace hixld {

// What happened to one initiator's end.
struct InitiatorRecord {
  Endpoint peer;
  LaneIdentity identity;
  std::promise<int64_t> closed;  // fenced_at_ns
  std::vector<std::shared_ptr<TransferJob>> jobs;
};

class RecordingTcp : public TcpTransport {
 public:
  class Initiator : public InitiatorLink {
   public:
    Initiator(std::shared_ptr<InitiatorRecord> record, ControlPath* control)
        : record_(std::move(record)), control_(control) {}
    absl::string_view transport() const override { return "tcp"; }
    void Submit(std::shared_ptr<TransferJob> job) override { record_->jobs.push_back(job); }
    void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {}
    void OnControlMessage(absl::string_view payload) override {}
    void Close(absl::Status reason, int64_t fenced_at_ns) override {
      for (auto& job : std::exchange(record_->jobs, {})) job->done(reason);
      record_->closed.set_value(fenced_at_ns);
    }
    std::vector<LaneStats> Lanes() const override { return {}; }

   private:
    const std::shared_ptr<InitiatorRecord> record_;
    ControlPath* const control_;
  };

  class Target : public TargetLink {
   public:
    explicit Target(RecordingTcp* owner) : owner_(owner) {}
    void OnControlMessage(absl::string_view payload) override {}
    void Close(absl::Status reason, absl::AnyInvocable<void()> closed) override {
      owner_->targets_closed_.fetch_add(1);
      closed();
    }
    void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) override { fenced(); }
    std::vector<LaneStats> Lanes() const override { return {}; }

   private:
    RecordingTcp* const owner_;
  };

  std::unique_ptr<InitiatorLink> Connect(const Endpoint& peer, LaneIdentity identity,
                                         ControlPath* control) override {
    auto record = std::make_shared<InitiatorRecord>();
    record->peer = peer;
    record->identity = std::move(identity);
    MutexLock lock(&mutex_);
    initiators_.push_back(record);
    return std::make_unique<Initiator>(record, control);
  }
  std::unique_ptr<TargetLink> Serve(LaneIdentity identity, TargetResolver* resolver,
                                    ControlPath* control) override {
    MutexLock lock(&mutex_);
    served_.push_back(std::move(identity));
    return std::make_unique<Target>(this);
  }
  void AcceptLane(UniqueFd socket) override { lanes_.fetch_add(1); }
  Counters counters() const override { return {}; }

  std::vector<std::shared_ptr<InitiatorRecord>> initiators() const {
    MutexLock lock(&mutex_);
    return initiators_;
  }
  std::vector<LaneIdentity> served() const {
    MutexLock lock(&mutex_);
    return served_;
  }
  int lanes() const { return lanes_.load(); }
  int targets_closed() const { return targets_closed_.load(); }

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<InitiatorRecord>> initiators_ ABSL_GUARDED_BY(mutex_);
  std::vector<LaneIdentity> served_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> lanes_{0};
  std::atomic<int> targets_closed_{0};
};

class NamedEngines : public ChannelHost {
 public:
  struct Channel : public InboundChannel {
    explicit Channel(NamedEngines* owner) : owner(owner) {}
    absl::Status Resolve(uint64_t address, uint64_t length,
                         std::vector<TargetResolver::Part>* parts) override {
      return absl::OkStatus();
    }
    std::shared_ptr<const RegionSnapshot> Regions() override { return owner->Regions(); }
    absl::StatusOr<uint64_t> OpenRelay(std::vector<AddressRange> ranges) override {
      if (ranges.empty() || ranges[0].address == 0) return Failed("nothing is relayed here");
      owner->relays.fetch_add(1);
      return 40 + ranges.size();
    }
    void CloseRelay(uint64_t id) override { owner->relay_closed.store(id); }
    absl::Status OnNotify(std::string name, std::string message) override {
      return owner->TakeIn(std::move(name), message);
    }
    void OnClosed(absl::string_view reason) override { owner->closed.fetch_add(1); }
    NamedEngines* const owner;
  };

  absl::StatusOr<std::shared_ptr<InboundChannel>> AcceptChannel(
      const InboundRequest& request, std::shared_ptr<InboundHandle> handle) override {
    MutexLock lock(&mutex_);
    if (names_.count(request.target_engine) == 0) {
      return Failed(request.target_engine + " does not exist on this node");
    }
    handles_.push_back(std::move(handle));
    accepted.fetch_add(1);
    return std::make_shared<Channel>(this);
  }

  void Add(const std::string& name) {
    MutexLock lock(&mutex_);
    names_.insert(name);
  }
  void Remove(const std::string& name) {
    MutexLock lock(&mutex_);
    names_.erase(name);
  }
  void AddRegion(uint64_t address, uint64_t length) {
    MutexLock lock(&mutex_);
    auto region = std::make_shared<Region>();
    region->id = regions_.size() + 1;
    region->address = address;
    region->length = length;
    regions_.push_back(std::move(region));
  }
  std::shared_ptr<const RegionSnapshot> Regions() const {
    MutexLock lock(&mutex_);
    return std::make_shared<const RegionSnapshot>(regions_, regions_.size());
  }
  std::shared_ptr<InboundHandle> last_handle() const {
    MutexLock lock(&mutex_);
    return handles_.back();
  }

  // "full" is refused.
  absl::Status TakeIn(std::string name, const std::string& message) {
    if (message == "full") return ResourceExhausted("the queue is full");
    MutexLock lock(&mutex_);
    notified_.push_back(std::move(name));
    return absl::OkStatus();
  }
  std::vector<std::string> notified() const {
    MutexLock lock(&mutex_);
    return notified_;
  }

  std::atomic<int> relays{0};
  std::atomic<uint64_t> relay_closed{0};
  std::atomic<int> accepted{0};
  std::atomic<int> closed{0};

 private:
  mutable Mutex mutex_;
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const Region>> regions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<InboundHandle>> handles_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> notified_ ABSL_GUARDED_BY(mutex_);
};

class TestNode {
 public:
  using ChannelResult = absl::StatusOr<std::shared_ptr<RemoteChannel>>;

  explicit TestNode(LinkOptions options = Fast()) {
    loop_ = std::move(*Loop::Start({.name = "test-control"}));
    if (options.identity.node_id.empty()) options.identity.node_id = RandomBytes(kNodeIdBytes);
    links_ = TcpLinkManager::Create(loop_.get(), {.tcp = &tcp_}, &engines_, std::move(options));
  }
  ~TestNode() { Stop(); }

  void Stop() {
    if (links_ == nullptr) return;
    listeners_.clear();
    std::promise<void> done;
    links_->Shutdown([&done] { done.set_value(); });
    done.get_future().wait();
    links_.reset();
    loop_.reset();
  }

  // Short times, so that tests of silence are short too.
  static LinkOptions Fast() {
    LinkOptions options;
    options.keep_alive = {.interval_ns = 50 * kNanosPerMilli, .timeout_ns = 400 * kNanosPerMilli};
    options.handshake_timeout_ns = 300 * kNanosPerMilli;
    return options;
  }
  static LinkOptions WithKey(std::string key) {
    LinkOptions options = Fast();
    options.identity.cluster_key = std::move(key);
    return options;
  }

  // Listens on a free port of loopback; returns the engine's id.
  std::string AddEngine(const std::string& ip = "127.0.0.1") {
    const Endpoint endpoint = *ParseEndpoint(ip);
    auto listener = links_->Listen(endpoint);
    if (!listener.ok()) return std::string(listener.status().message());
    const std::string name = endpoint.WithPort((*listener)->port()).ToString();
    engines_.Add(name);
    listeners_[name] = std::move(*listener);
    return name;
  }
  void StopListening(const std::string& name) {
    std::promise<void> closed;
    listeners_[name]->Close([&closed] { closed.set_value(); });
    closed.get_future().wait();
    listeners_.erase(name);
  }

  std::future<ChannelResult> Open(const std::string& engine, int64_t timeout_ms = 5000,
                                  absl::AnyInvocable<void(absl::Status)> on_broken = nullptr,
                                  std::function<void()> on_outdated = nullptr) {
    LinkManager::ChannelRequest request;
    request.endpoint = *ParseEndpoint(engine);
    request.initiator_engine = "127.0.0.1";
    request.target_engine = engine;
    request.deadline_ns = MonotonicNanos() + timeout_ms * kNanosPerMilli;
    request.on_broken = std::move(on_broken);
    request.on_outdated = std::move(on_outdated);
    auto promise = std::make_shared<std::promise<ChannelResult>>();
    auto future = promise->get_future();
    links_->OpenChannel(std::move(request),
                        [promise](ChannelResult result) { promise->set_value(std::move(result)); });
    return future;
  }

  std::vector<LinkDescription> List() {
    std::promise<std::vector<LinkDescription>> promise;
    links_->List(
        [&promise](std::vector<LinkDescription> links) { promise.set_value(std::move(links)); });
    return promise.get_future().get();
  }

  TcpLinkManager& links() { return *links_; }
  RecordingTcp& tcp() { return tcp_; }
  NamedEngines& engines() { return engines_; }
  Loop& loop() { return *loop_; }

 private:
  RecordingTcp tcp_;
  NamedEngines engines_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<TcpLinkManager> links_;
  std::map<std::string, std::unique_ptr<EngineListener>> listeners_;
};

}  // namespace hixld
