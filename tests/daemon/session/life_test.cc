// How sessions end: kills, hangs, lies, floods, shutdown.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "absl/strings/escaping.h"
#include "tests/daemon/session/test_client.h"
#include "tests/daemon/session/test_daemon.h"

namespace hixld::testing {
namespace {

using Slice = MemoryAccess::Slice;

// client_process.cc, running.
class ClientProcess {
 public:
  ClientProcess(const std::string& socket, uint64_t bytes, std::vector<std::string> flags = {}) {
    int out[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    const char* sources = getenv("TEST_SRCDIR");
    const std::string binary = std::string(sources == nullptr ? "." : sources) +
                               "/hixld/tests/daemon/session/client_process";
    const std::string size = std::to_string(bytes);
    std::vector<char*> argv = {const_cast<char*>(binary.c_str()), const_cast<char*>(socket.c_str()),
                               const_cast<char*>(size.c_str())};
    for (const std::string& flag : flags) argv.push_back(const_cast<char*>(flag.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      execv(binary.c_str(), argv.data());
      _exit(127);
    }
    close(out[1]);
    FILE* stream = fdopen(out[0], "r");
    char hex[80] = {};
    int readable = 0;
    REQUIRE(fscanf(stream, "%79s %lu %lu %d", hex, &handle, &address, &readable) == 4);
    fclose(stream);
    token = absl::HexStringToBytes(hex);
    process_memory_readable = readable == 1;
  }
  ~ClientProcess() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void Stop() { kill(pid_, SIGSTOP); }
  pid_t pid() const { return pid_; }

  std::string token;
  uint64_t handle = 0;
  uint64_t address = 0;
  bool process_memory_readable = false;

 private:
  pid_t pid_ = -1;
};

// One Read or Write whose end can be waited for.
std::future<absl::Status> Start(MemoryAccess* access, bool read, std::vector<Slice> slices) {
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto done = [promise](absl::Status status) { promise->set_value(std::move(status)); };
  if (read) {
    access->Read(std::move(slices), done);
  } else {
    access->Write(std::move(slices), done);
  }
  return promise->get_future();
}

TEST_CASE("a killed client leaves nothing behind") {
  TestDaemon daemon;
  constexpr uint64_t kBytes = 8 << 20;
  int cycles = 0;
  const auto cycle = [&] {
    ClientProcess client(daemon.socket(), kBytes);
    auto session = daemon.server->Find(client.token);
    REQUIRE(session.ok());
    uint64_t offset;
    auto shared = (*session)->SharedMemoryAccess(client.handle, 0, kBytes, &offset);
    REQUIRE(shared.ok());
    CHECK((*shared)->mapped()[kBytes - 1] == std::byte{'s'});
    REQUIRE((*session)->AllocateBuffer(kBytes, MemoryType::kHost, 0, 0).ok());
    REQUIRE((*session)->AllocateBuffer(kBytes, MemoryType::kDevice, 0, 0).ok());
    CHECK(client.process_memory_readable);
    auto plain = (*session)->PlainMemoryAccess(client.address, kBytes);
    std::vector<std::byte> host(kBytes);
    REQUIRE(Start(plain.get(), true, {{.offset = 0, .host = host.data(), .length = kBytes}})
                .get()
                .ok());
    CHECK(host[kBytes - 1] == std::byte{'p'});
    *shared = nullptr;
    client.Kill();
    daemon.WaitEmpty(++cycles);
    CHECK(daemon.server->size() == 0);
    CHECK(daemon.host_pool->stats().arena_bytes == 0);
  };
  const Holdings before = Holdings::Now();
  for (int i = 0; i < 5; ++i) cycle();
  CHECK(before.Regained());
}

TEST_CASE("plain memory of a killed client is out of reach, and the copy ends") {
  TestDaemon daemon;
  ClientProcess client(daemon.socket(), 1 << 20);
  auto session = daemon.server->Find(client.token);
  REQUIRE(session.ok());
  daemon.HoldReleases();
  auto plain = (*session)->PlainMemoryAccess(client.address, 1 << 20);
  client.Kill();
  std::byte byte;
  const absl::Status status =
      Start(plain.get(), true, {{.offset = 0, .host = &byte, .length = 1}}).get();
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  daemon.WaitHeld();
  daemon.LetGo();
  daemon.WaitEmpty();
}

TEST_CASE("memory stays mapped until the observers have let go") {
  TestDaemon daemon;
  ClientProcess client(daemon.socket(), 1 << 20);
  auto session = daemon.server->Find(client.token);
  REQUIRE(session.ok());
  const auto grant = (*session)->AllocateBuffer(1 << 20, MemoryType::kHost, 0, 0);
  REQUIRE(grant.ok());
  uint64_t offset;
  auto shared = (*session)->SharedMemoryAccess(client.handle, 0, 1 << 20, &offset);
  auto buffer = (*session)->BufferAccess(grant->buffer_id, 0, 1 << 20, &offset);
  REQUIRE((shared.ok() && buffer.ok()));
  daemon.HoldReleases();
  client.Kill();
  daemon.WaitHeld();
  CHECK(!(*session)->open());
  CHECK((*shared)->mapped()[5] == std::byte{'s'});
  (*buffer)->mapped()[5] = std::byte{1};
  CHECK(daemon.host_pool->stats().buffers == 1);
  CHECK(daemon.server->List()[0].state == "draining");
  *shared = nullptr;
  *buffer = nullptr;
  daemon.LetGo();
  daemon.WaitEmpty();
  CHECK(daemon.host_pool->stats().buffers == 0);
}

TEST_CASE("a client that serves copy commands lends its plain memory") {
  TestDaemon daemon;
  constexpr uint64_t kBytes = 1 << 20;
  ClientProcess client(daemon.socket(), kBytes, {"no-probe", "serve"});
  CHECK(!client.process_memory_readable);
  auto session = daemon.server->Find(client.token);
  REQUIRE(session.ok());
  auto plain = (*session)->PlainMemoryAccess(client.address, kBytes);
  CHECK(plain->kind() == MemoryAccess::Kind::kExecutor);
  std::vector<std::byte> host(kBytes, std::byte{1});
  REQUIRE(Start(plain.get(), false, {{.offset = 0, .host = host.data(), .length = kBytes - 1}})
              .get()
              .ok());
  std::vector<std::byte> back(kBytes);
  REQUIRE(
      Start(plain.get(), true, {{.offset = 0, .host = back.data(), .length = kBytes}}).get().ok());
  CHECK(back[kBytes - 2] == std::byte{1});
  CHECK(back[kBytes - 1] == std::byte{'p'});
  // One byte beyond what it has.
  auto beyond = (*session)->PlainMemoryAccess(client.address + kBytes - 1, 2);
  const absl::Status status =
      Start(beyond.get(), true, {{.offset = 0, .host = host.data(), .length = 2}}).get();
  CHECK_THAT(std::string(status.message()), Catch::Contains("no such memory"));

  // Killed in the middle of its work: every copy ends.
  client.Stop();
  auto pending = Start(plain.get(), true, {{.offset = 0, .host = back.data(), .length = kBytes}});
  client.Kill();
  CHECK(ApiCodeOf(pending.get()) == ApiCode::kFailed);
  plain = nullptr;
  beyond = nullptr;
  daemon.WaitEmpty();
  CHECK(daemon.relay_pool->stats().arena_bytes == 0);
}

TEST_CASE("a client that never answers a copy command is ended, its copies fail") {
  TestDaemon daemon(TestDaemon::Options{.copy_timeout_ns = 30 * kNanosPerMilli});
  auto client = TestClient::Open(daemon.socket(), {.probe = false, .serves_copy_commands = true});
  auto other = TestClient::Open(daemon.socket(), {});
  REQUIRE((client.ok() && other.ok()));
  auto session = daemon.server->Find(client->token());
  REQUIRE(session.ok());
  auto plain = (*session)->PlainMemoryAccess(4096, 100);
  std::byte bytes[100];
  auto pending = Start(plain.get(), true, {{.offset = 0, .host = bytes, .length = 100}});
  const absl::Status status = pending.get();
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  CHECK_THAT(std::string(status.message()), Catch::Contains("has ended"));
  CHECK(!(*session)->open());
  CHECK(daemon.server->Find(other->token()).ok());
}

TEST_CASE("a hanging copy ends its session and no one else's") {
  TestDaemon daemon(TestDaemon::Options{.copy_stuck_ns = 20 * kNanosPerMilli});
  auto client = TestClient::Open(daemon.socket(), {});
  auto other = TestClient::Open(daemon.socket(), {});
  REQUIRE((client.ok() && other.ok()));
  const uint64_t id = client->welcome().session_id();
  std::promise<void> gate, hanging;
  // The engine cannot fence a transfer whose copy hangs.
  daemon.HoldReleases();
  // Stands in for memory behind a userfaultfd that nobody serves.
  REQUIRE(daemon.copies()
              .Submit(id, "process_vm_readv of pid 12",
                      [&hanging, open = gate.get_future().share()] {
                        hanging.set_value();
                        open.wait();
                        return false;
                      })
              .ok());
  hanging.get_future().wait();
  const auto goodbye = client->Receive();
  REQUIRE(goodbye.ok());
  CHECK_THAT(goodbye->message.goodbye().reason(), Catch::Contains("process_vm_readv of pid 12"));
  const SessionDescription description = daemon.server->List()[0];
  CHECK(description.id == id);
  CHECK(description.state == "stuck");
  CHECK(description.detail == "process_vm_readv of pid 12");
  // The user's next clients are not probed while it hangs, so that they cannot take more threads.
  {
    auto next = TestClient::Open(daemon.socket(), {});
    REQUIRE(next.ok());
    CHECK(!next->welcome().process_memory_readable());
  }
  // Others go on.
  auto session = daemon.server->Find(other->token());
  REQUIRE(session.ok());
  std::byte source{7}, byte{};
  auto plain = (*session)->PlainMemoryAccess(reinterpret_cast<uint64_t>(&source), 1);
  CHECK(Start(plain.get(), true, {{.offset = 0, .host = &byte, .length = 1}}).get().ok());
  gate.set_value();
  daemon.LetGo();
  other->Close();
  plain = nullptr;
  daemon.WaitEmpty();
}

TEST_CASE("a client that does not read is closed") {
  TestDaemon daemon;
  auto client = TestClient::Open(daemon.socket(), {});
  REQUIRE(client.ok());
  auto session = daemon.server->Find(client->token());
  REQUIRE(session.ok());
  FdMessage message;
  message.set_request_id(1);
  message.mutable_get_arena()->set_arena_id(77);
  // Every packet asks for an answer, and none is read.
  while (client->Send(message).ok()) {
  }
  CHECK(!(*session)->open());
  client->Close();
  daemon.WaitEmpty();
}

TEST_CASE("repeated garbage closes the channel, after clear errors") {
  TestDaemon daemon;
  auto client = TestClient::Open(daemon.socket(), {});
  REQUIRE(client.ok());
  FdMessage message;
  message.set_request_id(4);
  message.mutable_welcome()->set_session_id(1);
  int errors = 0;
  std::string goodbye;
  for (int i = 0; i < 100; ++i) {
    // The channel may be closed by now, with its last words still to be read.
    client->Send(message).IgnoreError();
    const auto answer = client->Receive();
    if (!answer.ok()) break;
    if (answer->message.has_error()) ++errors;
    if (answer->message.has_goodbye()) goodbye = answer->message.goodbye().reason();
  }
  CHECK(errors == 16);
  CHECK(goodbye == "too many bad packets");
  daemon.WaitEmpty();
}

TEST_CASE("hostile packets hurt only those who send them") {
  TestDaemon daemon;
  auto honest = TestClient::Open(daemon.socket(), {});
  REQUIRE(honest.ok());
  std::mt19937 random(11);
  const auto random_message = [&random] {
    FdMessage message;
    message.set_request_id(random() % 4);
    switch (random() % 9) {
      case 0:
        message.mutable_put_memory()->set_size(random());
        break;
      case 1:
        message.mutable_get_arena()->set_arena_id(random() % 10);
        break;
      case 2:
        message.mutable_copy_done()->set_error_number(static_cast<int>(random()));
        break;
      case 3:
        message.mutable_drop_memory()->set_handle(random() % 10);
        break;
      case 4:
        message.mutable_setup_rings()->set_submission_slots(random());
        break;
      case 5:
        message.mutable_error()->set_detail("not a detail");
        break;
      case 6:
        message.mutable_hello()->set_protocol_version(1);
        break;
      case 7:
        message.mutable_copy_command()->add_slices()->set_length(UINT64_MAX);
        break;
      default:
        break;
    }
    return message;
  };
  UniqueFd fd(open("/dev/zero", O_RDWR | O_CLOEXEC));
  for (int client_number = 0; client_number < 60; ++client_number) {
    absl::StatusOr<TestClient> client = random() % 4 == 0 ? TestClient::Connect(daemon.socket())
                                                          : TestClient::Open(daemon.socket(), {});
    REQUIRE(client.ok());
    for (int i = 0; i < 40; ++i) {
      if (random() % 2 == 0) {
        std::string bytes(random() % 3000, '\0');
        for (char& c : bytes) c = static_cast<char>(random());
        if (send(client->socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
          break;
        }
      } else if (!client->Send(random_message(), std::vector<int>(random() % 5, fd.get())).ok()) {
        break;
      }
    }
  }
  // The honest one has noticed nothing.
  UniqueFd memory = *CreateSealedMemfd("honest", 4096);
  CHECK(honest->PutMemory(memory.get(), 4096).ok());
  honest->Close();
  daemon.WaitEmpty();
}

TEST_CASE("a packet that is too long, or has too many descriptors, is refused") {
  TestDaemon daemon;
  auto client = TestClient::Open(daemon.socket(), {});
  REQUIRE(client.ok());
  const std::string bytes(kMaxFdPacketBytes + 1, 'x');
  REQUIRE(send(client->socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
  const auto answer = client->Receive();
  REQUIRE(answer.ok());
  CHECK_THAT(answer->message.error().message(), Catch::Contains("too large"));
}

TEST_CASE("a shutdown says goodbye, waits for the observers and keeps what clients have mapped") {
  auto daemon = std::make_unique<TestDaemon>();
  auto client = TestClient::Open(daemon->socket(), {});
  REQUIRE(client.ok());
  auto session = daemon->server->Find(client->token());
  REQUIRE(session.ok());
  const auto grant = (*session)->AllocateBuffer(4096, MemoryType::kHost, 0, 0);
  REQUIRE(grant.ok());
  auto arena = client->MapArena(grant->arena_id);
  REQUIRE(arena.ok());
  arena->data()[grant->arena_offset] = std::byte{8};
  daemon->HoldReleases();
  CHECK(!daemon->server->Shutdown("going down", MonotonicNanos() + 20 * kNanosPerMilli));
  const auto goodbye = client->Receive();
  REQUIRE(goodbye.ok());
  CHECK(goodbye->message.goodbye().reason() == "going down");
  CHECK(absl::IsUnavailable(client->Receive().status()));
  CHECK(absl::IsUnavailable(TestClient::Connect(daemon->socket()).status()));
  daemon->WaitHeld();
  daemon->LetGo();
  CHECK(daemon->server->Shutdown("going down", MonotonicNanos() + 5 * kNanosPerSecond));
  session = absl::NotFoundError("gone");
  daemon.reset();
  CHECK(arena->data()[grant->arena_offset] == std::byte{8});
}

TEST_CASE("clients come and go on many threads") {
  TestDaemon daemon;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&daemon] {
      UniqueFd memory = *CreateSealedMemfd("storm", 1 << 16);
      for (int i = 0; i < 25; ++i) {
        auto client = TestClient::Open(daemon.socket(), {});
        if (!client.ok() || !client->PutMemory(memory.get(), 1 << 16).ok()) abort();
        auto session = daemon.server->Find(client->token());
        if (!session.ok()) abort();
        if (!(*session)->AllocateBuffer(5000, MemoryType::kHost, 0, 0).ok()) abort();
        (void)daemon.server->List();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(daemon.server->Shutdown("done", MonotonicNanos() + 20 * kNanosPerSecond));
  CHECK(daemon.server->size() == 0);
  CHECK(daemon.host_pool->stats().arena_bytes == 0);
}

}  // namespace
}  // namespace hixld::testing
