#include "daemon/link/messages.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {

using hixl::wire::v1::PeerMessage;

PeerMessage ErrorMessage(uint64_t request_id, const absl::Status& status) {
  PeerMessage message;
  message.set_request_id(request_id);
  message.mutable_error()->set_detail(SerializeErrorDetail(status));
  message.mutable_error()->set_message(std::string(status.message()));
  return message;
}

absl::Status StatusOf(const hixl::wire::v1::Error& error) {
  return StatusFromErrorDetail(error.message(), error.detail(), absl::StatusCode::kInternal);
}

void ToProto(const EndpointSet& in, hixl::wire::v1::EndpointSet* out) {
  out->set_product(in.product);
  out->set_net_instance_id(in.net_instance);
  for (const std::string& endpoint : in.endpoints) out->add_endpoints(endpoint);
}

absl::StatusOr<EndpointSet> FromProto(const hixl::wire::v1::EndpointSet& in) {
  EndpointSet out = {.product = in.product(), .net_instance = in.net_instance_id()};
  bool possible = in.endpoints_size() <= kMaxPeerEndpoints && in.product().size() <= kMaxPeerText &&
                  in.net_instance_id().size() <= kMaxPeerText;
  for (const std::string& endpoint : in.endpoints()) {
    possible = possible && endpoint.size() <= kMaxPeerText;
    if (!possible) break;
    out.endpoints.push_back(endpoint);
  }
  if (possible) return out;
  return ParamInvalid(
      "the peer tells impossible endpoints of its engine",
      {.object = "endpoint list",
       .limit = absl::StrCat(kMaxPeerEndpoints, " endpoints, ", kMaxPeerText, " bytes each")});
}

void SendRegions(uint64_t request_id, uint64_t channel_id, const RegionSnapshot& regions,
                 const EndpointSet* opened, const std::function<void(const PeerMessage&)>& send) {
  const auto all = regions.regions();
  size_t at = 0;
  do {
    PeerMessage message;
    message.set_request_id(request_id);
    const size_t end = std::min(all.size(), at + kRegionsPerMessage);
    const auto fill = [&](auto* list) {
      list->set_channel_id(channel_id);
      list->set_more(end < all.size());
      for (; at < end; ++at) {
        auto* out = list->add_regions();
        out->set_address(all[at]->address);
        out->set_length(all[at]->length);
        out->set_type(all[at]->type == MemoryType::kDevice ? 1 : 2);
      }
    };
    if (opened != nullptr) {
      fill(message.mutable_channel_opened());
      message.mutable_channel_opened()->set_regions_version(regions.version());
      if (!opened->empty()) {
        ToProto(*opened, message.mutable_channel_opened()->mutable_endpoints());
      }
    } else {
      fill(message.mutable_region_list());
      message.mutable_region_list()->set_version(regions.version());
    }
    opened = nullptr;
    send(message);
  } while (at < all.size());
}

absl::Status RegionListReader::Add(
    const google::protobuf::RepeatedPtrField<hixl::wire::v1::Region>& regions) {
  for (const auto& in : regions) {
    if (in.address() == 0 || in.length() == 0 || in.address() + in.length() < in.address() ||
        in.type() < 1 || in.type() > 2 || regions_.size() >= kMaxPeerRegions) {
      return ParamInvalid(
          absl::StrCat("the peer lists the impossible region ",
                       DescribeRange(in.address(), in.length()), " of type ", in.type()),
          {.object = "region list"});
    }
    auto region = std::make_shared<Region>();
    region->id = regions_.size() + 1;
    region->address = in.address();
    region->length = in.length();
    region->type = in.type() == 1 ? MemoryType::kDevice : MemoryType::kHost;
    regions_.push_back(std::move(region));
  }
  return absl::OkStatus();
}

std::shared_ptr<const RegionSnapshot> RegionListReader::Take(uint64_t version) {
  return std::make_shared<const RegionSnapshot>(std::exchange(regions_, {}), version);
}

}  // namespace hixld
