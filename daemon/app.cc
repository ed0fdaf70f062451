#include "daemon/app.h"

#include <grpcpp/impl/codegen/service_type.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/device/device_manager.h"
#include "daemon/engine/engine_direct_granter.h"
#include "daemon/engine/engine_registry.h"
#include "daemon/engine/engine_ring_handler.h"
#include "daemon/host_check.h"
#include "daemon/link/link_manager.h"
#include "daemon/memory/arena_pool.h"
#include "daemon/memory/executor.h"
#include "daemon/rdma.h"
#include "daemon/ring/ring_server.h"
#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/engine_service.h"
#include "daemon/rpc/server.h"
#include "daemon/session/session_server.h"
#include "daemon/telemetry/log.h"
#include "daemon/telemetry/metrics.h"
#include "daemon/telemetry/metrics_server.h"
#include "daemon/telemetry/node_metrics.h"
#include "daemon/telemetry/notify_metrics.h"
#include "daemon/telemetry/service_manager.h"
#include "daemon/telemetry/transfer_metrics.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "proto/base/version.h"
#include "transports/local/local_transport.h"
#include "transports/loop/loop.h"
#include "transports/tcp/tcp_transport.h"

namespace hixld {
namespace {

// How long answers that have been given may take to reach their callers when the daemon stops. A
// client that does not read would hold up the server for longer.
constexpr int64_t kAnswersGraceNanos = 200 * kNanosPerMilli;

// Waits for callbacks of the rooms; used while starting and stopping and by readers of metrics,
// never on a loop.
class Waiter {
 public:
  void Done() {
    MutexLock lock(&mutex_);
    done_ = true;
    condition_.SignalAll();
  }
  // False when `nanos` have passed.
  bool Wait(int64_t nanos) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanos);
    MutexLock lock(&mutex_);
    while (!done_) {
      if (!condition_.WaitUntil(&mutex_, deadline)) return done_;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar condition_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

uint32_t WorkerCount(const Config& config) {
  if (config.workers.count != 0) return static_cast<uint32_t>(config.workers.count);
  // One core stays for the clients: with a worker on each, a caller that waits for an answer takes
  // the core of the worker that would give it.
  return std::clamp(std::thread::hardware_concurrency(), 2u, 9u) - 1;
}

// A worker that spins takes a core from whoever it waits for, where there are no others.
int64_t SpinNanos(const Config& config, uint32_t workers) {
  const int64_t spin_ns = static_cast<int64_t>(config.workers.spin_us) * 1000;
  return std::thread::hardware_concurrency() > workers ? spin_ns : 0;
}

HugePageUse ToHugePageUse(HugePages pages) {
  switch (pages) {
    case HugePages::kOff:
      return HugePageUse::kOff;
    case HugePages::kTry:
      return HugePageUse::kTry;
    case HugePages::kRequire:
      return HugePageUse::kRequire;
  }
  return HugePageUse::kOff;
}

PoolDescription Describe(const ArenaPool& pool) {
  const ArenaPool::Stats stats = pool.stats();
  return {.name = pool.options().name,
          .capacity_bytes = stats.capacity_bytes,
          .arenas = stats.arenas,
          .used_bytes = stats.used_bytes,
          .buffers = stats.buffers,
          .huge_pages = stats.huge_pages};
}

class AppImpl final : public App {
 public:
  explicit AppImpl(AppOptions options)
      : options_(std::move(options)), config_(options_.config), started_ns_(MonotonicNanos()) {}
  ~AppImpl() override { Stop("the daemon ends", kNanosPerSecond); }

  absl::Status Start();
  void Stop(const std::string& reason, int64_t grace_ns) override;

 private:
  absl::Status StartLoops();
  absl::Status MakeMemory();
  absl::Status MakeTransports();
  void MakeEngines();
  absl::Status MakeSessions();
  absl::Status StartRpc();
  absl::Status StartMetrics();
  void StartWatchdog();
  void WatchUse(int64_t wait_ns);
  std::string Security() const;
  std::vector<LinkDescription> Links();
  std::vector<PoolDescription> Pools() const;
  NodeCounts CountNode();

  const AppOptions options_;
  const Config& config_;
  const int64_t started_ns_;
  gid_t group_ = static_cast<gid_t>(-1);
  bool started_ = false;
  bool stopped_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> unused_told_{false};

  // In the order in which they are made; destroyed the other way round.
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<TransferMetrics> transfer_metrics_;
  std::unique_ptr<NotifyMetrics> notify_metrics_;
  std::unique_ptr<Loop> control_;
  std::unique_ptr<WorkerSet> workers_;
  std::unique_ptr<Executor> control_executor_;
  std::unique_ptr<Executor> copy_executor_;
  std::shared_ptr<ArenaPool> host_pool_;
  std::shared_ptr<ArenaPool> relay_pool_;
  std::unique_ptr<DeviceManager> devices_;
  std::unique_ptr<LocalTransport> local_;
  std::unique_ptr<TcpTransport> tcp_;
  Rdma rdma_;
  TransferLog transfers_;
  EngineContext context_;
  std::unique_ptr<EngineRegistry> engines_;
  std::string node_id_;
  std::unique_ptr<TcpLinkManager> links_;
  std::unique_ptr<EngineRingHandler> ring_handler_;
  std::unique_ptr<EngineDirectGranter> direct_;
  std::shared_ptr<RingServer> rings_;
  std::unique_ptr<SessionServer> sessions_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<NodeMetrics> node_metrics_;
  std::unique_ptr<MetricsServer> metrics_server_;
};

absl::Status AppImpl::Start() {
  HIXLD_ASSIGN_OR_RETURN(group_, SocketGroup(config_));
  node_id_ = RandomBytes(kNodeIdBytes);
  metrics_ = std::make_unique<Metrics>();
  transfer_metrics_ = std::make_unique<TransferMetrics>(metrics_.get());
  notify_metrics_ = std::make_unique<NotifyMetrics>(metrics_.get());
  HIXLD_RETURN_IF_ERROR(StartLoops());
  HIXLD_RETURN_IF_ERROR(MakeMemory());
  HIXLD_RETURN_IF_ERROR(MakeTransports());
  MakeEngines();
  // Takes the lock; nothing is bound before that.
  HIXLD_RETURN_IF_ERROR(MakeSessions());
  HIXLD_RETURN_IF_ERROR(StartMetrics());
  HIXLD_RETURN_IF_ERROR(StartRpc());
  HIXLD_RETURN_IF_ERROR(sessions_->Listen());
  StartWatchdog();
  if (options_.private_daemon) WatchUse(options_.first_client_ns);
  started_ = true;
  LogInfo("daemon started", {{"version", kVersion},
                             {"pid", getpid()},
                             {"socket", options_.socket_path},
                             {"config", config_.file.empty() ? "defaults" : config_.file},
                             {"node", absl::BytesToHexString(node_id_)},
                             {"workers", workers_->size()},
                             {"security", Security()}});
  return absl::OkStatus();
}

absl::Status AppImpl::StartLoops() {
  const uint32_t workers = WorkerCount(config_);
  HIXLD_ASSIGN_OR_RETURN(control_, Loop::Start({.name = "hixld-control"}));
  HIXLD_ASSIGN_OR_RETURN(workers_, WorkerSet::Start(workers, SpinNanos(config_, workers)));
  control_executor_ = std::make_unique<Executor>(Executor::Options{
      .name = "hixld-ctl", .threads = static_cast<uint32_t>(config_.workers.control_threads)});
  copy_executor_ = std::make_unique<Executor>(
      Executor::Options{.name = "hixld-copy",
                        .threads = static_cast<uint32_t>(config_.workers.process_copy_threads)});
  return absl::OkStatus();
}

absl::Status AppImpl::MakeMemory() {
  const auto arena_ids = std::make_shared<std::atomic<uint64_t>>(1);
  host_pool_ = ArenaPool::Create({.name = "host",
                                  .arena_bytes = config_.pools.host.arena_bytes,
                                  .max_bytes = config_.pools.host.max_bytes,
                                  .max_bytes_option = "pools.host.max_bytes",
                                  .huge_pages = ToHugePageUse(config_.pools.host.huge_pages),
                                  .arena_ids = arena_ids});
  // A session's relay is one buffer of a few slots, in an arena of just that size.
  relay_pool_ = ArenaPool::Create({.name = "relay",
                                   .min_arena_bytes = config_.pools.relay.slot_bytes,
                                   .arena_bytes = config_.pools.relay.slot_bytes,
                                   .max_bytes = config_.pools.relay.bytes,
                                   .max_bytes_option = "pools.relay.bytes",
                                   .arena_ids = arena_ids});
  DeviceOptions devices;
  devices.backends = config_.devices.backends;
  devices.sim.count = static_cast<int32_t>(config_.devices.sim.count);
  devices.sim.memory_bytes = config_.devices.sim.memory_bytes;
  devices.sim.product = config_.devices.sim.product;
  devices.sim.product_limits = config_.devices.sim.product_limits;
  devices.sim.copy_bandwidth = config_.devices.sim.copy_bandwidth;
  devices.sim.place = config_.devices.sim.place == SimPlace::kClient ? ExecutionPlace::kClient
                                                                     : ExecutionPlace::kDaemon;
  devices.sim.arena_ids = arena_ids;
  HIXLD_ASSIGN_OR_RETURN(devices_, DeviceManager::Create(devices));
  return absl::OkStatus();
}

absl::Status AppImpl::MakeTransports() {
  local_ = LocalTransport::Create(workers_.get(), {.split_bytes = config_.local.split_bytes,
                                                   .chunk_bytes = config_.local.chunk_bytes});
  TcpOptions tcp;
  tcp.lanes = static_cast<uint32_t>(config_.tcp.lanes);
  tcp.stripe_bytes = config_.tcp.stripe_bytes;
  tcp.window_stripes = static_cast<uint32_t>(config_.tcp.window_stripes);
  tcp.socket_buffer_bytes = static_cast<uint32_t>(config_.tcp.socket_buffer_bytes);
  tcp.congestion_control = config_.tcp.congestion_control;
  tcp.zero_copy_bytes = config_.tcp.zero_copy_bytes;
  tcp.interfaces = config_.tcp.interfaces;
  tcp.connect_timeout_ns = config_.tcp.connect_timeout.count();
  tcp.stall_timeout_ns = config_.tcp.keepalive_timeout.count();
  tcp_ = TcpTransport::Create(workers_.get(), tcp);
  HIXLD_ASSIGN_OR_RETURN(rdma_, StartRdma(config_, workers_.get()));
  return absl::OkStatus();
}

void AppImpl::MakeEngines() {
  context_.limits = {.max_engines_per_session = config_.limits.max_engines_per_session,
                     .max_regions_per_session = config_.limits.max_regions_per_session,
                     .max_channels_per_engine = config_.limits.max_channels_per_engine,
                     .max_transfers_per_engine = config_.limits.max_transfers_per_engine,
                     .max_descriptors_per_transfer = config_.limits.max_descriptors_per_transfer,
                     .notifies = {.per_channel = config_.limits.max_notifies_per_channel,
                                  .bytes = config_.limits.max_notify_bytes_per_engine},
                     .relay_unregistered = config_.security.relay_unregistered_memory};
  context_.batching = {.window_ns = static_cast<int64_t>(config_.batching.window_us) * 1000,
                       .max_requests = config_.batching.max_requests,
                       .max_bytes = config_.batching.max_bytes};
  context_.node = absl::BytesToHexString(node_id_);
  context_.product_of = [this](int32_t device_id) { return devices_->ProductOf(device_id); };
  context_.device_ids = [this] { return devices_->Ids(); };
  context_.local = local_.get();
  context_.control = control_.get();
  context_.workers = workers_->size();
  context_.log = &transfers_;
  context_.metrics = transfer_metrics_.get();
  if (config_.local.direct == DirectCopies::kSameUid) {
    context_.direct.max_bytes = config_.local.direct_max_bytes;
    context_.direct.patience_ns = config_.local.direct_patience.count();
  }
  context_.notify_metrics = notify_metrics_.get();
  engines_ = std::make_unique<EngineRegistry>(&context_);
  LinkOptions links;
  links.identity = {
      .node_id = node_id_,
      .cluster_key = options_.cluster_key,
      .allow_unauthenticated_network = config_.security.allow_unauthenticated_network};
  links.keep_alive = {.interval_ns = config_.tcp.keepalive_interval.count(),
                      .timeout_ns = config_.tcp.keepalive_timeout.count()};
  links.max_links = config_.limits.max_links;
  links.data_address = config_.node.data_address;
  Transports transports;
  transports.tcp = tcp_.get();
  transports.rdma = rdma_.transport.get();
  transports.no_rdma = rdma_.why_not;
  transports.rdma_class = RdmaClassOf(config_);
  transports.order = config_.node.transports;
  links_ = TcpLinkManager::Create(control_.get(), std::move(transports), engines_.get(),
                                  std::move(links));
  context_.links = links_.get();
}

absl::Status AppImpl::MakeSessions() {
  ring_handler_ = std::make_unique<EngineRingHandler>(engines_.get());
  if (config_.local.direct == DirectCopies::kSameUid) {
    direct_ = std::make_unique<EngineDirectGranter>(engines_.get(), config_.local.direct_max_bytes);
  }
  RingServer::Options rings;
  rings.geometry = {.entries = static_cast<uint32_t>(config_.rings.entries),
                    .slots = static_cast<uint32_t>(config_.rings.slots),
                    .arena_descriptors = static_cast<uint32_t>(config_.rings.arena_descriptors)};
  rings.max_descriptors = static_cast<uint32_t>(config_.limits.max_descriptors_per_transfer);
  rings_ = std::make_shared<RingServer>(workers_.get(), ring_handler_.get(), rings);
  context_.regions_gone = [weak = std::weak_ptr<RingServer>(rings_)] {
    if (const auto server = weak.lock()) server->RegionsGone();
  };
  SessionServerOptions options;
  options.socket_path = options_.socket_path;
  options.mode = config_.socket.mode;
  options.group = group_;
  options.daemon_version = kVersion;
  options.incarnation = node_id_;
  options.limits = {.max_sessions = config_.limits.max_sessions,
                    .max_sessions_per_uid = config_.limits.max_sessions_per_uid,
                    .max_memory_handles_per_session = config_.limits.max_memory_handles_per_session,
                    .max_buffers_per_session = config_.limits.max_buffers_per_session,
                    .max_buffer_bytes_per_session = config_.limits.max_buffer_bytes_per_session};
  options.relay_slot_bytes = config_.pools.relay.slot_bytes;
  if (options_.private_daemon) {
    options.on_last_session_gone = [this] { WatchUse(options_.last_client_grace_ns); };
  }
  SessionResources resources;
  resources.loop = control_.get();
  resources.control = control_executor_.get();
  resources.copies = copy_executor_.get();
  resources.host_pool = host_pool_;
  resources.relay_pool = relay_pool_;
  resources.devices = devices_.get();
  resources.rings = rings_.get();
  resources.direct = direct_.get();
  HIXLD_ASSIGN_OR_RETURN(sessions_, SessionServer::Create(std::move(options), resources));
  sessions_->AddObserver(engines_.get());
  return absl::OkStatus();
}

absl::Status AppImpl::StartRpc() {
  AdminSources sources;
  sources.version = kVersion;
  sources.node_id = absl::BytesToHexString(node_id_);
  sources.socket_path = options_.socket_path;
  if (!config_.file.empty()) {
    sources.config_path = std::filesystem::absolute(config_.file).string();
  }
  sources.private_daemon = options_.private_daemon;
  sources.workers = workers_->size();
  sources.security = Security();
  sources.tcp_congestion_control = UsableCongestionControl(config_);
  sources.started_ns = started_ns_;
  sources.sessions = sessions_.get();
  sources.engines = engines_.get();
  sources.links = links_.get();
  sources.transfers = &transfers_;
  sources.devices = [this] { return devices_->List(); };
  sources.pools = [this] { return Pools(); };
  sources.huge_page_fallbacks = [this] { return host_pool_->stats().huge_page_fallbacks; };
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(
      MakeEngineService(sessions_.get(), engines_.get(),
                        {.max_regions_per_call = config_.limits.max_regions_per_call,
                         .max_regions_per_session = config_.limits.max_regions_per_session}));
  services.push_back(MakeAdminService(std::move(sources)));
  HIXLD_ASSIGN_OR_RETURN(
      rpc_, RpcServer::Start(control_.get(),
                             {.path = options_.socket_path,
                              .mode = config_.socket.mode,
                              .group = group_,
                              .max_message_bytes = config_.limits.max_rpc_message_bytes},
                             std::move(services)));
  return absl::OkStatus();
}

absl::Status AppImpl::StartMetrics() {
  NodeReaders readers;
  readers.node = [this] { return CountNode(); };
  readers.lanes = [this] {
    std::vector<LaneCounts> lanes;
    for (const LinkDescription& link : Links()) {
      for (const LaneStats& lane : link.lanes) {
        lanes.push_back({.peer = link.peer_address,
                         .transport = lane.transport.empty() ? link.transport : lane.transport,
                         .lane = absl::StrCat(lane.index),
                         .up = lane.state == "up",
                         .bytes_sent = lane.bytes_sent,
                         .bytes_received = lane.bytes_received,
                         .reconnects = lane.reconnects});
      }
    }
    return lanes;
  };
  readers.pools = [this] {
    std::vector<PoolCounts> pools;
    for (PoolDescription& pool : Pools()) {
      pools.push_back({.pool = std::move(pool.name),
                       .capacity_bytes = pool.capacity_bytes,
                       .used_bytes = pool.used_bytes,
                       .buffers = pool.buffers});
    }
    return pools;
  };
  node_metrics_ = std::make_unique<NodeMetrics>(metrics_.get(), std::move(readers));
  HIXLD_ASSIGN_OR_RETURN(metrics_server_, MetricsServer::Start(config_, metrics_.get()));
  return absl::OkStatus();
}

void AppImpl::StartWatchdog() {
  const int64_t interval_ns = WatchdogIntervalNanos();
  if (interval_ns == 0) return;
  // The sign of life goes through every worker, so that one that hangs is missed.
  struct Watchdog : std::enable_shared_from_this<Watchdog> {
    Loop* control = nullptr;
    WorkerSet* workers = nullptr;
    int64_t interval_ns = 0;
    void Visit(uint32_t index) {
      Loop& next = index < workers->size() ? workers->at(index) : *control;
      next.Post([self = shared_from_this(), index] {
        if (index < self->workers->size()) return self->Visit(index + 1);
        NotifyAlive();
        self->control->AddTimer(MonotonicNanos() + self->interval_ns, [self] { self->Visit(0); });
      });
    }
  };
  auto watchdog = std::make_shared<Watchdog>();
  watchdog->control = control_.get();
  watchdog->workers = workers_.get();
  watchdog->interval_ns = interval_ns;
  watchdog->Visit(0);
}

// Tells when no client has been there for the time that a private daemon waits.
void AppImpl::WatchUse(int64_t wait_ns) {
  control_->Post([this, wait_ns] {
    control_->AddTimer(MonotonicNanos() + wait_ns, [this] {
      if (stopping_.load(std::memory_order_acquire) || sessions_->size() != 0) return;
      if (!unused_told_.exchange(true)) options_.on_unused();
    });
  });
}

std::string AppImpl::Security() const {
  if (!options_.cluster_key.empty()) return "cluster key";
  return config_.security.allow_unauthenticated_network ? "unauthenticated" : "loopback only";
}

std::vector<LinkDescription> AppImpl::Links() {
  auto waiter = std::make_shared<Waiter>();
  auto links = std::make_shared<std::vector<LinkDescription>>();
  links_->List([waiter, links](std::vector<LinkDescription> all) {
    *links = std::move(all);
    waiter->Done();
  });
  if (!waiter->Wait(kNanosPerSecond)) return {};
  return *links;
}

std::vector<PoolDescription> AppImpl::Pools() const {
  std::vector<PoolDescription> pools = {Describe(*host_pool_), Describe(*relay_pool_)};
  for (const ArenaPool* pool : devices_->Pools()) pools.push_back(Describe(*pool));
  return pools;
}

NodeCounts AppImpl::CountNode() {
  NodeCounts counts;
  for (const auto& engine : engines_->All()) {
    const EngineDescription description = engine->Describe();
    counts.engines += 1;
    counts.regions += description.regions->size();
    for (const auto& region : description.regions->regions()) {
      counts.registered_bytes += region->length;
    }
    counts.channels += description.channels.size();
    counts.notifies_queued += description.notifies_queued;
  }
  counts.sessions = sessions_->size();
  counts.links = Links().size();
  const TransferTotals totals = transfers_.Totals();
  counts.transfers_active = totals.active;
  counts.merges = totals.merges;
  counts.merged_transfers = totals.merged_transfers;
  counts.huge_page_fallbacks = host_pool_->stats().huge_page_fallbacks;
  if (rdma_.transport != nullptr) {
    const RdmaTransport::Stats rdma = rdma_.transport->stats();
    counts.rdma_registrations = rdma.registrations;
    counts.rdma_registered_bytes = rdma.registered_bytes;
    counts.rdma_registrations_made = rdma.registrations_made;
    counts.rdma_registrations_failed = rdma.registrations_failed;
  }
  return counts;
}

void AppImpl::Stop(const std::string& reason, int64_t grace_ns) {
  if (std::exchange(stopped_, true)) return;
  // A start that fails says so in one line, which is main's.
  if (started_) LogInfo("daemon stops", {{"reason", reason}});
  stopping_.store(true, std::memory_order_release);
  NotifyStopping();
  const int64_t deadline_ns = MonotonicNanos() + grace_ns;
  const auto left = [deadline_ns] { return std::max<int64_t>(0, deadline_ns - MonotonicNanos()); };
  // First the engines: their transfers are fenced and every waiting call is answered.
  if (engines_ != nullptr) {
    auto closed = std::make_shared<Waiter>();
    engines_->CloseAll(reason, [closed] { closed->Done(); });
    closed->Wait(left());
  }
  metrics_server_.reset();
  node_metrics_.reset();
  if (sessions_ != nullptr) sessions_->Shutdown(reason, deadline_ns);
  if (rpc_ != nullptr) rpc_->Stop(std::min(left(), kAnswersGraceNanos));
  rpc_.reset();
  if (links_ != nullptr) {
    auto closed = std::make_shared<Waiter>();
    links_->Shutdown([closed] { closed->Done(); });
    closed->Wait(left() + kNanosPerSecond);
  }
  // What the control loop was doing with the rooms is over after this; what comes later sees
  // stopping_.
  if (control_ != nullptr) {
    auto idle = std::make_shared<Waiter>();
    control_->Post([idle] { idle->Done(); });
    idle->Wait(left() + kNanosPerSecond);
  }
  sessions_.reset();
  if (started_) LogInfo("daemon stopped");
}

}  // namespace

absl::StatusOr<std::unique_ptr<App>> App::Start(AppOptions options) {
  auto app = std::make_unique<AppImpl>(std::move(options));
  HIXLD_RETURN_IF_ERROR(app->Start());
  return app;
}

}  // namespace hixld
