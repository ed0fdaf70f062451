#include "transports/rdma/connect.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

constexpr uint32_t kMax24Bits = (1U << 24) - 1;
constexpr uint8_t kHopLimit = 64;
constexpr uint8_t kRnrTimer = 12;  // 0.64 ms; no receives are used, so it never counts

absl::Status Modify(VerbsQueuePair& queue_pair, ibv_qp_attr* attributes, int mask, const char* to) {
  const int error = queue_pair.Modify(attributes, mask);
  if (error == 0) return absl::OkStatus();
  return ErrnoError(error, absl::StrCat("move queue pair ", queue_pair.number(), " to ", to));
}

}  // namespace

hixl::wire::v1::RdmaQueuePair Describe(const LaneEnd& end, uint32_t number, uint32_t sequence,
                                       uint32_t read_depth) {
  hixl::wire::v1::RdmaQueuePair message;
  message.set_number(number);
  message.set_sequence(sequence);
  message.set_gid(end.gid.gid.data(), end.gid.gid.size());
  message.set_lid(end.lid);
  message.set_mtu(end.mtu);
  message.set_read_depth(read_depth);
  return message;
}

absl::StatusOr<PeerEnd> ParsePeerEnd(const hixl::wire::v1::RdmaQueuePair& message) {
  PeerEnd peer;
  if (message.number() > kMax24Bits || message.number() == 0) {
    return ParamInvalid(absl::StrCat("the peer's queue pair number ", message.number()),
                        {.allowed = "1..16777215"});
  }
  if (message.sequence() > kMax24Bits) {
    return ParamInvalid(absl::StrCat("the peer's packet number ", message.sequence()),
                        {.allowed = "0..16777215"});
  }
  if (message.gid().size() != peer.gid.size()) {
    return ParamInvalid(
        absl::StrCat("the peer's GID has ", message.gid().size(), " bytes, not 16"));
  }
  memcpy(peer.gid.data(), message.gid().data(), peer.gid.size());
  if (IsUnusable(peer.gid)) {
    return ParamInvalid(absl::StrCat("the peer's GID ", GidText(peer.gid), " is no address"));
  }
  if (!IsMtu(message.mtu())) {
    return ParamInvalid(absl::StrCat("the peer's MTU ", message.mtu()),
                        {.allowed = "256, 512, 1024, 2048, 4096"});
  }
  peer.number = message.number();
  peer.sequence = message.sequence();
  peer.lid = static_cast<uint16_t>(message.lid());
  peer.mtu = message.mtu();
  peer.read_depth = std::clamp<uint32_t>(message.read_depth(), 1, 255);
  return peer;
}

uint32_t RandomSequence() {
  static thread_local std::mt19937 generator{std::random_device{}()};
  return static_cast<uint32_t>(generator()) & kMax24Bits;
}

absl::Status ToInit(VerbsQueuePair& queue_pair, const LaneEnd& end, int remote_access) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = end.port;
  attributes.qp_access_flags = static_cast<unsigned int>(remote_access);
  return Modify(queue_pair, &attributes,
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

absl::Status ToReadyToReceive(VerbsQueuePair& queue_pair, const LaneEnd& end, const PeerEnd& peer,
                              const RdmaClass& treatment, uint32_t read_depth) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = MtuEnum(std::min(end.mtu, peer.mtu));
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.sequence;
  attributes.max_dest_rd_atomic = static_cast<uint8_t>(std::min<uint32_t>(read_depth, 255));
  attributes.min_rnr_timer = kRnrTimer;
  attributes.ah_attr.port_num = end.port;
  attributes.ah_attr.sl = treatment.service_level;
  attributes.ah_attr.dlid = peer.lid;
  // Ethernet always needs the global header; InfiniBand takes it too, and across subnets must.
  attributes.ah_attr.is_global = 1;
  memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(end.gid.index);
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  attributes.ah_attr.grh.traffic_class = treatment.traffic_class;
  return Modify(queue_pair, &attributes,
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                absl::StrCat("RTR towards ", GidText(peer.gid)).c_str());
}

absl::Status ToReadyToSend(VerbsQueuePair& queue_pair, const RdmaOptions& options,
                           uint32_t sequence, uint32_t read_depth) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = sequence;
  attributes.timeout = options.ack_timeout;
  attributes.retry_cnt = options.retry_count;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = static_cast<uint8_t>(std::min<uint32_t>(read_depth, 255));
  return Modify(queue_pair, &attributes,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "RTS");
}

}  // namespace hixld::rdma
