// Verbs without a device: queue pairs of one process that copy memory. A test can hold work back,
// fail it, take ports down, and let WRITEs land late, as packets that were on their way do.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma::testing {

inline Gid V4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}

// What all fake devices share; outlives them.
class FakeNetwork {
 public:
  struct Wr {
    uint64_t id = 0;
    bool write = false;
    bool signaled = false;
    std::byte* local = nullptr;
    uint32_t length = 0;
    uint64_t remote = 0;
    uint32_t key = 0;
    std::vector<std::byte> packets;  // of a WRITE that is on its way
  };
  struct Region {
    uint64_t address = 0;
    uint64_t length = 0;
    const void* domain = nullptr;
    bool remote = false;
  };
  struct Completions {
    int event = -1;
    bool armed = false;
    std::deque<ibv_wc> waiting;
  };
  struct QueuePair {
    uint32_t number = 0;
    uint32_t peer = 0;
    uint32_t depth = 0;
    std::string device;
    const void* domain = nullptr;
    Completions* completions = nullptr;
    ibv_qp_state state = IBV_QPS_RESET;
    std::deque<Wr> held;
  };
  struct Device {
    bool active = true;
    uint64_t lock_limit = UINT64_MAX;
    uint64_t max_mr_size = UINT64_MAX;
    uint64_t locked = 0;
    int event = -1;
    std::vector<GidEntry> gids;
    std::deque<AsyncEvent> events;
  };

  void AddDevice(const std::string& name, Gid gid, uint32_t prefix_bits = 120) {
    MutexLock lock(&mutex_);
    devices_[name].gids.push_back({0, gid, GidType::kRoceV2, "fake", prefix_bits});
  }
  // Work is taken but not done until Release.
  void Hold(bool hold) {
    MutexLock lock(&mutex_);
    hold_ = hold;
    if (!hold) RunHeld();
  }
  // How many work requests are held back.
  size_t held() {
    MutexLock lock(&mutex_);
    size_t count = 0;
    for (auto& [number, qp] : queue_pairs_) count += qp->held.size();
    return count;
  }
  // From now on requests of this many bytes or more get no answer; 0: none does.
  void PassBelow(uint64_t bytes) {
    MutexLock lock(&mutex_);
    pass_below_ = bytes;
  }
  // The next work request of any queue pair that moves bytes fails like this.
  void FailNext(ibv_wc_status status) {
    MutexLock lock(&mutex_);
    fail_next_ = status;
  }
  // WRITEs that are flushed while held are packets on their way: LandLate delivers them to those
  // target queue pairs that still exist.
  size_t LandLate() {
    MutexLock lock(&mutex_);
    size_t landed = 0;
    for (auto& [peer, wr] : std::exchange(late_, {})) {
      const auto target = queue_pairs_.find(peer);
      if (target == queue_pairs_.end() || target->second->state == IBV_QPS_ERR) continue;
      if (!Reachable(*target->second, wr)) continue;
      memcpy(reinterpret_cast<void*>(wr.remote), wr.packets.data(), wr.length);
      ++landed;
    }
    return landed;
  }
  void SetPort(const std::string& device, bool active) {
    MutexLock lock(&mutex_);
    devices_[device].active = active;
    Raise(&devices_[device], {active ? AsyncEvent::Kind::kPortActive : AsyncEvent::Kind::kPortDown,
                              1, 0, active ? "port active" : "port error"});
  }
  void SetLockLimit(const std::string& device, uint64_t bytes) {
    MutexLock lock(&mutex_);
    devices_[device].lock_limit = bytes;
  }
  void SetMaxRegion(const std::string& device, uint64_t bytes) {
    MutexLock lock(&mutex_);
    devices_[device].max_mr_size = bytes;
  }
  size_t regions() {
    MutexLock lock(&mutex_);
    return regions_.size();
  }
  uint64_t most_posted() {
    MutexLock lock(&mutex_);
    return most_posted_;
  }

 private:
  friend class FakeRegion;
  friend class FakeDomain;
  friend class FakeCompletions;
  friend class FakeQueuePair;
  friend class FakeDevice;
  friend class FakeVerbs;

  static void Raise(Device* device, AsyncEvent event) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    device->events.push_back(std::move(event));
    if (device->event >= 0) Signal(device->event);
  }
  static void Signal(int fd) {
    const uint64_t one = 1;
    const ssize_t written = write(fd, &one, sizeof(one));
    (void)written;
  }

  void Complete(QueuePair& qp, uint64_t id, ibv_wc_status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ibv_wc wc = {};
    wc.wr_id = id;
    wc.status = status;
    wc.qp_num = qp.number;
    qp.completions->waiting.push_back(wc);
    if (std::exchange(qp.completions->armed, false)) Signal(qp.completions->event);
  }

  bool Reachable(const QueuePair& target, const Wr& wr) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto region = regions_.find(wr.key);
    return region != regions_.end() && region->second.remote &&
           region->second.domain == target.domain && wr.remote >= region->second.address &&
           wr.remote + wr.length <= region->second.address + region->second.length;
  }

  void Fail(QueuePair& qp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    qp.state = IBV_QPS_ERR;
    for (Wr& wr : std::exchange(qp.held, {})) {
      Complete(qp, wr.id, IBV_WC_WR_FLUSH_ERR);
      if (wr.write) {
        wr.packets.assign(wr.local, wr.local + wr.length);
        late_.emplace_back(qp.peer, std::move(wr));
      }
    }
  }

  void Execute(QueuePair& qp, const Wr& wr) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ibv_wc_status status =
        wr.length == 0 ? IBV_WC_SUCCESS : std::exchange(fail_next_, IBV_WC_SUCCESS);
    const auto target = queue_pairs_.find(qp.peer);
    if (status == IBV_WC_SUCCESS) {
      if (target == queue_pairs_.end() || target->second->state == IBV_QPS_ERR ||
          wr.length >= pass_below_ || !devices_[qp.device].active ||
          !devices_[target->second->device].active) {
        status = IBV_WC_RETRY_EXC_ERR;
      } else if (wr.length > 0 && !Reachable(*target->second, wr)) {
        status = IBV_WC_REM_ACCESS_ERR;
        target->second->state = IBV_QPS_ERR;
      }
    }
    if (status != IBV_WC_SUCCESS) {
      Complete(qp, wr.id, status);
      Fail(qp);
      return;
    }
    auto* const remote = reinterpret_cast<std::byte*>(wr.remote);
    if (wr.length == 0) {
      // Asks only whether anybody is there.
    } else if (wr.write) {
      memcpy(remote, wr.local, wr.length);
    } else {
      memcpy(wr.local, remote, wr.length);
    }
    if (wr.signaled) Complete(qp, wr.id, IBV_WC_SUCCESS);
  }

  void RunHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto& [number, qp] : queue_pairs_) {
      while (!qp->held.empty()) {
        const Wr wr = std::move(qp->held.front());
        qp->held.pop_front();
        Execute(*qp, wr);
      }
    }
  }

  Mutex mutex_;
  std::map<std::string, Device> devices_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, QueuePair*> queue_pairs_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, Region> regions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint32_t, Wr>> late_ ABSL_GUARDED_BY(mutex_);
  uint32_t next_number_ ABSL_GUARDED_BY(mutex_) = 100;
  uint32_t next_key_ ABSL_GUARDED_BY(mutex_) = 1;
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  ibv_wc_status fail_next_ ABSL_GUARDED_BY(mutex_) = IBV_WC_SUCCESS;
  uint64_t pass_below_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  uint64_t most_posted_ ABSL_GUARDED_BY(mutex_) = 0;
};

class FakeRegion final : public VerbsRegion {
 public:
  FakeRegion(FakeNetwork* network, std::string device, uint32_t key, uint64_t length)
      : network_(network), device_(std::move(device)), key_(key), length_(length) {}
  ~FakeRegion() override {
    MutexLock lock(&network_->mutex_);
    network_->regions_.erase(key_);
    network_->devices_[device_].locked -= length_;
  }
  uint32_t local_key() const override { return key_; }
  uint32_t remote_key() const override { return key_; }

 private:
  FakeNetwork* const network_;
  const std::string device_;
  const uint32_t key_;
  const uint64_t length_;
};

class FakeDomain final : public VerbsDomain {
 public:
  FakeDomain(FakeNetwork* network, std::string device)
      : network_(network), device_(std::move(device)) {}
  absl::StatusOr<std::unique_ptr<VerbsRegion>> Register(void* address, uint64_t length,
                                                        int access) override {
    MutexLock lock(&network_->mutex_);
    auto& device = network_->devices_[device_];
    if (length > device.max_mr_size) return Failed("region too large");
    if (device.locked + length > device.lock_limit) {
      return ResourceExhausted("RLIMIT_MEMLOCK", {.limit = "RLIMIT_MEMLOCK"});
    }
    device.locked += length;
    const uint32_t key = network_->next_key_++;
    network_->regions_[key] = {reinterpret_cast<uint64_t>(address), length, this,
                               (access & IBV_ACCESS_REMOTE_WRITE) != 0};
    return std::make_unique<FakeRegion>(network_, device_, key, length);
  }
  absl::StatusOr<std::unique_ptr<VerbsRegion>> RegisterDmaBuf(int, uint64_t, uint64_t, uint64_t,
                                                              int) override {
    return Unsupported("no dma-buf");
  }

 private:
  FakeNetwork* const network_;
  const std::string device_;
};

class FakeCompletions final : public VerbsCompletions {
 public:
  explicit FakeCompletions(FakeNetwork* network)
      : network_(network), event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    state_.event = event_.get();
  }
  FakeNetwork::Completions* state() { return &state_; }
  int Poll(int count, ibv_wc* out) override {
    MutexLock lock(&network_->mutex_);
    int taken = 0;
    for (; taken < count && !state_.waiting.empty(); ++taken) {
      out[taken] = state_.waiting.front();
      state_.waiting.pop_front();
    }
    return taken;
  }
  absl::Status Arm() override {
    MutexLock lock(&network_->mutex_);
    state_.armed = true;
    return absl::OkStatus();
  }
  int fd() const override { return event_.get(); }
  void ConsumeEvents() override {
    uint64_t count = 0;
    const ssize_t got = read(event_.get(), &count, sizeof(count));
    (void)got;
  }

 private:
  FakeNetwork* const network_;
  const UniqueFd event_;
  FakeNetwork::Completions state_;
};

class FakeQueuePair final : public VerbsQueuePair {
 public:
  FakeQueuePair(FakeNetwork* network, std::string device, const VerbsDevice::QueuePairRequest& r)
      : network_(network) {
    MutexLock lock(&network_->mutex_);
    state_.number = network_->next_number_++;
    state_.device = std::move(device);
    state_.domain = r.domain;
    state_.depth = r.send_depth;
    state_.completions = static_cast<FakeCompletions*>(r.completions)->state();
    network_->queue_pairs_[state_.number] = &state_;
  }
  ~FakeQueuePair() override {
    MutexLock lock(&network_->mutex_);
    network_->queue_pairs_.erase(state_.number);
    // As real devices do: what it left in the completion queue goes too.
    auto& waiting = state_.completions->waiting;
    std::erase_if(waiting, [this](const ibv_wc& wc) { return wc.qp_num == state_.number; });
  }
  uint32_t number() const override { return state_.number; }
  uint32_t inline_bytes() const override { return 64; }

  int Modify(ibv_qp_attr* attributes, int mask) override {
    MutexLock lock(&network_->mutex_);
    if ((mask & IBV_QP_DEST_QPN) != 0) state_.peer = attributes->dest_qp_num;
    state_.state = attributes->qp_state;
    if (state_.state == IBV_QPS_ERR) network_->Fail(state_);
    return 0;
  }

  int Post(ibv_send_wr* first, ibv_send_wr** bad) override {
    MutexLock lock(&network_->mutex_);
    for (ibv_send_wr* wr = first; wr != nullptr; wr = wr->next) {
      if (state_.held.size() >= state_.depth) {
        *bad = wr;
        return ENOMEM;
      }
      FakeNetwork::Wr own;
      own.id = wr->wr_id;
      own.write = wr->opcode == IBV_WR_RDMA_WRITE;
      own.signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0;
      if (wr->num_sge == 1) {
        own.local = reinterpret_cast<std::byte*>(wr->sg_list[0].addr);
        own.length = wr->sg_list[0].length;
      }
      own.remote = wr->wr.rdma.remote_addr;
      own.key = wr->wr.rdma.rkey;
      if (state_.state == IBV_QPS_ERR) {
        network_->Complete(state_, own.id, IBV_WC_WR_FLUSH_ERR);
      } else if (network_->hold_ && own.length > 0) {
        state_.held.push_back(std::move(own));
        network_->most_posted_ = std::max<uint64_t>(network_->most_posted_, state_.held.size());
      } else {
        network_->Execute(state_, own);
      }
    }
    return 0;
  }

 private:
  FakeNetwork* const network_;
  FakeNetwork::QueuePair state_;
};

class FakeDevice final : public VerbsDevice {
 public:
  FakeDevice(FakeNetwork* network, std::string name)
      : network_(network), name_(std::move(name)), event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    MutexLock lock(&network_->mutex_);
    auto& device = network_->devices_[name_];
    device.event = event_.get();
    limits_.max_mr_size = device.max_mr_size;
    limits_.max_send_depth = 1024;
    limits_.max_completions = 4096;
    limits_.read_depth_out = limits_.read_depth_in = 16;
  }
  ~FakeDevice() override {
    MutexLock lock(&network_->mutex_);
    network_->devices_[name_].event = -1;
  }
  const DeviceLimits& limits() const override { return limits_; }
  absl::StatusOr<std::vector<PortInfo>> Ports() override {
    MutexLock lock(&network_->mutex_);
    const auto& device = network_->devices_[name_];
    PortInfo port;
    port.active = device.active;
    port.state = device.active ? "ACTIVE" : "DOWN";
    port.gids = device.gids;
    return std::vector<PortInfo>{port};
  }
  absl::StatusOr<std::unique_ptr<VerbsDomain>> CreateDomain() override {
    return std::make_unique<FakeDomain>(network_, name_);
  }
  absl::StatusOr<std::unique_ptr<VerbsCompletions>> CreateCompletions(uint32_t) override {
    return std::make_unique<FakeCompletions>(network_);
  }
  absl::StatusOr<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(
      const QueuePairRequest& request) override {
    return std::make_unique<FakeQueuePair>(network_, name_, request);
  }
  int event_fd() const override { return event_.get(); }
  std::optional<AsyncEvent> NextEvent() override {
    uint64_t count = 0;
    const ssize_t got = read(event_.get(), &count, sizeof(count));
    (void)got;
    MutexLock lock(&network_->mutex_);
    auto& events = network_->devices_[name_].events;
    if (events.empty()) return std::nullopt;
    AsyncEvent event = events.front();
    events.pop_front();
    return event;
  }

 private:
  FakeNetwork* const network_;
  const std::string name_;
  const UniqueFd event_;
  DeviceLimits limits_;
};

// The devices of one node.
class FakeVerbs final : public Verbs {
 public:
  FakeVerbs(FakeNetwork* network, std::vector<std::string> names)
      : network_(network), names_(std::move(names)) {}
  absl::StatusOr<std::vector<std::string>> DeviceNames() override { return names_; }
  absl::StatusOr<std::unique_ptr<VerbsDevice>> Open(absl::string_view device) override {
    return std::make_unique<FakeDevice>(network_, std::string(device));
  }

 private:
  FakeNetwork* const network_;
  const std::vector<std::string> names_;
};

}  // namespace hixld::rdma::testing
