// PeerMessages that several places make or read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/link/link.h"
#include "daemon/memory/region.h"
#include "proto/wire/peer.pb.h"

namespace hixld {

// What both sides of a link keep to.
struct KeepAlive {
  int64_t interval_ns = 0;
  int64_t timeout_ns = 0;
};

// Regions of one message: far below the size of a frame.
constexpr size_t kRegionsPerMessage = 16'384;
// A peer that lists more is not believed.
constexpr size_t kMaxPeerRegions = 4'194'304;
constexpr int kMaxPeerEndpoints = 64;
constexpr size_t kMaxPeerText = 1024;

hixl::wire::v1::PeerMessage ErrorMessage(uint64_t request_id, const absl::Status& status);
// What a peer's Error says, with its code.
absl::Status StatusOf(const hixl::wire::v1::Error& error);

void ToProto(const EndpointSet& in, hixl::wire::v1::EndpointSet* out);
// PARAM_INVALID for sets that no engine has.
absl::StatusOr<EndpointSet> FromProto(const hixl::wire::v1::EndpointSet& in);

// Answers a request with a region list in as many messages as it takes; the first is a
// ChannelOpened with these endpoints when `opened` is not null.
void SendRegions(uint64_t request_id, uint64_t channel_id, const RegionSnapshot& regions,
                 const EndpointSet* opened,
                 const std::function<void(const hixl::wire::v1::PeerMessage&)>& send);

// A peer's regions as a snapshot without access. PARAM_INVALID for ranges that cannot be.
class RegionListReader {
 public:
  absl::Status Add(const google::protobuf::RepeatedPtrField<hixl::wire::v1::Region>& regions);
  std::shared_ptr<const RegionSnapshot> Take(uint64_t version);

 private:
  std::vector<std::shared_ptr<const Region>> regions_;
};

}  // namespace hixld
