#include "daemon/link/link_manager.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/daemon/link/raw_peer.h"
#include "tests/daemon/link/test_node.h"

namespace hixld {
namespace {

using Catch::Contains;
using hixl::wire::v1::PeerMessage;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Waits until something that other threads bring about is so.
template <typename Condition>
bool Eventually(Condition condition) {
  const int64_t deadline_ns = MonotonicNanos() + 20 * kNanosPerSecond;
  while (!condition()) {
    if (MonotonicNanos() > deadline_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

PeerMessage Hello() {
  PeerMessage message;
  message.mutable_hello()->set_version(1);
  message.mutable_hello()->set_node_id(RandomBytes(kNodeIdBytes));
  message.mutable_hello()->set_nonce(RandomBytes(kNonceBytes));
  return message;
}

TEST_CASE("a channel opens over a new link and lists the target's regions") {
  TestNode a, b;
  const std::string engine = b.AddEngine();
  b.engines().AddRegion(0x1000, 0x100);
  const auto channel = a.Open(engine).get();
  REQUIRE(channel.ok());
  CHECK((*channel)->open());
  CHECK((*channel)->Regions()->size() == 1);
  CHECK((*channel)->Regions()->Find(0x1000, 0x100) != nullptr);
  REQUIRE(a.tcp().initiators().size() == 1);
  REQUIRE(b.tcp().served().size() == 1);
  CHECK(a.tcp().initiators()[0]->identity.secret == b.tcp().served()[0].secret);
  CHECK(a.tcp().initiators()[0]->identity.link_id == b.tcp().served()[0].link_id);
  const auto links = a.List();
  REQUIRE(links.size() == 1);
  CHECK(links[0].state == "up");
  CHECK(links[0].channels == 1);
  CHECK(b.List()[0].peer_node != links[0].peer_node);
}

TEST_CASE("a region list that is too long for one message arrives whole") {
  // Long lists take long where every access is checked.
  LinkOptions patient = TestNode::Fast();
  patient.keep_alive.timeout_ns = 20 * kNanosPerSecond;
  TestNode a(patient), b(patient);
  const std::string engine = b.AddEngine();
  const size_t count = kRegionsPerMessage * 2 + 7;
  for (size_t i = 0; i < count; ++i) b.engines().AddRegion(0x10000 + i * 0x1000, 0x800);
  const auto channel = a.Open(engine, 20'000).get();
  REQUIRE(channel.ok());
  CHECK((*channel)->Regions()->size() == count);
  b.engines().AddRegion(0x100, 0x10);
  std::promise<absl::Status> refreshed;
  (*channel)->RefreshRegions(MonotonicNanos() + 20 * kNanosPerSecond,
                             [&](absl::Status status) { refreshed.set_value(std::move(status)); });
  CHECK(refreshed.get_future().get().ok());
  CHECK((*channel)->Regions()->size() == count + 1);
}

TEST_CASE("the initiator is told once that regions are gone, until it has asked again") {
  TestNode a, b;
  const std::string engine = b.AddEngine();
  b.engines().AddRegion(0x1000, 0x100);
  std::atomic<int> told{0};
  const auto channel = a.Open(engine, 5000, nullptr, [&told] { told += 1; }).get();
  REQUIRE(channel.ok());
  CHECK_FALSE((*channel)->RegionsOutdated());
  const auto handle = b.engines().last_handle();
  handle->RegionsGone();
  handle->RegionsGone();
  CHECK(Eventually([&] { return (*channel)->RegionsOutdated(); }));
  std::promise<absl::Status> refreshed;
  (*channel)->RefreshRegions(MonotonicNanos() + 20 * kNanosPerSecond,
                             [&](absl::Status status) { refreshed.set_value(std::move(status)); });
  CHECK(refreshed.get_future().get().ok());
  CHECK_FALSE((*channel)->RegionsOutdated());
  CHECK(told == 1);
  handle->RegionsGone();
  CHECK(Eventually([&] { return told == 2; }));
}

absl::Status Notify(RemoteChannel& channel, const std::string& name, const std::string& message,
                    int64_t timeout_ms = 5000) {
  auto answer = std::make_shared<std::promise<absl::Status>>();
  auto future = answer->get_future();
  channel.Notify(name, message, MonotonicNanos() + timeout_ms * kNanosPerMilli,
                 [answer](absl::Status status) { answer->set_value(std::move(status)); });
  return future.get();
}

TEST_CASE("notifies arrive in order and are answered with what the target says") {
  TestNode a, b;
  const auto channel = a.Open(b.AddEngine()).get();
  REQUIRE(channel.ok());
  CHECK(Notify(**channel, "1", std::string(1024, 'x')).ok());
  CHECK(Notify(**channel, "2", "").ok());
  CHECK(ApiCodeOf(Notify(**channel, "3", "full")) == ApiCode::kResourceExhausted);
  CHECK(b.engines().notified() == std::vector<std::string>{"1", "2"});
  std::vector<std::string> expected = b.engines().notified();
  for (int i = 0; i < 500; ++i) {
    expected.push_back(std::to_string(i));
    (*channel)->Notify(std::to_string(i), "", MonotonicNanos() + 5 * kNanosPerSecond,
                       [](const absl::Status&) {});
  }
  CHECK(Notify(**channel, "last", "").ok());
  expected.push_back("last");
  CHECK(b.engines().notified() == expected);
}

TEST_CASE("a relay is granted or refused by the target's engine, and given back") {
  TestNode a, b;
  const auto channel = a.Open(b.AddEngine()).get();
  REQUIRE(channel.ok());
  const auto open = [&](std::vector<AddressRange> ranges) {
    std::promise<absl::StatusOr<uint64_t>> answer;
    (*channel)->OpenRelay(std::move(ranges), MonotonicNanos() + 5 * kNanosPerSecond,
                          [&answer](absl::StatusOr<uint64_t> id) { answer.set_value(id); });
    return answer.get_future().get();
  };
  const auto granted = open({{0x1000, 16}, {0x3000, 16}});
  REQUIRE(granted.ok());
  CHECK(*granted == 42);
  const auto refused = open({{0, 16}});
  CHECK(ApiCodeOf(refused.status()) == ApiCode::kFailed);
  CHECK_THAT(Message(refused.status()), Contains("nothing is relayed here"));
  const auto many = open(std::vector<AddressRange>(RelayGrants::kMaxRanges + 1, {1, 1}));
  CHECK(ApiCodeOf(many.status()) == ApiCode::kResourceExhausted);
  CHECK(open(std::vector<AddressRange>(RelayGrants::kMaxRanges, {1, 1})).ok());
  (*channel)->CloseRelay(*granted);
  CHECK(Eventually([&] { return b.engines().relay_closed == 42; }));
}

TEST_CASE("a notify on a closed channel or a lost link is FAILED") {
  TestNode a;
  auto b = std::make_unique<TestNode>();
  const std::string engine = b->AddEngine();
  const auto closed = a.Open(engine).get();
  REQUIRE(closed.ok());
  (*closed)->Close();
  CHECK(ApiCodeOf(Notify(**closed, "n", "")) == ApiCode::kFailed);
  const auto channel = a.Open(engine).get();
  REQUIRE(channel.ok());
  b->Stop();
  const absl::Status lost = Notify(**channel, "n", "");
  CHECK(ApiCodeOf(lost) == ApiCode::kFailed);
  CHECK(lost.code() != absl::StatusCode::kUnavailable);
}

TEST_CASE("sixteen threads that connect at once make one link") {
  TestNode a, b;
  const std::string engine = b.AddEngine();
  const std::string other = b.AddEngine();
  std::vector<std::thread> threads;
  std::vector<TestNode::ChannelResult> results(16, absl::UnknownError("not asked"));
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back(
        [&, i] { results[i] = a.Open(i % 2 == 0 ? engine : other, 20'000).get(); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result.ok());
  CHECK(a.tcp().initiators().size() == 1);
  CHECK(b.tcp().served().size() == 1);
  CHECK(b.engines().accepted == 16);
}

TEST_CASE("nobody listening is FAILED at once, silence is TIMEOUT at the deadline") {
  TestNode a;
  RawListener gone;
  const std::string address = gone.address();
  gone.Close();
  const auto refused = a.Open(address, 10'000).get();
  CHECK(ApiCodeOf(refused.status()) == ApiCode::kFailed);
  CHECK_THAT(Message(refused.status()), Contains(address));

  // Accepts connections (the kernel does) and never says a word.
  RawListener silent;
  const int64_t start = MonotonicNanos();
  const auto timeout = a.Open(silent.address(), 200).get();
  CHECK(ApiCodeOf(timeout.status()) == ApiCode::kTimeout);
  CHECK(MonotonicNanos() - start >= 200 * kNanosPerMilli);
}

TEST_CASE("an unknown engine of a known node is FAILED and leaves the link alone") {
  TestNode a, b;
  const std::string engine = b.AddEngine();
  const auto first = a.Open(engine).get();
  REQUIRE(first.ok());
  b.engines().Remove(engine);
  const auto second = a.Open(engine).get();
  CHECK(ApiCodeOf(second.status()) == ApiCode::kFailed);
  CHECK_THAT(Message(second.status()), Contains("does not exist"));
  CHECK((*first)->open());
}

TEST_CASE("an engine that has moved to another daemon is found there") {
  TestNode a, b;
  auto c = std::make_unique<TestNode>();
  const std::string engine = b.AddEngine();
  REQUIRE(a.Open(engine).get().ok());
  b.engines().Remove(engine);
  b.StopListening(engine);
  auto listener = c->links().Listen(*ParseEndpoint(engine));
  REQUIRE(listener.ok());
  c->engines().Add(engine);
  CHECK(a.Open(engine).get().ok());
  CHECK(c->tcp().served().size() == 1);
  listener->reset();
}

TEST_CASE("keys that differ, and a key on one side only, refuse the channel") {
  TestNode with_key(TestNode::WithKey("one key"));
  TestNode other_key(TestNode::WithKey("another key"));
  TestNode same_key(TestNode::WithKey("one key"));
  TestNode no_key;
  const std::string engine = with_key.AddEngine();
  CHECK(same_key.Open(engine).get().ok());
  const auto other = other_key.Open(engine).get();
  CHECK(ApiCodeOf(other.status()) == ApiCode::kFailed);
  CHECK_THAT(Message(other.status()), Contains("cluster key"));
  const auto none = no_key.Open(engine).get();
  CHECK(ApiCodeOf(none.status()) == ApiCode::kFailed);
  CHECK_THAT(Message(none.status()), Contains("security.cluster_key_file"));
}

TEST_CASE("listening beyond loopback needs a key or explicit permission") {
  TestNode closed;
  const auto refused = closed.links().Listen(*ParseEndpoint("0.0.0.0"));
  CHECK(ApiCodeOf(refused.status()) == ApiCode::kFailed);
  CHECK_THAT(Message(refused.status()), Contains("HIXLD_ALLOW_UNAUTHENTICATED_NETWORK"));
  TestNode keyed(TestNode::WithKey("key"));
  CHECK(keyed.links().Listen(*ParseEndpoint("0.0.0.0")).ok());
  LinkOptions open = TestNode::Fast();
  open.identity.allow_unauthenticated_network = true;
  TestNode permitted(open);
  CHECK(permitted.links().Listen(*ParseEndpoint("0.0.0.0")).ok());
}

TEST_CASE("a taken port is FAILED and named; a closed one is free at once") {
  TestNode a;
  const std::string engine = a.AddEngine();
  const auto taken = a.links().Listen(*ParseEndpoint(engine));
  CHECK(ApiCodeOf(taken.status()) == ApiCode::kFailed);
  CHECK_THAT(Message(taken.status()), Contains(engine));
  a.StopListening(engine);
  CHECK(a.links().Listen(*ParseEndpoint(engine)).ok());
}

TEST_CASE("links over IPv6 work") {
  TestNode a, b;
  const std::string engine = b.AddEngine("[::1]");
  if (engine.find("[::1]:") != 0) {
    WARN("this machine has no IPv6: " << engine);
    return;
  }
  CHECK(a.Open(engine).get().ok());
}

TEST_CASE("garbage, a wrong version and silence are refused without harm") {
  TestNode b;
  const std::string engine = b.AddEngine();
  RawPeer garbage = RawPeer::ConnectTo(engine);
  garbage.SendBytes("GET / HTTP/1.1\r\n\r\n");
  CHECK(garbage.Ended());

  RawPeer huge = RawPeer::ConnectTo(engine);
  huge.SendBytes(std::string("\xff\xff\xff\x7f", 4));
  CHECK(huge.Ended());

  RawPeer old = RawPeer::ConnectTo(engine);
  PeerMessage hello = Hello();
  hello.mutable_hello()->set_version(7);
  old.Send(hello);
  const auto answer = old.Receive();
  REQUIRE(answer.has_value());
  CHECK_THAT(answer->error().message(), Contains("version 7"));
  CHECK(old.Ended());

  RawPeer silent = RawPeer::ConnectTo(engine);
  CHECK(silent.Ended());

  RawPeer half = RawPeer::ConnectTo(engine);
  half.Send(Hello());
  REQUIRE(half.Receive()->has_challenge());
  CHECK(half.Ended());

  RawPeer early = RawPeer::ConnectTo(engine);
  PeerMessage open;
  open.mutable_open_channel()->set_target_engine(engine);
  early.Send(open);
  CHECK(early.Ended());

  TestNode a;
  CHECK(a.Open(engine).get().ok());
}

TEST_CASE("a lane's hello goes to the transport") {
  TestNode b;
  const std::string engine = b.AddEngine();
  RawPeer lane = RawPeer::ConnectTo(engine);
  lane.SendBytes("HI");
  lane.SendBytes("LX");
  CHECK(Eventually([&] { return b.tcp().lanes() == 1; }));
}

// The initiator's view of a peer that is under the test's control.
struct ScriptedPeer {
  std::string node = RandomBytes(kNodeIdBytes);

  // Answers a handshake and opens one channel.
  void Serve(RawPeer& peer) {
    peer.Receive();
    PeerMessage challenge;
    challenge.mutable_challenge()->set_version(1);
    challenge.mutable_challenge()->set_node_id(node);
    challenge.mutable_challenge()->set_nonce(RandomBytes(kNonceBytes));
    peer.Send(challenge);
    peer.Receive();
    PeerMessage welcome;
    welcome.mutable_welcome()->set_link_id(1);
    welcome.mutable_welcome()->set_lane_secret(RandomBytes(kLaneSecretBytes));
    welcome.mutable_welcome()->add_transports("tcp");
    welcome.mutable_welcome()->set_keepalive_interval_ms(50);
    welcome.mutable_welcome()->set_keepalive_timeout_ms(400);
    peer.Send(welcome);
  }

  void OpenChannel(RawPeer& peer) {
    while (const auto message = peer.Receive()) {
      if (message->has_ping()) {
        PeerMessage pong;
        pong.mutable_pong()->set_sequence(message->ping().sequence());
        peer.Send(pong);
        continue;
      }
      PeerMessage opened;
      opened.set_request_id(message->request_id());
      opened.mutable_channel_opened()->set_channel_id(5);
      peer.Send(opened);
      return;
    }
  }
};

struct ScriptedLink {
  TestNode a;
  RawListener listener;
  ScriptedPeer script;
  std::promise<absl::Status> broken;
  std::shared_ptr<RemoteChannel> channel;
  std::unique_ptr<RawPeer> peer;

  ScriptedLink() {
    auto opening = a.Open(listener.address(), 20'000,
                          [this](absl::Status status) { broken.set_value(std::move(status)); });
    peer = std::make_unique<RawPeer>(listener.Accept());
    script.Serve(*peer);
    script.OpenChannel(*peer);
    auto opened = opening.get();
    REQUIRE(opened.ok());
    channel = *opened;
  }
  // When the transport was told that nothing can land any more, in ns from now.
  int64_t FencedIn() {
    const int64_t fenced_at = a.tcp().initiators()[0]->closed.get_future().get();
    return fenced_at - MonotonicNanos();
  }
};

TEST_CASE("a peer that stops answering is dead after the timeout, fenced after its lease") {
  ScriptedLink link;
  const int64_t start = MonotonicNanos();
  CHECK(link.broken.get_future().get().code() == absl::StatusCode::kInternal);
  CHECK(MonotonicNanos() - start >= 200 * kNanosPerMilli);
  CHECK_FALSE(link.channel->open());
  // timeout + interval after the last pong; the timeout has passed.
  CHECK(link.FencedIn() <= 50 * kNanosPerMilli);
}

TEST_CASE("a peer that answers nothing is owed a bounded number of requests, of every kind") {
  ScriptedLink link;
  std::atomic<int> refused{0};
  std::atomic<int> ended{0};
  const auto count = [&](const absl::Status& status) {
    if (ErrorInfoOf(status).limit == "8192 requests of one link") refused.fetch_add(1);
    ended.fetch_add(1);
  };
  const int64_t deadline_ns = MonotonicNanos() + 60 * kNanosPerSecond;
  // All of them are there before the peer can be found silent.
  std::promise<void> gate;
  link.a.loop().Post([opened = gate.get_future().share()] { opened.wait(); });
  for (int i = 0; i < 8192 / 2; ++i) link.channel->RefreshRegions(deadline_ns, count);
  for (int i = 0; i < 8192 / 2; ++i) link.channel->Notify("n", "", deadline_ns, count);
  link.channel->RefreshRegions(deadline_ns, count);
  link.channel->Notify("n", "", deadline_ns, count);
  link.channel->OpenRelay({{0x1000, 16}}, deadline_ns,
                          [&](const absl::StatusOr<uint64_t>& id) { count(id.status()); });
  gate.set_value();
  // The link's end answers all others.
  CHECK_FALSE(link.broken.get_future().get().ok());
  CHECK(Eventually([&] { return ended == 8192 + 3; }));
  CHECK(refused == 3);
}

TEST_CASE("an orderly end of the peer's socket proves that it is fenced") {
  ScriptedLink link;
  link.peer->Close();
  CHECK_FALSE(link.broken.get_future().get().ok());
  CHECK(link.FencedIn() <= 0);
}

TEST_CASE("a reset peer whose port refuses is gone and fenced at once") {
  ScriptedLink link;
  link.listener.Close();
  link.peer->Reset();
  CHECK_FALSE(link.broken.get_future().get().ok());
  CHECK(link.FencedIn() <= 0);
}

TEST_CASE("a reset peer that another incarnation has replaced is fenced at once") {
  ScriptedLink link;
  link.peer->Reset();
  RawPeer next = link.listener.Accept();
  ScriptedPeer restarted;
  restarted.Serve(next);
  CHECK_FALSE(link.broken.get_future().get().ok());
  CHECK(link.FencedIn() <= 0);
}

TEST_CASE("a reset peer that does not answer keeps its lease") {
  ScriptedLink link;
  const int64_t start = MonotonicNanos();
  link.peer->Reset();
  CHECK_FALSE(link.broken.get_future().get().ok());
  link.a.tcp().initiators()[0]->closed.get_future().get();
  CHECK(MonotonicNanos() - start >= 300 * kNanosPerMilli);
}

TEST_CASE("the target drops a link that it hears nothing from") {
  TestNode b;
  const std::string engine = b.AddEngine();
  RawPeer peer = RawPeer::ConnectTo(engine);
  peer.Send(Hello());
  REQUIRE(peer.Receive()->has_challenge());
  PeerMessage proof;
  proof.mutable_proof();
  peer.Send(proof);
  REQUIRE(peer.Receive()->has_welcome());
  PeerMessage open;
  open.set_request_id(1);
  open.mutable_open_channel()->set_initiator_engine("127.0.0.1");
  open.mutable_open_channel()->set_target_engine(engine);
  peer.Send(open);
  REQUIRE(peer.Receive()->has_channel_opened());
  // A ping of the wrong number is no proof, and ends the link too; none at all is silence.
  CHECK(peer.Ended());
  // The peer may see the end before the target has told everybody.
  while (b.tcp().targets_closed() < 1 || b.engines().closed < 1) std::this_thread::yield();
  CHECK(b.tcp().targets_closed() == 1);
  CHECK(b.engines().closed == 1);
}

TEST_CASE("an initiator that comes back replaces its old link before it is welcomed") {
  TestNode b;
  const std::string engine = b.AddEngine();
  const PeerMessage hello = Hello();
  const auto shake = [&](RawPeer& peer) {
    PeerMessage again = hello;
    peer.Send(again);
    REQUIRE(peer.Receive()->has_challenge());
    PeerMessage proof;
    proof.mutable_proof();
    peer.Send(proof);
    return peer.Receive();
  };
  RawPeer first = RawPeer::ConnectTo(engine);
  REQUIRE(shake(first)->has_welcome());
  RawPeer second = RawPeer::ConnectTo(engine);
  REQUIRE(shake(second)->has_welcome());
  CHECK(b.tcp().targets_closed() == 1);
  CHECK(first.Ended());
}

TEST_CASE("a peer that was restarted on the same address is found again") {
  TestNode a;
  auto b = std::make_unique<TestNode>();
  const std::string engine = b->AddEngine();
  std::promise<absl::Status> broken;
  const auto old = a.Open(engine, 5000, [&](absl::Status s) { broken.set_value(std::move(s)); });
  auto channel = const_cast<std::future<TestNode::ChannelResult>&>(old).get();
  REQUIRE(channel.ok());
  b.reset();
  CHECK_FALSE(broken.get_future().get().ok());
  CHECK_FALSE((*channel)->open());
  CHECK(ApiCodeOf(a.Open(engine).get().status()) == ApiCode::kFailed);
  TestNode c;
  auto listener = c.links().Listen(*ParseEndpoint(engine));
  REQUIRE(listener.ok());
  c.engines().Add(engine);
  CHECK(a.Open(engine).get().ok());
}

TEST_CASE("a lost link comes back by itself while a channel wants it") {
  TestNode a;
  auto b = std::make_unique<TestNode>();
  const std::string engine = b->AddEngine();
  std::promise<absl::Status> broken;
  auto channel =
      a.Open(engine, 5000, [&](absl::Status s) { broken.set_value(std::move(s)); }).get();
  REQUIRE(channel.ok());
  b.reset();
  CHECK_FALSE(broken.get_future().get().ok());
  TestNode c;
  auto listener = c.links().Listen(*ParseEndpoint(engine));
  REQUIRE(listener.ok());
  CHECK(Eventually([&] { return c.tcp().served().size() == 1; }));
}

TEST_CASE("closing a channel at either end reaches the other") {
  TestNode a, b;
  const std::string engine = b.AddEngine();
  std::promise<absl::Status> broken;
  auto first = a.Open(engine).get();
  auto second = a.Open(engine, 5000, [&](absl::Status s) { broken.set_value(std::move(s)); }).get();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  const auto handle = b.engines().last_handle();
  (*first)->Close();
  CHECK(Eventually([&] { return b.engines().closed == 1; }));
  handle->Close("the engine was closed");
  CHECK_THAT(Message(broken.get_future().get()), Contains("the engine was closed"));
  CHECK_FALSE((*second)->open());
  std::promise<void> fenced;
  handle->Fence([&] { fenced.set_value(); });
  fenced.get_future().get();
}

TEST_CASE("a link without channels is closed after its idle time") {
  LinkOptions options = TestNode::Fast();
  options.idle_ns = 100 * kNanosPerMilli;
  TestNode a(options), b;
  const std::string engine = b.AddEngine();
  auto channel = a.Open(engine).get();
  REQUIRE(channel.ok());
  (*channel)->Close();
  CHECK(Eventually([&] { return a.List().empty() && b.List().empty(); }));
}

}  // namespace
}  // namespace hixld
