// How sessions begin: sockets, locks, hello, tokens, limits.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "daemon/session/lock_file.h"
#include "tests/daemon/session/test_client.h"
#include "tests/daemon/session/test_daemon.h"

namespace hixld::testing {
namespace {

TEST_CASE("a hello is welcomed with a token that finds the session") {
  TestDaemon daemon;
  REQUIRE(daemon.status.ok());
  auto client = TestClient::Open(daemon.socket(), {.name = "a client"});
  REQUIRE(client.ok());
  const auto& welcome = client->welcome();
  CHECK(welcome.protocol_version() == kFdChannelVersion);
  CHECK(welcome.session_token().size() == 32);
  CHECK(welcome.daemon_version() == "test");
  CHECK(welcome.incarnation() == daemon.server->incarnation());
  CHECK(welcome.process_memory_readable());
  CHECK(welcome.max_packet_bytes() == kMaxFdPacketBytes);

  auto session = daemon.server->Find(client->token());
  REQUIRE(session.ok());
  const SessionDescription description = (*session)->Describe();
  CHECK(description.id == welcome.session_id());
  CHECK(description.credentials.pid == getpid());
  CHECK(description.credentials.uid == getuid());
  CHECK(description.client_name == "a client");
  CHECK(description.state == "open");
  CHECK(description.process_memory_readable);
  CHECK(daemon.server->size() == 1);
  CHECK(daemon.server->List().size() == 1);
}

TEST_CASE("foreign, malformed, missing and dead tokens are refused") {
  TestDaemon daemon;
  auto one = TestClient::Open(daemon.socket(), {});
  auto two = TestClient::Open(daemon.socket(), {});
  REQUIRE((one.ok() && two.ok()));
  CHECK(one->token() != two->token());
  std::string mixed = one->token().substr(0, 16) + two->token().substr(16);
  std::string flipped = one->token();
  flipped.back() ^= 1;
  for (const std::string& token : {std::string(), std::string("x"), std::string(32, '\0'), mixed,
                                   flipped, one->token() + "x", one->token().substr(0, 31)}) {
    CHECK(absl::IsUnauthenticated(daemon.server->Find(token).status()));
  }
  const std::string token = one->token();
  daemon.HoldReleases();
  one->Close();
  daemon.WaitHeld();
  // The session drains, and its token is dead already.
  CHECK(absl::IsUnauthenticated(daemon.server->Find(token).status()));
  CHECK(daemon.server->size() == 2);
  CHECK(daemon.server->List()[0].state == "draining");
  daemon.LetGo();
  two->Close();
  daemon.WaitEmpty();
  CHECK(daemon.server->size() == 0);
}

TEST_CASE("bad hellos are answered with what is allowed, and the channel closes") {
  TestDaemon daemon;
  FdMessage not_hello;
  not_hello.mutable_get_arena()->set_arena_id(1);
  FdMessage old;
  old.mutable_hello()->set_protocol_version(0);
  FdMessage long_name;
  long_name.mutable_hello()->set_protocol_version(1);
  long_name.mutable_hello()->set_client_name(std::string(129, 'x'));
  FdMessage short_probe = long_name;
  short_probe.mutable_hello()->set_client_name("x");
  short_probe.mutable_hello()->set_probe_address(4096);
  short_probe.mutable_hello()->set_probe_value("123");
  for (const FdMessage& message : {not_hello, old, long_name, short_probe}) {
    auto client = TestClient::Connect(daemon.socket());
    REQUIRE(client.ok());
    const auto answer = client->Ask(message);
    REQUIRE(!answer.ok());
    CHECK(!ErrorInfoOf(answer.status()).allowed.empty());
    const auto goodbye = client->Receive();
    REQUIRE(goodbye.ok());
    CHECK(goodbye->message.has_goodbye());
    CHECK(absl::IsUnavailable(client->Receive().status()));
  }
  CHECK(daemon.server->size() == 0);
  CHECK(TestClient::Open(daemon.socket(), {}).ok());
}

TEST_CASE("a newer client is answered with the version that is spoken here") {
  TestDaemon daemon;
  auto client = TestClient::Open(daemon.socket(), {.version = 7});
  REQUIRE(client.ok());
  CHECK(client->welcome().protocol_version() == kFdChannelVersion);
}

TEST_CASE("a connection without a hello is closed in time") {
  TestDaemon daemon(TestDaemon::Options{.hello_timeout_ns = 20 * kNanosPerMilli});
  auto client = TestClient::Connect(daemon.socket());
  REQUIRE(client.ok());
  const auto goodbye = client->Receive();
  REQUIRE(goodbye.ok());
  CHECK(goodbye->message.goodbye().reason() == "no Hello came in time");
  CHECK(absl::IsUnavailable(client->Receive().status()));
}

TEST_CASE("a probe with other bytes, or at no memory, means no process_vm") {
  TestDaemon daemon;
  for (const uint64_t address : {uint64_t{16}, reinterpret_cast<uint64_t>("other bytes here")}) {
    auto client = TestClient::Connect(daemon.socket());
    REQUIRE(client.ok());
    FdMessage message;
    message.mutable_hello()->set_protocol_version(1);
    message.mutable_hello()->set_probe_address(address);
    message.mutable_hello()->set_probe_value("0123456789abcdef");
    const auto answer = client->Ask(message);
    REQUIRE(answer.ok());
    CHECK(!answer->message.welcome().process_memory_readable());
  }
}

TEST_CASE("the limits on sessions name their options") {
  const bool per_uid = GENERATE(false, true);
  TestDaemon::Options options;
  (per_uid ? options.limits.max_sessions_per_uid : options.limits.max_sessions) = 2;
  TestDaemon daemon(options);
  auto one = TestClient::Open(daemon.socket(), {});
  auto two = TestClient::Open(daemon.socket(), {});
  REQUIRE((one.ok() && two.ok()));
  {
    auto three = TestClient::Connect(daemon.socket());
    REQUIRE(three.ok());
    const auto refused = three->Receive();
    REQUIRE(refused.ok());
    const absl::Status error = ErrorOf(refused->message);
    CHECK(ApiCodeOf(error) == ApiCode::kResourceExhausted);
    CHECK(ErrorInfoOf(error).option ==
          (per_uid ? "limits.max_sessions_per_uid" : "limits.max_sessions"));
    CHECK(ErrorInfoOf(error).limit == "2 sessions");
  }
  one->Close();
  two->Close();
  daemon.WaitEmpty();
  CHECK(TestClient::Open(daemon.socket(), {}).ok());
}

TEST_CASE("the socket's mode is exact under every umask") {
  const mode_t mask = GENERATE(0000, 0077);
  const mode_t mode = GENERATE(0600, 0660, 0666);
  const mode_t before = umask(mask);
  {
    TestDaemon daemon(TestDaemon::Options{.mode = mode});
    REQUIRE(daemon.status.ok());
    struct stat st;
    REQUIRE(stat((daemon.socket() + ".fd").c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == mode);
    CHECK(S_ISSOCK(st.st_mode));
  }
  umask(before);
}

TEST_CASE("a second daemon on the same socket is told who has it, and the first serves on") {
  TestDaemon first;
  REQUIRE(first.status.ok());
  TestDaemon second(TestDaemon::Options(), first.socket());
  CHECK(absl::IsAlreadyExists(second.status));
  CHECK_THAT(std::string(second.status.message()),
             Catch::Contains("already running, pid " + std::to_string(getpid())));
  CHECK(TestClient::Open(first.socket(), {}).ok());
}

TEST_CASE("a daemon that ends leaves no files, and the next one starts") {
  TestDirectory directory;
  for (int i = 0; i < 5; ++i) {
    TestDaemon daemon(TestDaemon::Options(), directory.socket());
    REQUIRE(daemon.status.ok());
    CHECK(TestClient::Open(directory.socket(), {}).ok());
  }
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("what a killed daemon left behind is replaced") {
  TestDirectory directory;
  const std::string lock = directory.socket() + ".lock";
  // As after kill -9: the files are there, and nobody holds the lock or listens.
  std::ofstream(lock) << "99999\n";
  {
    auto stale = ListenFdSocket(directory.socket() + ".fd", 0600);
    REQUIRE(stale.ok());
  }
  CHECK(absl::IsUnavailable(TestClient::Connect(directory.socket()).status()));
  TestDaemon daemon(TestDaemon::Options(), directory.socket());
  REQUIRE(daemon.status.ok());
  CHECK(TestClient::Open(directory.socket(), {}).ok());
  std::ifstream file(lock);
  int pid = 0;
  file >> pid;
  CHECK(pid == getpid());
}

TEST_CASE("many processes race for one lock and one has it") {
  TestDirectory directory;
  const std::string path = directory.path() + "/lock";
  std::atomic<int> holders{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        auto lock = LockFile::Acquire(path);
        if (!lock.ok()) continue;
        if (holders.fetch_add(1) != 0) abort();
        holders.fetch_sub(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("a file that no daemon has left as its lock stays as it is") {
  TestDirectory directory;
  const std::string lock = directory.socket() + ".lock";
  for (const std::string content : {"precious", "4711", "4711\nmore", "12 34\n"}) {
    std::ofstream(lock) << content;
    TestDaemon daemon(TestDaemon::Options(), directory.socket());
    CHECK(ApiCodeOf(daemon.status) == ApiCode::kParamInvalid);
    CHECK(ErrorInfoOf(daemon.status).object == lock);
    std::ostringstream kept;
    kept << std::ifstream(lock).rdbuf();
    CHECK(kept.str() == content);
    CHECK_FALSE(std::filesystem::exists(directory.socket()));
  }
}

TEST_CASE("a lock in a directory that does not exist names the path") {
  const auto lock = LockFile::Acquire("/nonexistent/hixld.lock");
  REQUIRE(!lock.ok());
  CHECK_THAT(std::string(lock.status().message()), Catch::Contains("/nonexistent/hixld.lock"));
}

}  // namespace
}  // namespace hixld::testing
