// What all RDMA links of the daemon share: devices, their completion queues and registrations, and
// the threads for work that may block.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "transports/loop/loop.h"
#include "transports/rdma/completion_queue.h"
#include "transports/rdma/local_keys.h"
#include "transports/rdma/options.h"
#include "transports/rdma/selection.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma {

// One opened device.
struct Device {
  std::string name;
  uint32_t number = 0;  // in Context::devices()
  std::unique_ptr<VerbsDevice> verbs;
  // For our own requests. Nothing in it can be reached from outside.
  std::unique_ptr<VerbsDomain> local_domain;
  std::shared_ptr<LocalKeys> local_keys;
  // Of queue pairs that only answer; nothing ever comes out of it.
  std::unique_ptr<VerbsCompletions> silent;
  std::atomic<bool> gone{false};
};

// Told of what happens to devices; on the control thread.
class EventListener {
 public:
  virtual ~EventListener() = default;
  virtual void OnPortDown(uint32_t device, uint32_t port, const std::string& why) = 0;
  virtual void OnPortsChanged() = 0;
  virtual void OnQueuePairFailed(uint32_t device, uint32_t number, const std::string& why) = 0;
};

class Context {
 public:
  // Opens the devices that the options allow. Errors as ChoosePorts.
  static absl::StatusOr<std::shared_ptr<Context>> Create(WorkerSet* workers, RdmaOptions options,
                                                         std::unique_ptr<Verbs> verbs);
  ~Context();
  // Ends the threads and lets go of all that is registered. Links must have ended.
  void Shutdown();

  const RdmaOptions& options() const { return options_; }
  WorkerSet& workers() { return *workers_; }
  // Sets up and ends queue pairs, handles events and timers.
  Loop& control() { return *control_; }
  // Registers memory for peers: may block for long.
  Loop& registrar() { return *registrar_; }
  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }

  const std::shared_ptr<RegistrationCounters>& counters() const { return counters_; }

  // The ports that can be used now, or why there is none.
  absl::StatusOr<std::vector<UsablePort>> Ports() const;

  // A completion queue of this device on this worker with room for `entries` more. On the control
  // thread.
  absl::StatusOr<std::shared_ptr<CompletionQueue>> Completions(Device& device, uint32_t worker,
                                                               uint32_t entries);

  void AddListener(std::weak_ptr<EventListener> listener);
  void Report(RdmaEvent event) const;

  // Counts the queue pairs that have to end before Shutdown.
  void LaneBegins();
  void LaneEnded();
  // False when some have not ended by then.
  bool WaitForLanes(int64_t deadline_ns);

 private:
  Context(WorkerSet* workers, RdmaOptions options, std::unique_ptr<Verbs> verbs);
  absl::Status Open();
  absl::Status OpenDevice(const std::string& name);
  absl::StatusOr<std::vector<PortCandidate>> Candidates() const;
  void Watch();
  void OnEvent(Device& device);
  void Handle(Device& device, const AsyncEvent& event);
  void RefreshPorts();
  void ForEachListener(const std::function<void(EventListener&)>& call);

  WorkerSet* const workers_;
  const RdmaOptions options_;
  const std::unique_ptr<Verbs> verbs_;
  const std::shared_ptr<RegistrationCounters> counters_ = std::make_shared<RegistrationCounters>();
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Loop> control_;
  std::unique_ptr<Loop> registrar_;
  // By device and worker; on the control thread.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<std::shared_ptr<CompletionQueue>>>
      completions_;
  mutable Mutex mutex_;
  absl::StatusOr<std::vector<UsablePort>> ports_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<EventListener>> listeners_ ABSL_GUARDED_BY(mutex_);
  uint32_t lanes_ ABSL_GUARDED_BY(mutex_) = 0;
  CondVar lanes_changed_;
};

}  // namespace hixld::rdma
