// The initiator's end of one link: channels to the engines of another daemon, and the transfers on
// them. Lives on the control loop; the channels' calls are thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/link/control_connection.h"
#include "daemon/link/dialer.h"
#include "daemon/link/link.h"
#include "daemon/link/messages.h"
#include "daemon/link/transport_stack.h"
#include "proto/base/endpoint.h"
#include "proto/base/mutex.h"
#include "proto/wire/peer.pb.h"
#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld {

class OutgoingLink : public std::enable_shared_from_this<OutgoingLink> {
 public:
  struct Options {
    KeepAlive keep_alive;  // as the target's Welcome says
    // A link without channels is closed after this long.
    int64_t idle_ns = 60 * kNanosPerSecond;
  };
  // Requests that wait for an answer, at most: what they say fits into the connection's queue.
  static constexpr size_t kMaxRequests = 8192;
  // What a new connection to the peer's address shows about the old process.
  enum class ProbeResult : uint8_t {
    kGone,     // nobody listens, or another process does
    kUnknown,  // no answer
  };
  using ProbeDone = absl::AnyInvocable<void(ProbeResult)>;

  OutgoingLink(Loop* loop, std::string peer_node, const Endpoint& peer,
               std::shared_ptr<ControlConnection> connection, Options options);
  // On any thread: the last job may hold the last reference.
  ~OutgoingLink();

  // Starts keep-alive. `on_lost` runs on the loop once the link takes no more channels; `probe` is
  // asked when the connection was reset, and must answer.
  void Start(std::unique_ptr<InitiatorStack> initiator,
             absl::AnyInvocable<void(const absl::Status&)> on_lost,
             absl::AnyInvocable<void(ProbeDone)> probe);

  // On the loop. `done` runs at most at request.deadline_ns, with TIMEOUT then; with UNAVAILABLE
  // (absl::StatusCode::kUnavailable) when the link is lost meanwhile.
  void OpenChannel(std::shared_ptr<LinkManager::ChannelRequest> request,
                   LinkManager::ChannelDone done);
  // Ends the link in good order; transfers end with `reason`.
  void Close(const absl::Status& reason);

  bool up() const { return !lost_; }
  const std::string& peer_node() const { return peer_node_; }
  const Endpoint& peer() const { return peer_; }
  LinkDescription Describe() const;
  // Whether anybody still holds a channel of this link, open or broken.
  bool wanted() const { return held_.load(std::memory_order_relaxed) > 0; }

 private:
  class RemoteChannelImpl;

  // A request that waits for its answer.
  struct Request {
    Loop::TimerId timer = 0;
    RegionListReader regions;
    uint64_t channel = 0;   // or the relay's id
    EndpointSet endpoints;  // of the target engine
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<const RegionSnapshot>>, Request&)> done;
  };

  // Why no request can be sent now: the link is lost, or too many wait for answers.
  absl::Status RoomForRequest() const;
  // Where the transfers of a channel that was asked for like this go.
  TransferSink* SinkFor(const LinkManager::ChannelRequest& request);
  uint64_t AddRequest(int64_t deadline_ns, const std::string& what, Request request);
  void Answer(uint64_t id, absl::StatusOr<std::shared_ptr<const RegionSnapshot>> result);
  void OnMessage(hixl::wire::v1::PeerMessage message);
  void OnChannelOpened(uint64_t request_id, const hixl::wire::v1::ChannelOpened& opened);
  void OnRegionList(uint64_t request_id, const hixl::wire::v1::RegionList& list);
  void OnChannelClosed(const hixl::wire::v1::ChannelClosed& closed);
  void OnPong(const hixl::wire::v1::Pong& pong);
  void OnEnd(const absl::Status& status, ConnectionEnd end);
  void SendPing();
  void CheckSilence();
  void CheckIdle();
  void CloseChannel(uint64_t channel);
  void OnRelayOpened(uint64_t request_id, const hixl::wire::v1::RelayOpened& opened);
  void OpenRelay(uint64_t channel, const std::vector<AddressRange>& ranges, int64_t deadline_ns,
                 absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done);
  void CloseRelay(uint64_t channel, uint64_t relay);
  void Notify(uint64_t channel, std::string name, std::string text, int64_t deadline_ns,
              absl::AnyInvocable<void(absl::Status)> done);
  void Refresh(
      uint64_t channel, int64_t deadline_ns,
      absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<const RegionSnapshot>>)> done);
  // The link takes no more work: requests fail, channels break.
  void Lose(const absl::Status& status);
  // Ends the transfers; what might still land at the target has ended by `fenced_at_ns`.
  void EndTransfers(int64_t fenced_at_ns);
  // When the target has dropped the link at the latest.
  int64_t LeaseEnd() const {
    return last_pong_ns_ + options_.keep_alive.timeout_ns + options_.keep_alive.interval_ns;
  }

  Loop* const loop_;
  const std::string peer_node_;
  const Endpoint peer_;
  const std::shared_ptr<ControlConnection> connection_;
  const Options options_;
  const int64_t started_ns_;
  std::unique_ptr<InitiatorStack> initiator_;
  absl::AnyInvocable<void(const absl::Status&)> on_lost_;
  absl::AnyInvocable<void(ProbeDone)> probe_;

  uint64_t next_request_ = 1;
  std::map<uint64_t, Request> requests_;
  std::map<uint64_t, std::weak_ptr<RemoteChannelImpl>> channels_;
  std::atomic<uint64_t> held_{0};

  uint64_t pings_ = 0;
  int64_t ping_sent_ns_ = 0;
  int64_t last_pong_ns_;   // when what proves the target's lease was last heard
  int64_t last_heard_ns_;  // when anything was
  int64_t check_at_ns_;    // when CheckSilence was to look
  int64_t idle_since_ns_;

  bool lost_ = false;
  bool ended_ = false;
  absl::Status reason_;
};

}  // namespace hixld
