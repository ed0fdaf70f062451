#include "transports/rdma/context.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

constexpr uint32_t kCompletionDepth = 8192;

bool Wanted(const std::string& device, const SelectionRules& rules) {
  if (rules.devices.empty()) return true;
  return std::any_of(rules.devices.begin(), rules.devices.end(), [&](const std::string& name) {
    return name.substr(0, name.find(':')) == device;
  });
}

// Runs `task` on the loop and waits for its end.
void RunOn(Loop& loop, absl::AnyInvocable<void()> task) {
  std::promise<void> done;
  loop.Dispatch([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace

Context::Context(WorkerSet* workers, RdmaOptions options, std::unique_ptr<Verbs> verbs)
    : workers_(workers),
      options_(std::move(options)),
      verbs_(std::move(verbs)),
      ports_(std::vector<UsablePort>()) {}

absl::StatusOr<std::shared_ptr<Context>> Context::Create(WorkerSet* workers, RdmaOptions options,
                                                         std::unique_ptr<Verbs> verbs) {
  std::shared_ptr<Context> context(new Context(workers, std::move(options), std::move(verbs)));
  HIXLD_RETURN_IF_ERROR(context->Open());
  return context;
}

Context::~Context() { Shutdown(); }

absl::Status Context::Open() {
  HIXLD_ASSIGN_OR_RETURN(const std::vector<std::string> names, verbs_->DeviceNames());
  // Most nodes end here; they need no threads for that.
  if (names.empty()) return ChoosePorts({}, options_.selection).status();
  HIXLD_ASSIGN_OR_RETURN(registrar_, Loop::Start({.name = "hixld-rdma-reg"}));
  HIXLD_ASSIGN_OR_RETURN(control_, Loop::Start({.name = "hixld-rdma"}));
  std::vector<PortCandidate> unopened;
  for (const std::string& name : names) {
    if (Wanted(name, options_.selection)) {
      HIXLD_RETURN_IF_ERROR(OpenDevice(name));
    } else {
      // Only so that an error can list it.
      unopened.push_back({.device = name, .device_number = UINT32_MAX, .info = {}});
    }
  }
  HIXLD_ASSIGN_OR_RETURN(std::vector<PortCandidate> candidates, Candidates());
  candidates.insert(candidates.end(), unopened.begin(), unopened.end());
  auto ports = ChoosePorts(candidates, options_.selection);
  const bool may_come = ApiCodeOf(ports.status()) == ApiCode::kFailed;
  if (!ports.ok() && !(options_.wait_for_ports && may_come)) return ports.status();
  {
    MutexLock lock(&mutex_);
    ports_ = std::move(ports);
  }
  Watch();
  return absl::OkStatus();
}

absl::Status Context::OpenDevice(const std::string& name) {
  auto device = std::make_unique<Device>();
  device->name = name;
  device->number = static_cast<uint32_t>(devices_.size());
  HIXLD_ASSIGN_OR_RETURN(device->verbs, verbs_->Open(name));
  HIXLD_ASSIGN_OR_RETURN(device->local_domain, device->verbs->CreateDomain());
  HIXLD_ASSIGN_OR_RETURN(device->silent, device->verbs->CreateCompletions(16));
  const uint64_t piece =
      std::min(options_.registration_bytes, device->verbs->limits().max_mr_size) & ~4095ULL;
  device->local_keys =
      std::make_shared<LocalKeys>(device->local_domain.get(), counters_, registrar_.get(), piece);
  devices_.push_back(std::move(device));
  return absl::OkStatus();
}

void Context::Shutdown() {
  if (control_ != nullptr) {
    // No more events, then the queues leave their workers.
    RunOn(*control_, [this] {
      for (const auto& device : devices_) control_->RemoveFd(device->verbs->event_fd());
    });
    for (auto& [key, queues] : completions_) {
      for (auto& queue : queues) RunOn(*queue->loop(), [&queue = queue] { queue->Stop(); });
    }
  }
  registrar_.reset();
  control_.reset();
  completions_.clear();
  for (const auto& device : devices_) device->local_keys->Clear();
}

absl::StatusOr<std::vector<PortCandidate>> Context::Candidates() const {
  std::vector<PortCandidate> candidates;
  for (const auto& device : devices_) {
    if (device->gone.load(std::memory_order_acquire)) continue;
    HIXLD_ASSIGN_OR_RETURN(std::vector<PortInfo> ports, device->verbs->Ports());
    for (PortInfo& port : ports) {
      candidates.push_back({device->name, device->number, std::move(port)});
    }
  }
  return candidates;
}

absl::StatusOr<std::vector<UsablePort>> Context::Ports() const {
  MutexLock lock(&mutex_);
  return ports_;
}

absl::StatusOr<std::shared_ptr<CompletionQueue>> Context::Completions(Device& device,
                                                                      uint32_t worker,
                                                                      uint32_t entries) {
  worker %= workers_->size();
  auto& queues = completions_[{device.number, worker}];
  for (const auto& queue : queues) {
    if (queue->Reserve(entries)) return queue;
  }
  const uint32_t depth =
      std::max(entries, std::min(kCompletionDepth, device.verbs->limits().max_completions));
  HIXLD_ASSIGN_OR_RETURN(auto verbs, device.verbs->CreateCompletions(depth));
  auto queue = std::make_shared<CompletionQueue>(std::move(verbs), &workers_->at(worker), depth);
  queue->Reserve(entries);
  queues.push_back(queue);
  queue->loop()->Post([queue] { queue->Start(); });
  return queue;
}

void Context::AddListener(std::weak_ptr<EventListener> listener) {
  MutexLock lock(&mutex_);
  std::erase_if(listeners_, [](const auto& known) { return known.expired(); });
  listeners_.push_back(std::move(listener));
}

void Context::ForEachListener(const std::function<void(EventListener&)>& call) {
  std::vector<std::weak_ptr<EventListener>> listeners;
  {
    MutexLock lock(&mutex_);
    listeners = listeners_;
  }
  for (const auto& weak : listeners) {
    if (auto listener = weak.lock()) call(*listener);
  }
}

void Context::Report(RdmaEvent event) const {
  if (options_.on_event) options_.on_event(event);
}

void Context::Watch() {
  control_->Post([this] {
    for (const auto& device : devices_) {
      const absl::Status watched =
          control_->AddFd(device->verbs->event_fd(), EPOLLIN,
                          [this, device = device.get()](uint32_t) { OnEvent(*device); });
      if (!watched.ok()) {
        Report({RdmaEvent::Severity::kWarning, device->name, 0, std::string(watched.message())});
      }
    }
  });
}

void Context::OnEvent(Device& device) {
  while (const auto event = device.verbs->NextEvent()) Handle(device, *event);
}

void Context::Handle(Device& device, const AsyncEvent& event) {
  using Kind = AsyncEvent::Kind;
  const bool good = event.kind == Kind::kPortActive || event.kind == Kind::kAddressesChanged;
  Report({good ? RdmaEvent::Severity::kInfo : RdmaEvent::Severity::kWarning, device.name,
          event.port, event.text});
  switch (event.kind) {
    case Kind::kPortDown:
      RefreshPorts();
      ForEachListener([&](EventListener& listener) {
        listener.OnPortDown(device.number, event.port,
                            absl::StrCat(device.name, " port ", event.port, " went down"));
      });
      break;
    case Kind::kDeviceGone:
      device.gone.store(true, std::memory_order_release);
      RefreshPorts();
      ForEachListener([&](EventListener& listener) {
        listener.OnPortDown(device.number, 0, absl::StrCat(device.name, " is gone"));
      });
      break;
    case Kind::kQueuePairFailed:
      ForEachListener([&](EventListener& listener) {
        listener.OnQueuePairFailed(device.number, event.queue_pair,
                                   absl::StrCat(device.name, ": ", event.text));
      });
      break;
    case Kind::kPortActive:
    case Kind::kAddressesChanged:
      RefreshPorts();
      ForEachListener([](EventListener& listener) { listener.OnPortsChanged(); });
      break;
    case Kind::kOther:
      break;
  }
}

void Context::RefreshPorts() {
  const auto candidates = Candidates();
  auto ports = candidates.ok() ? ChoosePorts(*candidates, options_.selection)
                               : absl::StatusOr<std::vector<UsablePort>>(candidates.status());
  MutexLock lock(&mutex_);
  ports_ = std::move(ports);
}

void Context::LaneBegins() {
  MutexLock lock(&mutex_);
  ++lanes_;
}

void Context::LaneEnded() {
  MutexLock lock(&mutex_);
  --lanes_;
  lanes_changed_.SignalAll();
}

bool Context::WaitForLanes(int64_t deadline_ns) {
  const auto deadline =
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns));
  MutexLock lock(&mutex_);
  while (lanes_ > 0) {
    if (!lanes_changed_.WaitUntil(&mutex_, deadline)) return lanes_ == 0;
  }
  return true;
}

}  // namespace hixld::rdma
