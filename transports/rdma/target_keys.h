// The keys that a target has given to the other end of one link.
//
// Each channel has registrations of its own, so that taking one channel's keys away does not
// disturb another's; and each link has protection domains of its own, so that a key is of no use
// to any other peer. Ending a registration is the fence: after it no byte lands.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/mutex.h"
#include "proto/wire/rdma.pb.h"
#include "transports/rdma/registration.h"
#include "transports/rdma/verbs.h"
#include "transports/transport.h"

namespace hixld::rdma {

class TargetKeys {
 public:
  // The link's protection domain on a device; nullptr for a device that has no lane of the link.
  using DomainOf = std::function<std::shared_ptr<VerbsDomain>(uint32_t device)>;

  TargetKeys(TargetResolver* resolver, DomainOf domain_of,
             std::shared_ptr<RegistrationCounters> counters, uint64_t piece_bytes);

  // Registers what is not yet registered and hands the answer to `send`, before any later
  // revocation is announced. Blocks as long as registering takes.
  void Answer(const hixl::wire::v1::RdmaKeyRequest& request,
              const std::function<void(const hixl::wire::v1::RdmaKeyReply&)>& send);

  // Ends the registrations of this channel that the resolver does not grant any more. When it
  // returns, no byte can land there. Returns whether there were any.
  bool Fence(uint64_t channel);
  // Ends all of them and gives no more.
  void Close();

 private:
  struct Grant {
    uint64_t address = 0;  // in the engine's process
    uint64_t length = 0;
    MemoryRef memory;
    std::shared_ptr<const void> pin;
    uint64_t remote_address = 0;
    // Freed before the domain and the memory.
    std::shared_ptr<VerbsDomain> domain;
    std::unique_ptr<VerbsRegion> region;
  };
  using GrantKey = std::pair<uint32_t, uint64_t>;  // device, address
  struct Channel {
    // Rises with every fence: a registration that was begun before one does not count.
    uint64_t epoch = 0;
    uint32_t users = 0;  // answers being made
    std::map<GrantKey, Grant> grants;
  };

  absl::Status Collect(const hixl::wire::v1::RdmaKeyRequest& request,
                       hixl::wire::v1::RdmaKeyReply* reply);
  absl::Status AddRange(const hixl::wire::v1::RdmaKeyRequest& request, uint64_t address,
                        uint64_t length, hixl::wire::v1::RdmaKeyReply* reply);
  absl::Status AddPart(const hixl::wire::v1::RdmaKeyRequest& request,
                       const TargetResolver::Part& part, uint64_t address, uint64_t epoch,
                       hixl::wire::v1::RdmaKeyReply* reply);
  absl::StatusOr<Grant> Make(uint32_t device, const TargetResolver::Part& part, uint64_t address,
                             uint64_t length, uint64_t region_offset) const;
  bool StillGranted(uint64_t channel, const Grant& grant) const;
  uint64_t EpochOf(uint64_t channel);
  void Release(uint64_t channel);

  TargetResolver* const resolver_;
  const DomainOf domain_of_;
  const std::shared_ptr<RegistrationCounters> counters_;
  const uint64_t piece_bytes_;
  mutable Mutex mutex_;
  std::map<uint64_t, Channel> channels_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hixld::rdma
