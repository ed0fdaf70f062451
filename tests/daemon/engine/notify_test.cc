// Notifies between engines of one daemon, and to another daemon (contract 1.10).
#include "tests/daemon/engine/fakes.h"

namespace hixld {
namespace {

using Catch::Contains;

constexpr char kClient[] = "127.0.0.1:26100";
constexpr char kServer[] = "127.0.0.1:26101";
constexpr char kFar[] = "127.0.0.1:26102";  // an engine of another daemon

ApiCode Code(const absl::Status& status) { return ApiCodeOf(status); }

std::vector<std::string> Taken(Engine& engine) {
  std::vector<std::string> names;
  for (const auto& entry : engine.TakeNotifies(0).entries) names.push_back(entry.notify.name);
  return names;
}

TEST_CASE("a notify needs a channel, also with AutoConnect, and makes none") {
  EngineRoom room;
  const auto client = room.Open(kClient, 1, {{"AutoConnect", "1"}});
  const auto server = room.Open(kServer);
  CHECK(Code(SendNotify(*client, kServer, "a")) == ApiCode::kNotConnected);
  CHECK(Code(SendNotify(*client, "nonsense", "a")) == ApiCode::kNotConnected);
  CHECK(client->Describe().channels.empty());
  REQUIRE(Connect(*client, kServer).ok());
  CHECK(SendNotify(*client, kServer, "a").ok());
  CHECK(Code(SendNotify(*server, kClient, "back")) == ApiCode::kNotConnected);
  CHECK(Taken(*server) == std::vector<std::string>{"a"});
}

TEST_CASE("a notify's arguments are checked, and one millisecond is over at once") {
  EngineRoom room;
  const auto client = room.Open(kClient);
  const auto server = room.Open(kServer);
  const std::string longer(1025, 'x');
  CHECK(Code(SendNotify(*client, kServer, longer)) == ApiCode::kParamInvalid);
  CHECK(Code(SendNotify(*client, kServer, "", longer)) == ApiCode::kParamInvalid);
  CHECK(Code(SendNotify(*client, kServer, "", "", 0)) == ApiCode::kParamInvalid);
  REQUIRE(Connect(*client, kServer).ok());
  for (int i = 0; i < 5; ++i) {
    CHECK(Code(SendNotify(*client, kServer, "x", "y", 1)) == ApiCode::kTimeout);
  }
  CHECK(Taken(*server).empty());
  CHECK(SendNotify(*client, kServer, "", "").ok());
}

TEST_CASE("a receiver that fetches nothing fills the share of one channel only") {
  EngineLimits limits;
  limits.notifies.per_channel = 3;
  EngineRoom room(limits);
  const auto client = room.Open(kClient);
  const auto other = room.Open("127.0.0.1:0");
  const auto server = room.Open(kServer);
  REQUIRE(Connect(*client, kServer).ok());
  REQUIRE(Connect(*other, kServer).ok());
  for (const char* name : {"1", "2", "3"}) CHECK(SendNotify(*client, kServer, name).ok());
  CHECK(Code(SendNotify(*client, kServer, "4")) == ApiCode::kResourceExhausted);
  CHECK(SendNotify(*other, kServer, "5").ok());
  const auto batch = server->TakeNotifies(0);
  CHECK(batch.entries.size() == 4);
  CHECK(SendNotify(*client, kServer, "6").ok());
  CHECK(server->TakeNotifies(batch.last_sequence).entries.size() == 1);
}

TEST_CASE("what was acknowledged survives its sender") {
  EngineRoom room;
  const auto server = room.Open(kServer);
  {
    const auto client = room.Open(kClient, 7);
    REQUIRE(Connect(*client, kServer).ok());
    CHECK(SendNotify(*client, kServer, "last words").ok());
  }
  std::promise<void> released;
  room.registry().OnSessionEnd(7, [&released] { released.set_value(); });
  released.get_future().wait();
  CHECK(Taken(*server) == std::vector<std::string>{"last words"});
}

TEST_CASE("a receiver that is gone is FAILED, and with AutoConnect the channel is gone") {
  EngineRoom room;
  const auto client = room.Open(kClient);
  const auto server = room.Open(kServer, 7);
  REQUIRE(Connect(*client, kServer).ok());
  std::promise<void> released;
  room.registry().OnSessionEnd(7, [&released] { released.set_value(); });
  released.get_future().wait();
  room.links().Refuse(Failed("nobody listens"));
  CHECK(Code(SendNotify(*client, kServer, "a")) == ApiCode::kFailed);
  // A successor at the same address is reached over the same channel.
  room.links().Refuse(absl::OkStatus());
  const auto successor = room.Open(kServer, 8);
  CHECK(SendNotify(*client, kServer, "b").ok());
  CHECK(Taken(*successor) == std::vector<std::string>{"b"});
}

TEST_CASE("a notify to another daemon is answered when that one has it") {
  EngineRoom room;
  const auto client = room.Open(kClient);
  REQUIRE(Connect(*client, kFar).ok());
  const auto channel = room.links().last();
  channel->HoldNotifies();
  Answer<absl::Status> answer;
  client->SendNotify(kFar, {.name = "n"}, 5000, answer.callback());
  CHECK_FALSE(answer.ready());
  CHECK(channel->notified() == std::vector<std::string>{"n"});
  channel->AnswerNotify(absl::OkStatus());
  CHECK(answer.get().ok());
  CHECK(client->Describe().notifies_sent == 1);
  CHECK(client->Describe().channels[0].notifies == 1);

  Answer<absl::Status> refused;
  client->SendNotify(kFar, {.name = "n"}, 5000, refused.callback());
  channel->AnswerNotify(ResourceExhausted("full"));
  CHECK(Code(refused.get()) == ApiCode::kResourceExhausted);
  CHECK(client->Describe().notifies_sent == 1);
}

TEST_CASE("a broken channel is opened again for a notify") {
  EngineRoom room;
  const auto client = room.Open(kClient);
  REQUIRE(Connect(*client, kFar).ok());
  room.links().last()->Break(Failed("cut"));
  CHECK(SendNotify(*client, kFar, "n").ok());
  CHECK(room.links().opens() == 2);
  CHECK(room.links().last()->notified() == std::vector<std::string>{"n"});
  room.links().last()->Break(Failed("cut"));
  room.links().Refuse(Failed("nobody listens"));
  CHECK(Code(SendNotify(*client, kFar, "n")) == ApiCode::kFailed);
}

TEST_CASE("a closed engine neither sends nor receives") {
  EngineRoom room;
  const auto client = room.Open(kClient);
  const auto server = room.Open(kServer);
  REQUIRE(Connect(*client, kServer).ok());
  REQUIRE(SendNotify(*client, kServer, "a").ok());
  std::promise<void> closed;
  room.registry().Close(server, "test", [&closed] { closed.set_value(); });
  closed.get_future().wait();
  CHECK(server->TakeNotifies(0).entries.empty());
  CHECK(Code(SendNotify(*server, kClient, "a")) == ApiCode::kFailed);
}

}  // namespace
}  // namespace hixld
