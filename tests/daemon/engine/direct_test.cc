// Direct copies as the engines see them: who gets a grant, what takes it back, what is counted.
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>

#include "daemon/direct/direct_copier.h"
#include "daemon/engine/engine.h"
#include "proto/base/memfd.h"
#include "proto/direct/copier.h"
#include "tests/daemon/engine/fakes.h"

namespace hixld {
namespace {

constexpr char kServer[] = "127.0.0.1:26000";
constexpr char kElsewhere[] = "127.0.0.9:26000";
constexpr char kClient[] = "127.0.0.1";
constexpr uint64_t kAddress = 0x20000;
constexpr uint64_t kLength = 0x1000;

ApiCode Code(const absl::Status& status) { return ApiCodeOf(status); }

// Memory that lies in a memfd, or belongs to a process.
class ReachableMemory : public MemoryAccess {
 public:
  explicit ReachableMemory(std::optional<SharedFile> file, std::optional<OwnerProcess> owner = {})
      : MemoryAccess(Kind::kMapped, nullptr, kLength), file_(file), owner_(owner) {}
  void Read(std::vector<Slice>, Done done) override { done(absl::InternalError("not here")); }
  void Write(std::vector<Slice>, Done done) override { done(absl::InternalError("not here")); }
  absl::string_view description() const override { return "test memory"; }
  std::optional<SharedFile> shared_file() const override { return file_; }
  std::optional<OwnerProcess> owner_process() const override { return owner_; }

 private:
  const std::optional<SharedFile> file_;
  const std::optional<OwnerProcess> owner_;
};

uint64_t Add(Engine& engine, uint64_t address, std::shared_ptr<MemoryAccess> access,
             MemoryType type = MemoryType::kHost, uint64_t offset = 0) {
  const auto added = engine.Register({{.address = address,
                                       .length = kLength,
                                       .type = type,
                                       .access = std::move(access),
                                       .access_offset = offset}},
                                     0);
  REQUIRE(added.ok());
  return added->front()->id;
}

absl::StatusOr<uint32_t> Deregister(Engine& engine, uint64_t region) {
  Answer<absl::StatusOr<uint32_t>> answer;
  engine.Deregister({region}, answer.callback());
  return answer.get();
}

struct Pair {
  explicit Pair(uint64_t server_session = 2) {
    room.direct().max_bytes = 1 << 20;
    room.direct().patience_ns = 600 * kNanosPerSecond;
    client = room.Open(kClient, 1);
    server = room.Open(kServer, server_session);
    file = std::move(*CreateSealedMemfd("test", 2 * kLength));
    region = Add(*server, kAddress,
                 std::make_shared<ReachableMemory>(
                     MemoryAccess::SharedFile{.fd = file.get(), .size = 2 * kLength}));
    Watch();
  }
  void Watch() {
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    copier = std::move(*DirectCopier::Create(&room.loop(), "pid 7", std::move(pidfd)));
  }
  uint64_t Connected(const std::string& remote = kServer) {
    Answer<absl::StatusOr<Engine::Connected>> answer;
    client->Connect(remote, 1000, answer.callback());
    return answer.get()->channel_id;
  }
  // The client's end of a fresh grant.
  std::unique_ptr<direct::Copier> Grant(uint64_t channel) {
    auto grant = client->GrantDirect(channel, copier);
    REQUIRE(grant.ok());
    auto attached =
        direct::Copier::Attach(std::move(*MapShared(grant->memory.get(), 0, grant->gate->size())),
                               UniqueFd(dup(copier->wake_fd())));
    REQUIRE(attached.ok());
    return std::move(*attached);
  }

  EngineRoom room;
  std::shared_ptr<Engine> client;
  std::shared_ptr<Engine> server;
  UniqueFd file;
  uint64_t region = 0;
  std::shared_ptr<DirectCopier> copier;
};

TEST_CASE("a grant names the target's memory that clients can reach") {
  Pair pair;
  Add(*pair.server, 0x40000,
      std::make_shared<ReachableMemory>(
          MemoryAccess::SharedFile{.fd = pair.file.get(), .size = 2 * kLength, .offset = 0x800}),
      MemoryType::kHost, 0x100);
  Add(*pair.server, 0x50000,
      std::make_shared<ReachableMemory>(std::nullopt,
                                        MemoryAccess::OwnerProcess{.pid = 99, .pidfd = -1}));
  // Reached by the daemon only; a device's; and one that device memory overlaps.
  AddRegion(*pair.server, 0x60000, kLength);
  AddRegion(*pair.server, 0x70000, kLength, MemoryType::kDevice);
  Add(*pair.server, 0x80000,
      std::make_shared<ReachableMemory>(
          MemoryAccess::SharedFile{.fd = pair.file.get(), .size = 2 * kLength}));
  AddRegion(*pair.server, 0x80800, kLength, MemoryType::kDevice);

  const auto gate = pair.Grant(pair.Connected());
  REQUIRE(gate->regions().size() == 3);
  CHECK(gate->files() == 1);
  CHECK(gate->target_pid() == 99);
  CHECK(gate->regions()[0].address == kAddress);
  CHECK(gate->regions()[0].kind == direct::RegionKind::kFile);
  CHECK(gate->regions()[0].file_offset == 0);
  CHECK(gate->regions()[1].file_offset == 0x900);
  CHECK(gate->regions()[2].kind == direct::RegionKind::kProcess);
  CHECK(gate->max_bytes() == 1 << 20);
}

TEST_CASE("plain memory of an engine of the same process is reached where it is") {
  Pair pair(/*server_session=*/1);
  AddRegion(*pair.server, 0x60000, kLength);
  const auto gate = pair.Grant(pair.Connected());
  REQUIRE(gate->regions().size() == 2);
  CHECK(gate->regions()[0].kind == direct::RegionKind::kFile);
  CHECK(gate->regions()[1].kind == direct::RegionKind::kHere);
  CHECK(gate->files() == 1);
}

TEST_CASE("no grant without a channel, for another daemon, another user, or when they are off") {
  Pair pair;
  CHECK(Code(pair.client->GrantDirect(12345, pair.copier).status()) == ApiCode::kNotConnected);
  const uint64_t remote = pair.Connected(kElsewhere);
  CHECK(Code(pair.client->GrantDirect(remote, pair.copier).status()) == ApiCode::kUnsupported);

  auto stranger = std::make_shared<FakeSession>(3);
  stranger->SetUid(getuid() + 1);
  auto foreign = pair.room.TryOpen("127.0.0.1:26001", stranger);
  REQUIRE(foreign.ok());
  const uint64_t other = pair.Connected("127.0.0.1:26001");
  const absl::Status refused = pair.client->GrantDirect(other, pair.copier).status();
  CHECK(Code(refused) == ApiCode::kUnsupported);
  CHECK(ErrorInfoOf(refused).option == "local.direct");

  const uint64_t channel = pair.Connected();
  pair.room.direct().max_bytes = 0;
  CHECK(Code(pair.client->GrantDirect(channel, pair.copier).status()) == ApiCode::kUnsupported);
}

TEST_CASE("deregistering takes the grant back and waits for a copy in progress") {
  Pair pair;
  const auto gate = pair.Grant(pair.Connected());
  REQUIRE(gate->Enter(0));
  Answer<absl::StatusOr<uint32_t>> answer;
  pair.server->Deregister({pair.region}, answer.callback());
  CHECK(gate->closed());
  CHECK_FALSE(answer.ready());
  gate->Leave(0);
  const auto unknown = answer.get();
  REQUIRE(unknown.ok());
  CHECK(*unknown == 0);
}

TEST_CASE("deregistering what nobody knows leaves grants alone") {
  Pair pair;
  const auto gate = pair.Grant(pair.Connected());
  REQUIRE(gate->Enter(0));
  CHECK(*Deregister(*pair.server, 12345) == 1);
  CHECK_FALSE(gate->closed());
  gate->Leave(0);
}

TEST_CASE("a client that does not leave makes deregistering fail until it does") {
  Pair pair;
  pair.room.direct().patience_ns = kNanosPerMilli;
  const auto gate = pair.Grant(pair.Connected());
  REQUIRE(gate->Enter(0));
  const absl::Status stuck = Deregister(*pair.server, pair.region).status();
  CHECK(Code(stuck) == ApiCode::kFailed);
  CHECK(ErrorInfoOf(stuck).object == "pid 7");
  // Once more, by a client that tries again: the region is gone, the danger is not.
  CHECK(Code(Deregister(*pair.server, pair.region).status()) == ApiCode::kFailed);
  gate->Leave(0);
  CHECK(*Deregister(*pair.server, pair.region) == 1);
}

TEST_CASE("disconnecting takes the grant back and waits for a copy in progress") {
  Pair pair;
  const auto gate = pair.Grant(pair.Connected());
  REQUIRE(gate->Enter(0));
  Answer<absl::Status> answer;
  pair.client->Disconnect(kServer, 600'000, answer.callback());
  CHECK(gate->closed());
  CHECK_FALSE(answer.ready());
  gate->Leave(0);
  CHECK(answer.get().ok());
}

TEST_CASE("closing either engine takes the grant back and waits for a copy in progress") {
  for (const bool initiator : {true, false}) {
    Pair pair;
    const auto gate = pair.Grant(pair.Connected());
    REQUIRE(gate->Enter(0));
    Answer<bool> closed;
    pair.room.registry().Close(initiator ? pair.client : pair.server, "test",
                               [done = closed.callback()]() mutable { done(true); });
    CHECK(gate->closed());
    CHECK_FALSE(closed.ready());
    gate->Leave(0);
    CHECK(closed.get());
  }
}

TEST_CASE("a new grant of a channel takes the former one back") {
  Pair pair;
  const uint64_t channel = pair.Connected();
  const auto former = pair.Grant(channel);
  const auto gate = pair.Grant(channel);
  CHECK(former->closed());
  CHECK_FALSE(gate->closed());
}

TEST_CASE("what the target registers later is told") {
  Pair pair;
  const uint64_t channel = pair.Connected();
  const auto gate = pair.Grant(channel);
  CHECK_FALSE(gate->outdated());
  AddRegion(*pair.server, 0x90000, kLength);
  CHECK(gate->outdated());
  CHECK_FALSE(gate->closed());
  CHECK_FALSE(pair.Grant(channel)->outdated());
}

TEST_CASE("what clients have copied counts for the engine, the channel and the daemon") {
  Pair pair;
  const auto gate = pair.Grant(pair.Connected());
  gate->Count(0, true, 100, 1);
  gate->Count(0, false, 50, 2);
  EngineDescription description = pair.client->Describe();
  CHECK(description.transfers_completed == 2);
  CHECK(description.bytes_read == 100);
  CHECK(description.bytes_written == 50);
  REQUIRE(description.channels.size() == 1);
  CHECK(description.channels[0].transfers == 2);
  CHECK(description.channels[0].direct_transfers == 2);
  CHECK(description.channels[0].direct_bytes == 150);
  CHECK(pair.room.log().Totals().completed == 2);
  CHECK(pair.room.log().Totals().bytes_read == 100);
  // The rest counts when the grant goes.
  gate->Count(0, true, 7, 1);
  CHECK(Disconnect(*pair.client, kServer).ok());
  CHECK(pair.client->Describe().bytes_read == 107);
  CHECK(pair.room.log().Totals().completed == 3);
}

TEST_CASE("a client that is inside too many closed gates gets no more") {
  Pair pair;
  const uint64_t channel = pair.Connected();
  std::vector<std::unique_ptr<direct::Copier>> gates;
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    auto grant = pair.client->GrantDirect(channel, pair.copier);
    status = grant.status();
    if (!grant.ok()) break;
    gates.push_back(std::move(
        *direct::Copier::Attach(std::move(*MapShared(grant->memory.get(), 0, grant->gate->size())),
                                UniqueFd(dup(pair.copier->wake_fd())))));
    REQUIRE(gates.back()->Enter(0));
  }
  CHECK(Code(status) == ApiCode::kResourceExhausted);
  for (auto& gate : gates) gate->Leave(0);
}

}  // namespace
}  // namespace hixld
