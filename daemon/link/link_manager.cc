#include "daemon/link/link_manager.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/link/accepted_peer.h"
#include "daemon/link/dial_attempt.h"
#include "daemon/link/incoming_link.h"
#include "daemon/link/listener.h"
#include "daemon/link/outgoing_link.h"
#include "daemon/telemetry/log.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "proto/base/text_code.h"

namespace hixld {
namespace {

using hixl::wire::v1::PeerMessage;
using hixl::wire::v1::Welcome;

// Connections that are proving themselves at a time.
constexpr size_t kMaxProving = 256;
// Addresses whose node is remembered.
constexpr size_t kMaxKnownAddresses = 4096;
// What a peer may ask for as keep-alive.
constexpr uint32_t kMinKeepAliveMs = 10;
constexpr uint32_t kMaxKeepAliveMs = 3'600'000;

// One OpenChannel call.
struct OpenCall {
  std::shared_ptr<LinkManager::ChannelRequest> request;
  LinkManager::ChannelDone done;
  std::string address;
  Loop::TimerId timer = 0;
  bool dialed = false;
  bool answered = false;
};
using OpenCallRef = std::shared_ptr<OpenCall>;

// Somebody who only wants to know whether `old_node` still lives at an address.
struct Probe {
  std::string old_node;
  OutgoingLink::ProbeDone done;
};

// One dial in progress, and who waits for it.
struct Attempt {
  std::shared_ptr<DialAttempt> dial;
  std::string node;  // once it is known
  std::vector<OpenCallRef> calls;
  std::vector<Probe> probes;
  // In the background: goes on without callers, for at most the handshake's time.
  bool background = false;
};
using AttemptRef = std::shared_ptr<Attempt>;

absl::Status CheckWelcome(const Welcome& welcome) {
  const auto sane = [](uint32_t ms) { return ms >= kMinKeepAliveMs && ms <= kMaxKeepAliveMs; };
  const auto data = ParseEndpoint(welcome.data_endpoint());
  const bool good_data = welcome.data_endpoint().empty() || (data.ok() && data->listens());
  if (welcome.lane_secret().size() == kLaneSecretBytes && good_data &&
      sane(welcome.keepalive_interval_ms()) && sane(welcome.keepalive_timeout_ms())) {
    return absl::OkStatus();
  }
  return ParamInvalid("the peer's Welcome has impossible values", {.object = "Welcome"});
}

InitiatorStack::Peer PeerOf(const Endpoint& endpoint, const Welcome& welcome) {
  return {.address = endpoint,
          .lanes_to = welcome.data_endpoint().empty()
                          ? endpoint
                          : ParseEndpoint(welcome.data_endpoint()).value(),
          .identity = {.link_id = welcome.link_id(), .secret = welcome.lane_secret()},
          .served = {welcome.transports().begin(), welcome.transports().end()}};
}

// How a link's transports talk to their other ends.
NamedPath::Send SenderOn(const std::shared_ptr<ControlConnection>& connection) {
  return [connection](const std::string& transport, std::string payload) {
    PeerMessage message;
    message.mutable_transport_control()->set_transport(transport);
    message.mutable_transport_control()->set_payload(std::move(payload));
    connection->Send(message);
  };
}

}  // namespace

// Everything below runs on the control loop, except where a comment says otherwise.
class LinkCore : public std::enable_shared_from_this<LinkCore> {
 public:
  LinkCore(Loop* loop, Transports transports, ChannelHost* host, LinkOptions options)
      : loop_(loop),
        transports_(std::move(transports)),
        host_(host),
        options_(std::move(options)) {}

  void Start() {
    greeter_ = std::make_shared<Greeter>(
        loop_, Greeter::Options{.silence_ns = options_.handshake_timeout_ns, .max_silent = 256},
        [this](UniqueFd socket) { transports_.tcp->AcceptLane(std::move(socket)); },
        [this](UniqueFd socket) { OnControlSocket(std::move(socket)); });
  }

  void OpenChannel(LinkManager::ChannelRequest request, LinkManager::ChannelDone done);
  // Any thread.
  absl::StatusOr<std::unique_ptr<EngineListener>> Listen(const Endpoint& endpoint);
  std::vector<LinkDescription> List() const;
  void Shutdown(absl::AnyInvocable<void()> done);
  Loop* loop() const { return loop_; }

 private:
  // Channels.
  void Try(const OpenCallRef& call);
  void UseLink(const OpenCallRef& call, const std::shared_ptr<OutgoingLink>& link, bool cached);
  void Answer(const OpenCallRef& call, absl::StatusOr<std::shared_ptr<RemoteChannel>> result);
  std::shared_ptr<OutgoingLink> LinkTo(const std::string& node) const;
  void Remember(const std::string& address, const std::string& node);

  // Links that this daemon makes.
  void Dial(const OpenCallRef& call);
  AttemptRef AttemptAt(const std::string& address, const Endpoint& endpoint);
  bool OnPeer(const std::string& address, const std::string& node);
  void OnWelcome(const std::string& address, std::shared_ptr<ControlConnection> connection,
                 const Welcome& welcome);
  absl::StatusOr<std::unique_ptr<InitiatorStack>> StackFor(
      const Endpoint& endpoint, const Welcome& welcome,
      const std::shared_ptr<ControlConnection>& connection);
  void OnDialFailed(const std::string& address, const absl::Status& status, bool refused);
  AttemptRef TakeAttempt(const std::string& address);
  void DropIfUnwanted(const std::string& address);
  void RunInBackground(const std::string& address, const AttemptRef& attempt);
  void OnLost(const std::shared_ptr<OutgoingLink>& link);
  void ProbePeer(const Endpoint& endpoint, const std::string& node, OutgoingLink::ProbeDone done);
  void ReconnectLater(std::weak_ptr<OutgoingLink> link, const Endpoint& endpoint, int64_t delay_ns);

  // Links that other daemons make.
  void OnControlSocket(UniqueFd socket);
  void Admit(const std::string& node, const std::shared_ptr<ControlConnection>& connection);
  void WelcomePeer(const std::string& node, const std::shared_ptr<ControlConnection>& connection);
  absl::StatusOr<std::unique_ptr<EngineListener>> ListenAt(const Endpoint& endpoint);
  absl::Status ListenForData();

  Loop* const loop_;
  const Transports transports_;
  ChannelHost* const host_;
  const LinkOptions options_;
  std::shared_ptr<Greeter> greeter_;

  std::map<std::string, std::shared_ptr<OutgoingLink>> outgoing_;  // by node
  std::map<std::string, std::string> node_at_;                     // by address
  std::map<std::string, AttemptRef> attempts_;                     // by address
  std::map<std::string, std::string> proving_;  // node -> address of the attempt that makes it

  std::map<std::string, std::shared_ptr<IncomingLink>> incoming_;  // by node
  std::set<std::shared_ptr<AcceptedPeer>> accepted_;
  // Where lanes come in, when that is not where engines listen.
  Mutex data_mutex_;
  std::unique_ptr<EngineListener> data_listener_ ABSL_GUARDED_BY(data_mutex_);
  std::string data_endpoint_ ABSL_GUARDED_BY(data_mutex_);
  uint64_t next_link_id_ = 1;
  bool stopping_ = false;
};

void LinkCore::OpenChannel(LinkManager::ChannelRequest request, LinkManager::ChannelDone done) {
  auto call = std::make_shared<OpenCall>();
  call->request = std::make_shared<LinkManager::ChannelRequest>(std::move(request));
  call->done = std::move(done);
  call->address = call->request->endpoint.ToString();
  if (stopping_) return Answer(call, Failed("the daemon is stopping"));
  call->timer = loop_->AddTimer(call->request->deadline_ns, [weak = weak_from_this(), call] {
    auto self = weak.lock();
    if (self == nullptr) return;
    self->Answer(call, Timeout(absl::StrCat("engine ", call->request->target_engine,
                                            " did not answer in time"),
                               {.object = absl::StrCat("engine ", call->request->target_engine),
                                .text_code = kConnectTimedOut}));
    self->DropIfUnwanted(call->address);
  });
  Try(call);
}

void LinkCore::Try(const OpenCallRef& call) {
  const auto known = node_at_.find(call->address);
  const auto link = known == node_at_.end() ? nullptr : LinkTo(known->second);
  if (link == nullptr) return Dial(call);
  UseLink(call, link, /*cached=*/true);
}

std::shared_ptr<OutgoingLink> LinkCore::LinkTo(const std::string& node) const {
  const auto found = outgoing_.find(node);
  return found != outgoing_.end() && found->second->up() ? found->second : nullptr;
}

void LinkCore::UseLink(const OpenCallRef& call, const std::shared_ptr<OutgoingLink>& link,
                       bool cached) {
  if (call->answered) return;
  link->OpenChannel(call->request, [weak = weak_from_this(), call,
                                    cached](absl::StatusOr<std::shared_ptr<RemoteChannel>> result) {
    auto self = weak.lock();
    if (self == nullptr) return;
    if (result.ok() || ApiCodeOf(result.status()) == ApiCode::kTimeout) {
      return self->Answer(call, std::move(result));
    }
    // The engine may have moved to another daemon, or the link is gone: who listens at the
    // address now is asked once more.
    const bool lost = result.status().code() == absl::StatusCode::kUnavailable;
    if ((cached || lost) && !call->dialed) {
      self->node_at_.erase(call->address);
      return self->Dial(call);
    }
    if (lost) return self->Answer(call, Failed(result.status().message()));
    self->Answer(call, std::move(result));
  });
}

void LinkCore::Answer(const OpenCallRef& call,
                      absl::StatusOr<std::shared_ptr<RemoteChannel>> result) {
  if (call->answered) {
    if (result.ok()) (*result)->Close();
    return;
  }
  call->answered = true;
  loop_->CancelTimer(call->timer);
  std::exchange(call->done, nullptr)(std::move(result));
}

void LinkCore::Remember(const std::string& address, const std::string& node) {
  if (node_at_.size() >= kMaxKnownAddresses && node_at_.count(address) == 0) {
    node_at_.erase(node_at_.begin());
  }
  node_at_[address] = node;
}

void LinkCore::Dial(const OpenCallRef& call) {
  if (call->answered) return;
  call->dialed = true;
  // Starting may fail at once, and then answers this call too.
  const bool fresh = attempts_.count(call->address) == 0;
  const AttemptRef attempt = AttemptAt(call->address, call->request->endpoint);
  attempt->calls.push_back(call);
  if (fresh) attempt->dial->Start();
}

AttemptRef LinkCore::AttemptAt(const std::string& address, const Endpoint& endpoint) {
  AttemptRef& attempt = attempts_[address];
  if (attempt != nullptr) return attempt;
  attempt = std::make_shared<Attempt>();
  const std::weak_ptr<LinkCore> weak = weak_from_this();
  attempt->dial = std::make_shared<DialAttempt>(
      loop_, &options_.identity, endpoint,
      DialAttempt::Handler{.on_peer =
                               [weak, address](const std::string& node) {
                                 auto self = weak.lock();
                                 return self != nullptr && self->OnPeer(address, node);
                               },
                           .on_welcome =
                               [weak, address](std::shared_ptr<ControlConnection> connection,
                                               const Welcome& welcome) {
                                 if (auto self = weak.lock()) {
                                   self->OnWelcome(address, std::move(connection), welcome);
                                 }
                               },
                           .on_failed =
                               [weak, address](const absl::Status& status, bool refused) {
                                 if (auto self = weak.lock())
                                   self->OnDialFailed(address, status, refused);
                               }});
  return attempt;
}

AttemptRef LinkCore::TakeAttempt(const std::string& address) {
  const auto found = attempts_.find(address);
  if (found == attempts_.end()) return std::make_shared<Attempt>();
  AttemptRef attempt = std::move(found->second);
  attempts_.erase(found);
  const auto proving = proving_.find(attempt->node);
  if (proving != proving_.end() && proving->second == address) proving_.erase(proving);
  return attempt;
}

bool LinkCore::OnPeer(const std::string& address, const std::string& node) {
  const AttemptRef attempt = attempts_[address];
  for (auto& probe : attempt->probes) {
    if (probe.done && probe.old_node != node) {
      std::exchange(probe.done, nullptr)(OutgoingLink::ProbeResult::kGone);
    }
  }
  if (node == options_.identity.node_id) {
    OnDialFailed(address,
                 Failed(absl::StrCat("address ", address,
                                     " is this very daemon's, but no engine "
                                     "of it is called so"),
                        {.object = absl::StrCat("engine ", address)}),
                 false);
    return false;
  }
  Remember(address, node);
  if (const auto link = LinkTo(node)) {
    // Another engine of a node that there is a link with already.
    TakeAttempt(address);
    for (const auto& call : attempt->calls) UseLink(call, link, /*cached=*/false);
    return false;
  }
  const auto proving = proving_.find(node);
  if (proving != proving_.end()) {
    // Two engines of one node were dialled at the same time: one link serves both.
    TakeAttempt(address);
    const AttemptRef& other = attempts_[proving->second];
    for (auto& call : attempt->calls) other->calls.push_back(std::move(call));
    for (auto& probe : attempt->probes) other->probes.push_back(std::move(probe));
    return false;
  }
  if (outgoing_.size() >= options_.max_links) {
    OnDialFailed(address,
                 ResourceExhausted(absl::StrCat("this node has ", outgoing_.size(),
                                                " links to other nodes (limits.max_links)"),
                                   {.object = absl::StrCat("address ", address),
                                    .limit = absl::StrCat(options_.max_links, " links"),
                                    .option = "limits.max_links"}),
                 false);
    return false;
  }
  attempt->node = node;
  proving_[node] = address;
  return true;
}

void LinkCore::OnWelcome(const std::string& address, std::shared_ptr<ControlConnection> connection,
                         const Welcome& welcome) {
  const Endpoint endpoint = attempts_[address]->dial->endpoint();
  auto stack = StackFor(endpoint, welcome, connection);
  if (!stack.ok()) {
    connection->Close();
    return OnDialFailed(address, stack.status(), false);
  }
  const AttemptRef attempt = TakeAttempt(address);
  OutgoingLink::Options options;
  options.keep_alive = {.interval_ns = welcome.keepalive_interval_ms() * kNanosPerMilli,
                        .timeout_ns = welcome.keepalive_timeout_ms() * kNanosPerMilli};
  options.idle_ns = options_.idle_ns;
  auto link = std::make_shared<OutgoingLink>(loop_, attempt->node, endpoint, std::move(connection),
                                             options);
  outgoing_[attempt->node] = link;
  const std::weak_ptr<LinkCore> weak = weak_from_this();
  const std::weak_ptr<OutgoingLink> weak_link = link;
  link->Start(
      *std::move(stack),
      [weak, weak_link](const absl::Status&) {
        auto self = weak.lock();
        auto lost = weak_link.lock();
        if (self != nullptr && lost != nullptr) self->OnLost(lost);
      },
      [weak, endpoint, node = attempt->node](OutgoingLink::ProbeDone done) {
        auto self = weak.lock();
        if (self == nullptr) return done(OutgoingLink::ProbeResult::kUnknown);
        self->ProbePeer(endpoint, node, std::move(done));
      });
  // The target welcomes a node only after it has closed the link before.
  for (auto& probe : attempt->probes) {
    if (probe.done) std::exchange(probe.done, nullptr)(OutgoingLink::ProbeResult::kGone);
  }
  for (const auto& call : attempt->calls) UseLink(call, link, /*cached=*/false);
}

absl::StatusOr<std::unique_ptr<InitiatorStack>> LinkCore::StackFor(
    const Endpoint& endpoint, const Welcome& welcome,
    const std::shared_ptr<ControlConnection>& connection) {
  HIXLD_RETURN_IF_ERROR(CheckWelcome(welcome));
  return InitiatorStack::Connect(transports_, PeerOf(endpoint, welcome), SenderOn(connection));
}

void LinkCore::OnDialFailed(const std::string& address, const absl::Status& status, bool refused) {
  const AttemptRef attempt = TakeAttempt(address);
  for (auto& probe : attempt->probes) {
    if (!probe.done) continue;
    std::exchange(probe.done, nullptr)(refused ? OutgoingLink::ProbeResult::kGone
                                               : OutgoingLink::ProbeResult::kUnknown);
  }
  for (const auto& call : attempt->calls) Answer(call, status);
}

void LinkCore::DropIfUnwanted(const std::string& address) {
  const auto found = attempts_.find(address);
  if (found == attempts_.end() || found->second->background) return;
  for (const auto& call : found->second->calls) {
    if (!call->answered) return;
  }
  TakeAttempt(address)->dial->Cancel();
}

void LinkCore::RunInBackground(const std::string& address, const AttemptRef& attempt) {
  if (std::exchange(attempt->background, true)) return;
  loop_->AddTimer(MonotonicNanos() + options_.handshake_timeout_ns,
                  [weak = weak_from_this(), address, weak_attempt = std::weak_ptr(attempt)] {
                    auto self = weak.lock();
                    auto attempt = weak_attempt.lock();
                    if (self == nullptr || attempt == nullptr) return;
                    const auto found = self->attempts_.find(address);
                    if (found == self->attempts_.end() || found->second != attempt) return;
                    attempt->background = false;
                    self->DropIfUnwanted(address);
                  });
}

void LinkCore::ProbePeer(const Endpoint& endpoint, const std::string& node,
                         OutgoingLink::ProbeDone done) {
  if (stopping_) return done(OutgoingLink::ProbeResult::kUnknown);
  const std::string address = endpoint.ToString();
  const bool fresh = attempts_.count(address) == 0;
  const AttemptRef attempt = AttemptAt(address, endpoint);
  attempt->probes.push_back({.old_node = node, .done = std::move(done)});
  RunInBackground(address, attempt);
  if (fresh) attempt->dial->Start();
}

void LinkCore::OnLost(const std::shared_ptr<OutgoingLink>& link) {
  const auto found = outgoing_.find(link->peer_node());
  if (found != outgoing_.end() && found->second == link) outgoing_.erase(found);
  if (!stopping_ && link->wanted()) {
    ReconnectLater(link, link->peer(), options_.reconnect_min_ns);
  }
}

void LinkCore::ReconnectLater(std::weak_ptr<OutgoingLink> link, const Endpoint& endpoint,
                              int64_t delay_ns) {
  loop_->AddTimer(MonotonicNanos() + delay_ns, [weak = weak_from_this(), link, endpoint, delay_ns] {
    auto self = weak.lock();
    auto lost = link.lock();
    // Channels of the lost link that still are held want it back.
    if (self == nullptr || lost == nullptr || !lost->wanted() || self->stopping_) return;
    const std::string address = endpoint.ToString();
    const auto known = self->node_at_.find(address);
    if (known != self->node_at_.end() && self->LinkTo(known->second) != nullptr) return;
    const bool fresh = self->attempts_.count(address) == 0;
    const AttemptRef attempt = self->AttemptAt(address, endpoint);
    self->RunInBackground(address, attempt);
    if (fresh) attempt->dial->Start();
    self->ReconnectLater(link, endpoint, std::min(delay_ns * 2, self->options_.reconnect_max_ns));
  });
}

void LinkCore::OnControlSocket(UniqueFd socket) {
  if (stopping_ || accepted_.size() >= kMaxProving) return;
  auto peer = std::make_shared<AcceptedPeer>(loop_, &options_.identity, std::move(socket));
  accepted_.insert(peer);
  const std::weak_ptr<LinkCore> weak = weak_from_this();
  const std::weak_ptr<AcceptedPeer> weak_peer = peer;
  peer->Start(
      options_.handshake_timeout_ns,
      [weak, weak_peer](const std::string& node, std::shared_ptr<ControlConnection> connection) {
        auto self = weak.lock();
        if (self == nullptr) return;
        self->accepted_.erase(weak_peer.lock());
        self->Admit(node, connection);
      },
      [weak, weak_peer] {
        if (auto self = weak.lock()) self->accepted_.erase(weak_peer.lock());
      });
}

void LinkCore::Admit(const std::string& node,
                     const std::shared_ptr<ControlConnection>& connection) {
  if (connection->closed()) return;
  if (stopping_) return connection->Close();
  const auto old = incoming_.find(node);
  if (old != incoming_.end()) {
    // Nothing of the old link may land once the initiator has been welcomed again.
    old->second->Close(absl::UnavailableError("replaced by a new link of the same node"),
                       [weak = weak_from_this(), node, connection] {
                         auto self = weak.lock();
                         if (self == nullptr) return;
                         self->loop_->Post([weak, node, connection] {
                           if (auto again = weak.lock()) again->Admit(node, connection);
                         });
                       });
    return;
  }
  if (incoming_.size() >= options_.max_links) {
    connection->Send(ErrorMessage(
        0, ResourceExhausted(absl::StrCat("the node has ", incoming_.size(),
                                          " links from other nodes (limits.max_links)"),
                             {.object = "link",
                              .limit = absl::StrCat(options_.max_links, " links"),
                              .option = "limits.max_links"})));
    return connection->CloseFlushed();
  }
  WelcomePeer(node, connection);
}

void LinkCore::WelcomePeer(const std::string& node,
                           const std::shared_ptr<ControlConnection>& connection) {
  auto link = std::make_shared<IncomingLink>(loop_, host_, node, connection, options_.keep_alive);
  incoming_[node] = link;
  const LaneIdentity identity = {.link_id = next_link_id_++,
                                 .secret = RandomBytes(kLaneSecretBytes)};
  link->Start(
      std::make_unique<TargetStack>(transports_, identity, link.get(), SenderOn(connection)),
      [weak = weak_from_this(), weak_link = std::weak_ptr<IncomingLink>(link)] {
        auto self = weak.lock();
        auto closed = weak_link.lock();
        if (self == nullptr || closed == nullptr) return;
        const auto found = self->incoming_.find(closed->peer_node());
        if (found != self->incoming_.end() && found->second == closed) {
          self->incoming_.erase(found);
        }
      });
  PeerMessage message;
  Welcome* welcome = message.mutable_welcome();
  welcome->set_link_id(identity.link_id);
  welcome->set_lane_secret(identity.secret);
  for (const std::string& name : transports_.Served()) welcome->add_transports(name);
  welcome->set_keepalive_interval_ms(
      static_cast<uint32_t>(options_.keep_alive.interval_ns / kNanosPerMilli));
  welcome->set_keepalive_timeout_ms(
      static_cast<uint32_t>(options_.keep_alive.timeout_ns / kNanosPerMilli));
  {
    MutexLock lock(&data_mutex_);
    welcome->set_data_endpoint(data_endpoint_);
  }
  connection->Send(message);
  LogInfo("peer link up", {{"peer", connection->peer().ToString()},
                           {"node", absl::BytesToHexString(node)},
                           {"direction", "in"},
                           {"transport", absl::StrJoin(transports_.Served(), ",")}});
}

absl::StatusOr<std::unique_ptr<EngineListener>> LinkCore::Listen(const Endpoint& endpoint) {
  HIXLD_RETURN_IF_ERROR(ListenForData());
  return ListenAt(endpoint);
}

absl::Status LinkCore::ListenForData() {
  if (options_.data_address.empty()) return absl::OkStatus();
  MutexLock lock(&data_mutex_);
  if (data_listener_ != nullptr) return absl::OkStatus();
  const bool ipv6 = absl::StrContains(options_.data_address, ':');
  const auto endpoint =
      ParseEndpoint(ipv6 ? absl::StrCat("[", options_.data_address, "]") : options_.data_address);
  if (!endpoint.ok()) return Annotate(endpoint.status(), "node.data_address");
  auto listener = ListenAt(*endpoint);
  if (!listener.ok()) return Annotate(listener.status(), "node.data_address");
  data_listener_ = std::move(*listener);
  data_endpoint_ = endpoint->WithPort(data_listener_->port()).ToString();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<EngineListener>> LinkCore::ListenAt(const Endpoint& endpoint) {
  HIXLD_RETURN_IF_ERROR(CheckNetworkAllowed(options_.identity, endpoint.loopback(),
                                            absl::StrCat("listening at ", endpoint.ToString())));
  return TcpListener::Start(loop_, endpoint, [weak = weak_from_this()](UniqueFd socket) {
    auto self = weak.lock();
    if (self != nullptr && !self->stopping_) self->greeter_->Add(std::move(socket));
  });
}

std::vector<LinkDescription> LinkCore::List() const {
  std::vector<LinkDescription> links;
  for (const auto& [node, link] : outgoing_) links.push_back(link->Describe());
  for (const auto& [address, attempt] : attempts_) {
    LinkDescription connecting;
    connecting.peer_node = absl::BytesToHexString(attempt->node);
    connecting.peer_address = address;
    connecting.state = "connecting";
    connecting.initiator = true;
    connecting.since_ns = connecting.last_heard_ns = MonotonicNanos();
    links.push_back(std::move(connecting));
  }
  for (const auto& [node, link] : incoming_) links.push_back(link->Describe());
  return links;
}

void LinkCore::Shutdown(absl::AnyInvocable<void()> done) {
  stopping_ = true;
  greeter_->Stop();
  {
    MutexLock lock(&data_mutex_);
    data_listener_.reset();
  }
  const auto accepted = std::exchange(accepted_, {});
  for (const auto& peer : accepted) peer->Cancel();
  const auto attempts = attempts_;
  for (const auto& [address, attempt] : attempts) {
    attempt->dial->Cancel();
    OnDialFailed(address, Failed("the daemon is stopping"), false);
  }
  const absl::Status stopping = absl::UnavailableError("the daemon is stopping");
  const auto outgoing = outgoing_;
  for (const auto& [node, link] : outgoing) link->Close(stopping);
  // Runs `done` when the last copy goes.
  std::shared_ptr<void> all(
      nullptr,
      [loop = loop_, done = std::make_shared<absl::AnyInvocable<void()>>(std::move(done))](void*) {
        // Later: the links' own callbacks are still on the stack.
        loop->Post([done] { (*done)(); });
      });
  const auto incoming = incoming_;
  for (const auto& [node, link] : incoming) link->Close(stopping, [all] {});
}

namespace {

class TcpLinkManagerImpl final : public TcpLinkManager {
 public:
  explicit TcpLinkManagerImpl(std::shared_ptr<LinkCore> core) : core_(std::move(core)) {
    core_->Start();
  }

  void OpenChannel(ChannelRequest request, ChannelDone done) override {
    core_->loop()->Post(
        [core = core_, request = std::move(request), done = std::move(done)]() mutable {
          core->OpenChannel(std::move(request), std::move(done));
        });
  }

  absl::StatusOr<std::unique_ptr<EngineListener>> Listen(const Endpoint& endpoint) override {
    return core_->Listen(endpoint);
  }

  void List(absl::AnyInvocable<void(std::vector<LinkDescription>)> done) override {
    core_->loop()->Post([core = core_, done = std::move(done)]() mutable { done(core->List()); });
  }

  void Shutdown(absl::AnyInvocable<void()> done) override {
    core_->loop()->Post(
        [core = core_, done = std::move(done)]() mutable { core->Shutdown(std::move(done)); });
  }

 private:
  const std::shared_ptr<LinkCore> core_;
};

}  // namespace

std::unique_ptr<TcpLinkManager> TcpLinkManager::Create(Loop* loop, Transports transports,
                                                       ChannelHost* host, LinkOptions options) {
  return std::make_unique<TcpLinkManagerImpl>(
      std::make_shared<LinkCore>(loop, std::move(transports), host, std::move(options)));
}

}  // namespace hixld
