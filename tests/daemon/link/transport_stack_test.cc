// Which transports a link uses, and who talks to whom.
#include "daemon/link/transport_stack.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "proto/base/status.h"
#include "tests/daemon/link/test_node.h"

namespace hixld {
namespace {

using Catch::Matchers::Contains;

// RDMA links that note what they are told.
class RecordingRdma : public RdmaTransport {
 public:
  struct Link {
    RdmaClass treatment;
    bool has_fallback = false;
    std::vector<std::string> heard;
    int closed = 0;
    std::string trouble;
  };
  struct Target {
    std::vector<std::string> heard;
    std::vector<uint64_t> fenced;
    int closed = 0;
    ControlPath* control = nullptr;
  };

  std::unique_ptr<RdmaInitiatorLink> Connect(const Endpoint& peer, RdmaClass treatment,
                                             std::shared_ptr<TransferSink> fallback,
                                             ControlPath* control) override {
    links.push_back(std::make_shared<Link>());
    links.back()->treatment = treatment;
    links.back()->has_fallback = fallback != nullptr;
    control->SendToPeer("connecting");
    return std::make_unique<Initiator>(links.back());
  }
  std::unique_ptr<TargetLink> Serve(TargetResolver* resolver, ControlPath* control) override {
    targets.push_back(std::make_shared<Target>());
    targets.back()->control = control;
    return std::make_unique<Served>(targets.back());
  }
  absl::StatusOr<std::vector<Port>> Ports() const override { return std::vector<Port>(); }
  Stats stats() const override { return {}; }

  std::vector<std::shared_ptr<Link>> links;
  std::vector<std::shared_ptr<Target>> targets;

 private:
  class Initiator : public RdmaInitiatorLink {
   public:
    explicit Initiator(std::shared_ptr<Link> link) : link_(std::move(link)) {}
    absl::string_view transport() const override { return "rdma"; }
    void Submit(std::shared_ptr<TransferJob> job) override {}
    void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {}
    void OnControlMessage(absl::string_view payload) override {
      link_->heard.emplace_back(payload);
    }
    void Close(absl::Status reason, int64_t fenced_at_ns) override { ++link_->closed; }
    std::vector<LaneStats> Lanes() const override { return std::vector<LaneStats>(2); }
    std::string Trouble() const override { return link_->trouble; }

   private:
    const std::shared_ptr<Link> link_;
  };
  class Served : public TargetLink {
   public:
    explicit Served(std::shared_ptr<Target> target) : target_(std::move(target)) {}
    void OnControlMessage(absl::string_view payload) override {
      target_->heard.emplace_back(payload);
    }
    void Close(absl::Status reason, absl::AnyInvocable<void()> closed) override {
      ++target_->closed;
      closed();
    }
    void FenceChannel(uint64_t channel, absl::AnyInvocable<void()> fenced) override {
      target_->fenced.push_back(channel);
      fenced();
    }
    std::vector<LaneStats> Lanes() const override {
      return std::vector<LaneStats>(target_->heard.size());
    }

   private:
    const std::shared_ptr<Target> target_;
  };
};

struct Fixture {
  RecordingTcp tcp;
  RecordingRdma rdma;
  Transports transports{.tcp = &tcp, .rdma = &rdma};
  std::vector<std::pair<std::string, std::string>> sent;

  NamedPath::Send Send() {
    return [this](const std::string& transport, std::string payload) {
      sent.emplace_back(transport, std::move(payload));
    };
  }
  absl::StatusOr<std::unique_ptr<InitiatorStack>> Connect(std::vector<std::string> served) {
    return InitiatorStack::Connect(transports,
                                   {.address = *ParseEndpoint("10.0.0.2:26000"),
                                    .lanes_to = *ParseEndpoint("10.0.0.2:26001"),
                                    .identity = {},
                                    .served = std::move(served)},
                                   Send());
  }
};

TEST_CASE("What two nodes have in common is used, in the initiator's order") {
  struct Row {
    std::vector<std::string> order;
    bool has_device;
    std::vector<std::string> served;
    std::string transport;  // empty: refused
    size_t rdma_links;
    size_t tcp_links;
    bool fallback;
    std::string detail;
  };
  const std::vector<Row> rows = {
      {{"rdma", "tcp"}, true, {"rdma", "tcp"}, "rdma", 1, 1, true, ""},
      {{"rdma", "tcp"}, true, {"rdma"}, "rdma", 1, 0, false, ""},
      {{"rdma"}, true, {"rdma", "tcp"}, "rdma", 1, 0, false, ""},
      {{"rdma", "tcp"}, true, {"tcp"}, "tcp", 0, 1, false, "the peer serves no RDMA"},
      {{"rdma", "tcp"}, false, {"rdma", "tcp"}, "tcp", 0, 1, false, "no RDMA device"},
      {{"rdma", "tcp"}, false, {"tcp"}, "tcp", 0, 1, false, ""},
      {{"tcp", "rdma"}, true, {"rdma", "tcp"}, "tcp", 0, 1, false, ""},
      {{"tcp"}, false, {"rdma", "tcp"}, "tcp", 0, 1, false, ""},
      {{"rdma"}, true, {"tcp"}, "", 0, 0, false, ""},
      {{"tcp"}, true, {"rdma"}, "", 0, 0, false, ""},
      {{"tcp"}, true, {"carrier pigeon"}, "", 0, 0, false, ""},
      {{"tcp"}, true, {}, "", 0, 0, false, ""},
  };
  for (const Row& row : rows) {
    Fixture fixture;
    fixture.transports.order = row.order;
    if (!row.has_device) fixture.transports.rdma = nullptr;
    const auto stack = fixture.Connect(row.served);
    INFO(row.transport << " " << row.detail);
    CHECK(fixture.rdma.links.size() == row.rdma_links);
    CHECK(fixture.tcp.initiators().size() == row.tcp_links);
    CHECK(stack.ok() == !row.transport.empty());
    if (!stack.ok()) {
      CHECK_THAT(std::string(stack.status().message()), Contains("node.transports"));
      continue;
    }
    CHECK((*stack)->transport() == row.transport);
    CHECK((*stack)->Sink(nullptr)->transport() == row.transport);
    if (row.rdma_links > 0) CHECK(fixture.rdma.links[0]->has_fallback == row.fallback);
    CHECK_THAT((*stack)->Detail(), Contains(row.detail));
    CHECK((*stack)->Detail().empty() == row.detail.empty());
    (*stack)->Close(Failed("over"), 0);
  }
}

TEST_CASE("A reason why this node has no RDMA shows in its links") {
  Fixture fixture;
  fixture.transports.rdma = nullptr;
  fixture.transports.no_rdma = "rdma.devices names mlx5_0, but there is no such device";
  const auto stack = fixture.Connect({"tcp"});
  REQUIRE(stack.ok());
  CHECK_THAT((*stack)->Detail(), Contains("no RDMA: rdma.devices names mlx5_0"));
  (*stack)->Close(Failed("over"), 0);
}

TEST_CASE("Trouble of the RDMA lanes shows in the link") {
  Fixture fixture;
  const auto stack = fixture.Connect({"rdma", "tcp"});
  REQUIRE(stack.ok());
  fixture.rdma.links[0]->trouble = "rxe0 port 1 is DOWN";
  CHECK((*stack)->Detail() == "rxe0 port 1 is DOWN");
  (*stack)->Close(Failed("over"), 0);
}

TEST_CASE("Engines with a treatment of their own get lanes of their own") {
  Fixture fixture;
  const auto made = fixture.Connect({"rdma", "tcp"});
  REQUIRE(made.ok());
  InitiatorStack& stack = **made;
  CHECK(fixture.rdma.links[0]->treatment == RdmaClass{});
  const RdmaClass own{};
  CHECK(stack.Sink(&own) == stack.Sink(nullptr));
  const RdmaClass other{.traffic_class = 160, .service_level = 3};
  TransferSink* const sink = stack.Sink(&other);
  CHECK(sink != stack.Sink(nullptr));
  CHECK(sink == stack.Sink(&other));
  REQUIRE(fixture.rdma.links.size() == 2);
  CHECK(fixture.rdma.links[1]->treatment == other);
  CHECK(fixture.sent == std::vector<std::pair<std::string, std::string>>{
                            {"rdma", "connecting"}, {"rdma:160:3", "connecting"}});
  stack.OnControlMessage("rdma", "a");
  stack.OnControlMessage("rdma:160:3", "b");
  stack.OnControlMessage("rdma:0:0", "c");
  stack.OnControlMessage("", "d");
  CHECK(fixture.rdma.links[0]->heard == std::vector<std::string>{"a"});
  CHECK(fixture.rdma.links[1]->heard == std::vector<std::string>{"b"});
  // Beyond the limit, lanes are shared.
  for (uint8_t i = 0; i < 20; ++i) {
    const RdmaClass many{.traffic_class = static_cast<uint8_t>(i * 4), .service_level = 0};
    CHECK(stack.Sink(&many) != nullptr);
  }
  CHECK(fixture.rdma.links.size() == kMaxRdmaClasses);
  const std::vector<LaneStats> lanes = stack.Lanes();
  CHECK(lanes.size() == 2 * kMaxRdmaClasses);
  CHECK(lanes.front().transport == "rdma");
  CHECK(lanes.back().index == lanes.size() - 1);
  stack.Close(Failed("over"), 0);
  for (const auto& link : fixture.rdma.links) CHECK(link->closed == 1);
}

TEST_CASE("A target makes RDMA ends for the names that the initiator uses, up to a limit") {
  Fixture fixture;
  TargetStack stack(fixture.transports, {}, nullptr, fixture.Send());
  CHECK(stack.transport() == "tcp");
  stack.OnControlMessage("rdma", "a");
  stack.OnControlMessage("rdma:160:3", "b");
  stack.OnControlMessage("rdma", "c");
  stack.OnControlMessage("rdmaX", "d");
  stack.OnControlMessage(std::string("rdma:") + std::string(100, '9'), "e");
  REQUIRE(fixture.rdma.targets.size() == 2);
  CHECK(fixture.rdma.targets[0]->heard == std::vector<std::string>{"a", "c"});
  fixture.rdma.targets[1]->control->SendToPeer("answer");
  CHECK(fixture.sent.back() == std::pair<std::string, std::string>{"rdma:160:3", "answer"});
  CHECK(stack.transport() == "rdma");
  for (int i = 0; i < 20; ++i) stack.OnControlMessage(absl::StrCat("rdma:", i, ":0"), "x");
  CHECK(fixture.rdma.targets.size() == kMaxRdmaClasses);

  int fenced = 0;
  stack.FenceChannel(7, [&] { ++fenced; });
  CHECK(fenced == 1);
  for (const auto& target : fixture.rdma.targets) {
    CHECK(target->fenced == std::vector<uint64_t>{7});
  }
  int closed = 0;
  stack.Close(Failed("over"), [&] { ++closed; });
  CHECK(closed == 1);
  CHECK(fixture.tcp.targets_closed() == 1);
  for (const auto& target : fixture.rdma.targets) CHECK(target->closed == 1);
}

TEST_CASE("A target without RDMA hears nothing of it, and serves what node.transports says") {
  Fixture fixture;
  fixture.transports.order = {"tcp"};
  CHECK(fixture.transports.Served() == std::vector<std::string>{"tcp"});
  TargetStack stack(fixture.transports, {}, nullptr, fixture.Send());
  stack.OnControlMessage("rdma", "a");
  CHECK(fixture.rdma.targets.empty());
  int closed = 0;
  stack.Close(Failed("over"), [&] { ++closed; });
  CHECK(closed == 1);
  fixture.transports.order = {"rdma", "tcp"};
  CHECK(fixture.transports.Served() == std::vector<std::string>{"rdma", "tcp"});
  fixture.transports.rdma = nullptr;
  CHECK(fixture.transports.Served() == std::vector<std::string>{"tcp"});
}

}  // namespace
}  // namespace hixld
