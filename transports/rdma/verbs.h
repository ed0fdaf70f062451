// The seam to libibverbs: thin objects with one owner each, so that the logic above runs in unit
// tests without a device. Types of <infiniband/verbs.h> are used as they are; functions are not.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hixld::rdma {

using Gid = std::array<uint8_t, 16>;

enum class GidType : uint8_t { kInfiniBand = 0, kRoceV1 = 1, kRoceV2 = 2 };

struct GidEntry {
  uint32_t index = 0;
  Gid gid = {};
  GidType type = GidType::kRoceV2;
  std::string interface = {};  // empty where there is none
  // Of the subnet that the address belongs to; 0 = unknown.
  uint32_t prefix_bits = 0;
};

struct PortInfo {
  uint8_t number = 1;
  bool active = false;
  std::string state;  // "ACTIVE", "DOWN", ...
  bool ethernet = true;
  uint32_t mtu = 1024;  // bytes, active
  uint32_t max_mtu = 4096;
  uint16_t lid = 0;
  std::vector<GidEntry> gids;
};

struct DeviceLimits {
  uint64_t max_mr_size = UINT64_MAX;
  uint32_t max_send_depth = 0;
  uint32_t max_completions = 0;
  uint32_t read_depth_out = 1;  // READs that one queue pair may have under way
  uint32_t read_depth_in = 1;   // READs that one queue pair serves at once
};

// One registration; gone with the object. Keys stop working before the destructor returns.
class VerbsRegion {
 public:
  virtual ~VerbsRegion() = default;
  virtual uint32_t local_key() const = 0;
  virtual uint32_t remote_key() const = 0;
};

class VerbsDomain {
 public:
  virtual ~VerbsDomain() = default;
  // `access` is a set of IBV_ACCESS_*. Errors carry errno's text; ENOMEM is RESOURCE_EXHAUSTED
  // and names RLIMIT_MEMLOCK where that is what is too small.
  virtual absl::StatusOr<std::unique_ptr<VerbsRegion>> Register(void* address, uint64_t length,
                                                                int access) = 0;
  // Part of a dma-buf; the card's address of its first byte is `address`.
  virtual absl::StatusOr<std::unique_ptr<VerbsRegion>> RegisterDmaBuf(int fd, uint64_t offset,
                                                                      uint64_t length,
                                                                      uint64_t address,
                                                                      int access) = 0;
};

class VerbsCompletions {
 public:
  virtual ~VerbsCompletions() = default;
  // Up to `count` completions; negative on a broken queue.
  virtual int Poll(int count, ibv_wc* out) = 0;
  // The next completion makes `fd` readable.
  virtual absl::Status Arm() = 0;
  virtual int fd() const = 0;
  // Takes what made `fd` readable. Never blocks.
  virtual void ConsumeEvents() = 0;
};

// A reliable connected queue pair. Its domain and completions must outlive it.
class VerbsQueuePair {
 public:
  virtual ~VerbsQueuePair() = default;
  virtual uint32_t number() const = 0;
  virtual uint32_t inline_bytes() const = 0;
  // 0 or an errno value.
  virtual int Modify(ibv_qp_attr* attributes, int mask) = 0;
  virtual int Post(ibv_send_wr* first, ibv_send_wr** bad) = 0;
};

struct AsyncEvent {
  enum class Kind : uint8_t {
    kPortActive,
    kPortDown,
    kDeviceGone,
    kQueuePairFailed,
    kAddressesChanged,
    kOther,
  };
  Kind kind = Kind::kOther;
  uint8_t port = 0;         // of kPort...
  uint32_t queue_pair = 0;  // of kQueuePairFailed
  std::string text;
};

class VerbsDevice {
 public:
  virtual ~VerbsDevice() = default;
  virtual const DeviceLimits& limits() const = 0;
  virtual absl::StatusOr<std::vector<PortInfo>> Ports() = 0;
  virtual absl::StatusOr<std::unique_ptr<VerbsDomain>> CreateDomain() = 0;
  virtual absl::StatusOr<std::unique_ptr<VerbsCompletions>> CreateCompletions(uint32_t depth) = 0;
  struct QueuePairRequest {
    VerbsDomain* domain = nullptr;
    VerbsCompletions* completions = nullptr;
    uint32_t send_depth = 1;
    // Wanted; less is given where the device cannot.
    uint32_t inline_bytes = 0;
  };
  virtual absl::StatusOr<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(
      const QueuePairRequest& request) = 0;
  virtual int event_fd() const = 0;
  // The next event, or nullopt when there is none. Never blocks.
  virtual std::optional<AsyncEvent> NextEvent() = 0;
};

class Verbs {
 public:
  virtual ~Verbs() = default;
  virtual absl::StatusOr<std::vector<std::string>> DeviceNames() = 0;
  virtual absl::StatusOr<std::unique_ptr<VerbsDevice>> Open(absl::string_view device) = 0;
};

// libibverbs.
std::unique_ptr<Verbs> SystemVerbs();

// "::ffff:10.0.0.1" or "fe80::1".
std::string GidText(const Gid& gid);

}  // namespace hixld::rdma
