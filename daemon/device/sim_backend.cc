#include "daemon/device/sim_backend.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/memory/executor.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// Device addresses: beyond what any CPU maps, so that using one as a pointer fails at once, and a
// range per device.
constexpr uint64_t kAddressBase = uint64_t{1} << 60;
constexpr uint64_t kAddressStride = uint64_t{1} << 48;

// What the engine copies before another stream has its turn.
constexpr uint64_t kEngineStepBytes = 1 << 20;

// How late a step of a throttled engine may begin and still count as following the one before.
constexpr int64_t kLateNs = 2 * kNanosPerMilli;

// The copy engine: streams are ordered queues, served in turn by one thread per device.
class CopyEngine {
 public:
  struct Part {
    std::byte* target = nullptr;
    const std::byte* source = nullptr;
    uint64_t length = 0;
  };

  CopyEngine(int32_t device_id, uint64_t bandwidth)
      : bandwidth_(bandwidth),
        executor_({.name = absl::StrCat("hixld-sim", device_id),
                   .threads = 1,
                   .stuck_after_ns = 0,
                   .max_queued_option = ""}) {}

  // `keep` lives until the copy has ended.
  void Enqueue(uint64_t stream, std::vector<Part> parts, std::shared_ptr<const void> keep,
               MemoryAccess::Done done) {
    auto copy = std::make_shared<Copy>();
    copy->parts = std::move(parts);
    copy->keep = std::move(keep);
    copy->done = std::move(done);
    absl::Status queued =
        executor_.Submit(stream, "sim copy", [this, copy] { return Step(*copy); });
    if (!queued.ok()) copy->done(std::move(queued));
  }

 private:
  struct Copy {
    std::vector<Part> parts;
    size_t next = 0;
    uint64_t offset = 0;
    std::shared_ptr<const void> keep;
    MemoryAccess::Done done;
  };

  // Copies one piece; returns whether there is more.
  bool Step(Copy& copy) {
    const int64_t began_ns = MonotonicNanos();
    uint64_t budget = kEngineStepBytes;
    while (copy.next < copy.parts.size() && budget > 0) {
      const Part& part = copy.parts[copy.next];
      const uint64_t length = std::min(part.length - copy.offset, budget);
      memcpy(part.target + copy.offset, part.source + copy.offset, length);
      budget -= length;
      copy.offset += length;
      if (copy.offset < part.length) break;
      copy.offset = 0;
      ++copy.next;
    }
    Throttle(began_ns, kEngineStepBytes - budget);
    if (copy.next < copy.parts.size()) return true;
    copy.keep.reset();
    copy.done(absl::OkStatus());
    return false;
  }

  // Waits until a device of this bandwidth would have copied what was begun at `began_ns`. Engine's
  // thread only.
  void Throttle(int64_t began_ns, uint64_t bytes) {
    if (bandwidth_ == 0) return;
    const double nanos = static_cast<double>(bytes) * kNanosPerSecond / bandwidth_;
    // A sleep that ended late is made up for by the next step; idle time is not.
    if (free_at_ns_ < began_ns - kLateNs) free_at_ns_ = began_ns;
    free_at_ns_ += static_cast<int64_t>(nanos);
    const int64_t now = MonotonicNanos();
    if (free_at_ns_ > now) std::this_thread::sleep_for(std::chrono::nanoseconds(free_at_ns_ - now));
  }

  const uint64_t bandwidth_;
  int64_t free_at_ns_ = 0;
  // Last, so that its thread has ended before the rest goes.
  Executor executor_;
};

struct SimDevice {
  int32_t id = 0;
  std::shared_ptr<ArenaPool> memory;
  std::unique_ptr<CopyEngine> engine;
};

class SimAccess : public MemoryAccess {
 public:
  SimAccess(std::shared_ptr<SimDevice> device, std::shared_ptr<const ArenaPool::Buffer> buffer)
      : MemoryAccess(Kind::kDevice, nullptr, buffer->length()),
        device_(std::move(device)),
        buffer_(std::move(buffer)),
        description_(absl::StrCat("sim device ", device_->id)) {}

  void Read(std::vector<Slice> slices, Done done) override {
    std::vector<CopyEngine::Part> parts;
    parts.reserve(slices.size());
    for (const Slice& slice : slices) {
      parts.push_back(
          {.target = slice.host, .source = data() + slice.offset, .length = slice.length});
    }
    device_->engine->Enqueue(stream(), std::move(parts), buffer_, std::move(done));
  }

  void Write(std::vector<Slice> slices, Done done) override {
    std::vector<CopyEngine::Part> parts;
    parts.reserve(slices.size());
    for (const Slice& slice : slices) {
      parts.push_back(
          {.target = data() + slice.offset, .source = slice.host, .length = slice.length});
    }
    device_->engine->Enqueue(stream(), std::move(parts), buffer_, std::move(done));
  }

  absl::string_view description() const override { return description_; }

  std::byte* data() const { return buffer_->data(); }
  uint64_t stream() const { return buffer_->arena()->owner; }
  const std::shared_ptr<SimDevice>& device() const { return device_; }
  const std::shared_ptr<const ArenaPool::Buffer>& buffer() const { return buffer_; }

 private:
  const std::shared_ptr<SimDevice> device_;
  const std::shared_ptr<const ArenaPool::Buffer> buffer_;
  const std::string description_;
};

class SimAllocation : public DeviceAllocation {
 public:
  SimAllocation(std::shared_ptr<SimDevice> device, std::shared_ptr<const ArenaPool::Buffer> buffer)
      : buffer_(buffer),
        access_(std::make_shared<SimAccess>(std::move(device), std::move(buffer))) {}

  uint64_t device_address() const override { return buffer_->address(); }
  uint64_t size() const override { return buffer_->length(); }
  std::shared_ptr<MemoryAccess> access() override { return access_; }
  std::shared_ptr<const Arena> arena() const override { return buffer_->arena(); }
  uint64_t arena_offset() const override { return buffer_->offset(); }
  absl::StatusOr<UniqueFd> ExportFd() const override {
    UniqueFd fd(fcntl(buffer_->arena()->fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!fd.valid()) return ErrnoError(errno, "duplicate the descriptor of a sim allocation");
    return fd;
  }

 private:
  const std::shared_ptr<const ArenaPool::Buffer> buffer_;
  const std::shared_ptr<SimAccess> access_;
};

class SimBackend : public DeviceBackend {
 public:
  explicit SimBackend(SimBackendOptions options) : options_(std::move(options)) {
    for (int32_t id = 0; id < options_.count; ++id) {
      auto device = std::make_shared<SimDevice>();
      device->id = id;
      device->memory = ArenaPool::Create({
          .name = absl::StrCat("sim:", id),
          .arena_bytes = std::min<uint64_t>(64 << 20, options_.memory_bytes),
          .max_bytes = options_.memory_bytes,
          .max_bytes_option = "devices.sim.memory_bytes",
          .base_address = kAddressBase + static_cast<uint64_t>(id) * kAddressStride,
          .arena_ids = options_.arena_ids,
      });
      device->engine = std::make_unique<CopyEngine>(id, options_.copy_bandwidth);
      devices_.push_back(std::move(device));
    }
  }

  absl::string_view name() const override { return "sim"; }

  std::vector<DeviceDescription> Devices() const override {
    std::vector<DeviceDescription> result;
    for (const auto& device : devices_) {
      result.push_back({.device_id = device->id,
                        .backend = "sim",
                        .product = options_.product,
                        .product_limits = options_.product_limits,
                        .memory_bytes = options_.memory_bytes,
                        .memory_used = device->memory->stats().used_bytes,
                        .capabilities = {.allocate = true,
                                         .copy_host_device = true,
                                         .copy_device_device = true,
                                         .export_shareable = true,
                                         .host_mappable = true,
                                         .place = options_.place}});
    }
    return result;
  }

  std::vector<const ArenaPool*> Pools() const override {
    std::vector<const ArenaPool*> pools;
    for (const auto& device : devices_) pools.push_back(device->memory.get());
    return pools;
  }

  absl::StatusOr<std::unique_ptr<DeviceAllocation>> Allocate(uint64_t owner, int32_t device_id,
                                                             uint64_t size,
                                                             uint64_t alignment) override {
    if (device_id < 0 || device_id >= options_.count) {
      return ParamInvalid(absl::StrCat("no sim device ", device_id),
                          {.object = absl::StrCat("device ", device_id),
                           .option = "devices.sim.count",
                           .allowed = absl::StrCat("0..", options_.count - 1)});
    }
    const std::shared_ptr<SimDevice>& device = devices_[device_id];
    HIXLD_ASSIGN_OR_RETURN(std::unique_ptr<ArenaPool::Buffer> buffer,
                           device->memory->Allocate(owner, size, alignment));
    return std::make_unique<SimAllocation>(
        device, std::shared_ptr<const ArenaPool::Buffer>(std::move(buffer)));
  }

  void CopyDeviceToDevice(MemoryAccess* source, uint64_t source_offset, MemoryAccess* target,
                          uint64_t target_offset, uint64_t length,
                          MemoryAccess::Done done) override {
    auto* from = dynamic_cast<SimAccess*>(source);
    auto* to = dynamic_cast<SimAccess*>(target);
    if (from == nullptr || to == nullptr) {
      return done(Unsupported("a copy between devices needs memory of the sim backend twice",
                              {.object = "backend sim"}));
    }
    // The source's engine pushes, as a peer copy on a real device does.
    using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
    from->device()->engine->Enqueue(from->stream(),
                                    {{.target = to->data() + target_offset,
                                      .source = from->data() + source_offset,
                                      .length = length}},
                                    std::make_shared<Both>(from->buffer(), to->buffer()),
                                    std::move(done));
  }

 private:
  const SimBackendOptions options_;
  std::vector<std::shared_ptr<SimDevice>> devices_;
};

}  // namespace

std::unique_ptr<DeviceBackend> CreateSimBackend(SimBackendOptions options) {
  return std::make_unique<SimBackend>(std::move(options));
}

}  // namespace hixld
