// The target's end of one link: another daemon reaches our engines over it.
//
// Lives on the control loop; the resolver is called on the data workers. The control connection is
// closed only when no byte of the link can land any more, so that its end proves just that to the
// initiator.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "daemon/link/control_connection.h"
#include "daemon/link/link.h"
#include "daemon/link/messages.h"
#include "daemon/link/transport_stack.h"
#include "proto/wire/peer.pb.h"
#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld {

class IncomingLink : public TargetResolver, public std::enable_shared_from_this<IncomingLink> {
 public:
  // Channels of one link; more are RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxChannels = 65'536;

  IncomingLink(Loop* loop, ChannelHost* host, std::string peer_node,
               std::shared_ptr<ControlConnection> connection, KeepAlive keep_alive);
  ~IncomingLink() override;

  // Starts serving, with the transport's end made for this link. `on_closed` runs on the loop once
  // the link is closed and fenced.
  void Start(std::unique_ptr<TargetStack> target, absl::AnyInvocable<void()> on_closed);
  // Stops serving; `closed` runs on the loop when no byte can land any more and every channel has
  // been told. Idempotent.
  void Close(const absl::Status& reason, absl::AnyInvocable<void()> closed);

  const std::string& peer_node() const { return peer_node_; }
  LinkDescription Describe() const;

  // TargetResolver.
  absl::Status Resolve(uint64_t channel, uint64_t address, uint64_t length,
                       std::vector<Part>* parts) override;
  bool MayLand() const override;

 private:
  class Handle;
  using ChannelMap = std::unordered_map<uint64_t, std::shared_ptr<InboundChannel>>;

  void OnMessage(hixl::wire::v1::PeerMessage message);
  void OnPing(const hixl::wire::v1::Ping& ping);
  void OnOpenChannel(uint64_t request_id, const hixl::wire::v1::OpenChannel& open);
  void OnNotify(uint64_t request_id, hixl::wire::v1::Notify notify);
  void OnOpenRelay(uint64_t request_id, const hixl::wire::v1::OpenRelay& open);
  void OnCloseRelay(const hixl::wire::v1::CloseRelay& close);
  void OnListRegions(uint64_t request_id, const hixl::wire::v1::ListRegions& list);
  void TellRegionsGone(uint64_t channel);
  void CloseChannel(uint64_t channel);
  void Forget(uint64_t channel, const std::string& reason);
  void Fence(uint64_t channel, absl::AnyInvocable<void()> fenced);
  void CheckLease();
  void Closed();
  // Swaps the snapshot that the workers read.
  void Publish();

  Loop* const loop_;
  ChannelHost* const host_;
  const std::string peer_node_;
  const std::shared_ptr<ControlConnection> connection_;
  const KeepAlive keep_alive_;
  const int64_t started_ns_;
  std::unique_ptr<TargetStack> target_;

  uint64_t next_channel_ = 1;
  ChannelMap channels_;
  // Whose initiator believes that it knows the regions.
  std::unordered_set<uint64_t> listed_;
  std::shared_ptr<const ChannelMap> published_;  // std::atomic_load and atomic_store

  uint64_t pings_ = 0;
  int64_t pong_sent_ns_;  // of the last pong
  // Also read by the workers: a daemon that was frozen must not go on where it stopped.
  std::atomic<int64_t> lease_end_ns_;
  int64_t last_heard_ns_;

  bool closing_ = false;
  bool closed_ = false;
  absl::Status reason_;
  std::vector<absl::AnyInvocable<void()>> on_closed_;
};

}  // namespace hixld
