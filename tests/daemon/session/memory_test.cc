// What sessions share: descriptors, buffers, arenas, plain memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <future>
#include <thread>

#include "tests/daemon/session/test_client.h"
#include "tests/daemon/session/test_daemon.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace hixld::testing {
namespace {

using Slice = MemoryAccess::Slice;

absl::Status Copy(MemoryAccess* access, bool read, std::vector<Slice> slices) {
  std::promise<absl::Status> promise;
  auto done = [&promise](absl::Status status) { promise.set_value(std::move(status)); };
  if (read) {
    access->Read(std::move(slices), done);
  } else {
    access->Write(std::move(slices), done);
  }
  return promise.get_future().get();
}

// A daemon, a client and its session.
struct Tie {
  explicit Tie(TestDaemon::Options options = TestDaemon::Options(),
               TestClient::Options client_options = TestClient::Options())
      : daemon(options) {
    REQUIRE(daemon.status.ok());
    auto opened = TestClient::Open(daemon.socket(), client_options);
    REQUIRE(opened.ok());
    client = std::make_unique<TestClient>(*std::move(opened));
    auto found = daemon.server->Find(client->token());
    REQUIRE(found.ok());
    session = *std::move(found);
  }

  TestDaemon daemon;
  std::unique_ptr<TestClient> client;
  std::shared_ptr<Session> session;
};

UniqueFd Memfd(size_t size, int seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(fd.valid());
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
  REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

TEST_CASE("a sealed memfd is mapped once and shared by its regions") {
  Tie tie;
  UniqueFd fd = Memfd(16384, F_SEAL_SHRINK);
  auto mine = MapShared(fd.get(), 0, 16384);
  REQUIRE(mine.ok());
  const auto handle = tie.client->PutMemory(fd.get(), 16384);
  REQUIRE(handle.ok());
  uint64_t offset = 0;
  const auto whole = tie.session->SharedMemoryAccess(*handle, 0, 16384, &offset);
  REQUIRE(whole.ok());
  CHECK(offset == 0);
  const auto part = tie.session->SharedMemoryAccess(*handle, 100, 50, &offset);
  REQUIRE(part.ok());
  CHECK(offset == 100);
  CHECK(*part == *whole);
  mine->data()[123] = std::byte{7};
  CHECK((*whole)->mapped()[123] == std::byte{7});

  for (const auto& [bad_offset, bad_length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 16385}, {16384, 1}, {1, 16384}, {0, 0}, {UINT64_MAX, 2}, {2, UINT64_MAX}}) {
    const auto bad = tie.session->SharedMemoryAccess(*handle, bad_offset, bad_length, &offset);
    CHECK(ApiCodeOf(bad.status()) == ApiCode::kParamInvalid);
  }
  const auto unknown = tie.session->SharedMemoryAccess(*handle + 1, 0, 1, &offset);
  CHECK(ErrorInfoOf(unknown.status()).object == "memory handle " + std::to_string(*handle + 1));
}

TEST_CASE("descriptors that are no sealed memfd are refused by name") {
  Tie tie;
  TestDirectory directory;
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  UniqueFd pipe_read(pipe_fds[0]), pipe_write(pipe_fds[1]);
  UniqueFd folder(open(directory.path().c_str(), O_RDONLY | O_DIRECTORY));
  UniqueFd file(open((directory.path() + "/file").c_str(), O_RDWR | O_CREAT, 0600));
  REQUIRE(ftruncate(file.get(), 8192) == 0);
  UniqueFd unsealed = Memfd(8192, 0);
  UniqueFd small = Memfd(4096, F_SEAL_SHRINK);
  UniqueFd read_only_seal = Memfd(8192, F_SEAL_SHRINK | F_SEAL_WRITE);
  UniqueFd null_device(open("/dev/null", O_RDWR));
  UniqueFd good = Memfd(8192, F_SEAL_SHRINK);
  UniqueFd opened_for_reading(
      open(("/proc/self/fd/" + std::to_string(good.get())).c_str(), O_RDONLY));
  const std::vector<std::pair<int, std::string>> bad = {
      {pipe_read.get(), "a pipe"},
      {folder.get(), "a directory"},
      {file.get(), "a file, not a memfd"},
      {unsealed.get(), "not sealed against shrinking"},
      {small.get(), "4096 bytes, 8192 were stated"},
      {read_only_seal.get(), "sealed against writing"},
      {null_device.get(), "a character device"},
      {opened_for_reading.get(), "not open for writing"},
      {tie.client->socket(), "a socket"},
  };
  for (const auto& [fd, text] : bad) {
    INFO(text);
    const auto handle = tie.client->PutMemory(fd, 8192);
    REQUIRE(!handle.ok());
    CHECK(ApiCodeOf(handle.status()) == ApiCode::kParamInvalid);
    CHECK_THAT(std::string(handle.status().message()), Catch::Contains(text));
    CHECK(ErrorInfoOf(handle.status()).object == "memory descriptor");
  }
  CHECK(ApiCodeOf(tie.client->PutMemory(good.get(), 0).status()) == ApiCode::kParamInvalid);
  CHECK(tie.client->PutMemory(good.get(), 8192).ok());

  UniqueFd huge(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (huge.valid() && ftruncate(huge.get(), 2 << 20) == 0) {
    fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    const auto handle = tie.client->PutMemory(huge.get(), 2 << 20);
    CHECK_THAT(std::string(handle.status().message()), Catch::Contains("huge pages"));
  }
}

TEST_CASE("PutMemory needs one descriptor") {
  Tie tie;
  UniqueFd fd = Memfd(4096, F_SEAL_SHRINK);
  FdMessage message;
  message.set_request_id(9);
  message.mutable_put_memory()->set_size(4096);
  for (const auto& fds : {std::vector<int>{}, std::vector<int>{fd.get(), fd.get()}}) {
    const auto answer = tie.client->Ask(message, fds);
    CHECK(ApiCodeOf(answer.status()) == ApiCode::kParamInvalid);
    CHECK(ErrorInfoOf(answer.status()).allowed == "one descriptor");
  }
}

TEST_CASE("memory that is shared cannot be shrunk behind the daemon's back") {
  Tie tie;
  UniqueFd fd = Memfd(8192, F_SEAL_SHRINK);
  const auto handle = tie.client->PutMemory(fd.get(), 8192);
  REQUIRE(handle.ok());
  CHECK(ftruncate(fd.get(), 4096) != 0);
  uint64_t offset;
  auto access = tie.session->SharedMemoryAccess(*handle, 0, 8192, &offset);
  REQUIRE(access.ok());
  // A hole is no shrinking: it reads as zeros.
  memset((*access)->mapped(), 1, 8192);
  REQUIRE(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0);
  CHECK((*access)->mapped()[8000] == std::byte{0});
}

TEST_CASE("dropped memory lives on in its regions and frees its handle") {
  TestDaemon::Options options;
  options.limits.max_memory_handles_per_session = 2;
  Tie tie(options);
  UniqueFd fd = Memfd(4096, F_SEAL_SHRINK);
  const auto first = tie.client->PutMemory(fd.get(), 4096);
  REQUIRE(first.ok());
  REQUIRE(tie.client->PutMemory(fd.get(), 4096).ok());
  const auto over = tie.client->PutMemory(fd.get(), 4096);
  CHECK(ApiCodeOf(over.status()) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(over.status()).option == "limits.max_memory_handles_per_session");
  uint64_t offset;
  auto access = tie.session->SharedMemoryAccess(*first, 0, 4096, &offset);
  REQUIRE(access.ok());
  FdMessage drop;
  drop.mutable_drop_memory()->set_handle(*first);
  REQUIRE(tie.client->Send(drop).ok());
  // Not answered; the next answer tells that it has been done.
  CHECK(tie.client->PutMemory(fd.get(), 4096).ok());
  CHECK(!tie.session->SharedMemoryAccess(*first, 0, 4096, &offset).ok());
  (*access)->mapped()[0] = std::byte{1};
}

TEST_CASE("a thousand handles come and go without a trace") {
  Tie tie;
  UniqueFd fd = Memfd(4096, F_SEAL_SHRINK);
  const auto round = [&tie, &fd] {
    const auto handle = tie.client->PutMemory(fd.get(), 4096);
    REQUIRE(handle.ok());
    FdMessage drop;
    drop.mutable_drop_memory()->set_handle(*handle);
    REQUIRE(tie.client->Send(drop).ok());
  };
  // Behind everything that the session has to give back.
  const auto settle = [&tie] {
    std::promise<void> done;
    REQUIRE(tie.client->MapArena(0).status().message() == "unknown arena 0");
    REQUIRE(tie.session->RunBlocking("settle", [&done] { done.set_value(); }).ok());
    done.get_future().wait();
  };
  round();
  settle();
  const Holdings before = Holdings::Now();
  for (int i = 0; i < 1000; ++i) round();
  settle();
  CHECK(before.Regained());
}

TEST_CASE("host buffers are mapped by the client and seen by the daemon") {
  Tie tie;
  const auto grant = tie.session->AllocateBuffer(10'000, MemoryType::kHost, 0, 0);
  REQUIRE(grant.ok());
  CHECK(grant->length == 12288);
  CHECK(grant->mappable);
  CHECK(grant->device_address == 0);
  auto arena = tie.client->MapArena(grant->arena_id);
  REQUIRE(arena.ok());
  CHECK(arena->size() == grant->arena_size);
  uint64_t offset;
  auto access = tie.session->BufferAccess(grant->buffer_id, 100, 12288 - 100, &offset);
  REQUIRE(access.ok());
  CHECK((*access)->kind() == MemoryAccess::Kind::kMapped);
  arena->data()[grant->arena_offset + 123] = std::byte{9};
  CHECK((*access)->mapped()[offset + 23] == std::byte{9});
  CHECK(!tie.session->BufferAccess(grant->buffer_id, 1, 12288, &offset).ok());
  CHECK(tie.session->Describe().buffer_bytes == 12288);

  // Freed: the id is gone, the region's memory is not.
  REQUIRE(tie.session->FreeBuffer(grant->buffer_id).ok());
  CHECK(ApiCodeOf(tie.session->FreeBuffer(grant->buffer_id)) == ApiCode::kParamInvalid);
  CHECK(!tie.session->BufferAccess(grant->buffer_id, 0, 1, &offset).ok());
  CHECK((*access)->mapped()[123] == std::byte{9});
  CHECK(tie.session->Describe().buffer_bytes == 12288);
  CHECK(tie.daemon.host_pool->stats().buffers == 1);
  CHECK(!tie.client->MapArena(grant->arena_id).ok());
  *access = nullptr;
  std::promise<void> done;
  REQUIRE(tie.session->RunBlocking("settle", [&done] { done.set_value(); }).ok());
  done.get_future().wait();
  CHECK(tie.daemon.host_pool->stats().buffers == 0);
  CHECK(tie.session->Describe().buffer_bytes == 0);
}

TEST_CASE("one session's arenas are unknown to another") {
  Tie tie;
  const auto grant = tie.session->AllocateBuffer(4096, MemoryType::kHost, 0, 0);
  REQUIRE(grant.ok());
  auto other = TestClient::Open(tie.daemon.socket(), {});
  REQUIRE(other.ok());
  const auto stolen = other->MapArena(grant->arena_id);
  CHECK(ApiCodeOf(stolen.status()) == ApiCode::kParamInvalid);
  auto session = tie.daemon.server->Find(other->token());
  REQUIRE(session.ok());
  const auto theirs = (*session)->AllocateBuffer(4096, MemoryType::kHost, 0, 0);
  REQUIRE(theirs.ok());
  CHECK(theirs->arena_id != grant->arena_id);
}

TEST_CASE("limits on buffers name their options") {
  TestDaemon::Options options;
  options.limits.max_buffers_per_session = 2;
  options.limits.max_buffer_bytes_per_session = 1 << 20;
  Tie tie(options);
  const auto large = tie.session->AllocateBuffer((1 << 20) + 1, MemoryType::kHost, 0, 0);
  CHECK(ApiCodeOf(large.status()) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(large.status()).option == "limits.max_buffer_bytes_per_session");
  CHECK(!tie.session->AllocateBuffer(UINT64_MAX, MemoryType::kHost, 0, 0).ok());
  CHECK(ApiCodeOf(tie.session->AllocateBuffer(0, MemoryType::kHost, 0, 0).status()) ==
        ApiCode::kParamInvalid);
  CHECK(ApiCodeOf(tie.session->AllocateBuffer(1, MemoryType::kHost, 3, 0).status()) ==
        ApiCode::kParamInvalid);
  // What failed has been given back.
  std::promise<void> done;
  REQUIRE(tie.session->RunBlocking("settle", [&done] { done.set_value(); }).ok());
  done.get_future().wait();
  CHECK(tie.session->Describe().buffer_bytes == 0);
  REQUIRE(tie.session->AllocateBuffer(1, MemoryType::kHost, 0, 0).ok());
  REQUIRE(tie.session->AllocateBuffer(1, MemoryType::kDevice, 0, 1).ok());
  const auto third = tie.session->AllocateBuffer(1, MemoryType::kHost, 0, 0);
  CHECK(ErrorInfoOf(third.status()).option == "limits.max_buffers_per_session");
}

TEST_CASE("device buffers are reached by the copy engine and can be looked at") {
  Tie tie;
  const auto grant = tie.session->AllocateBuffer(8192, MemoryType::kDevice, 0, 1);
  REQUIRE(grant.ok());
  CHECK(grant->device_address != 0);
  CHECK(grant->mappable);
  uint64_t offset;
  auto access = tie.session->BufferAccess(grant->buffer_id, 0, 8192, &offset);
  REQUIRE(access.ok());
  CHECK((*access)->kind() == MemoryAccess::Kind::kDevice);
  CHECK((*access)->mapped() == nullptr);
  std::vector<std::byte> host(8192, std::byte{5});
  REQUIRE(Copy(access->get(), false, {{.offset = 0, .host = host.data(), .length = 8192}}).ok());
  auto view = tie.client->MapArena(grant->arena_id);
  REQUIRE(view.ok());
  CHECK(memcmp(view->data() + grant->arena_offset, host.data(), 8192) == 0);
  const auto unknown = tie.session->AllocateBuffer(1, MemoryType::kDevice, 0, 9);
  CHECK(ErrorInfoOf(unknown.status()).allowed == "0, 1");
}

TEST_CASE("plain memory is reached by process_vm where the probe succeeded") {
  Tie tie;
  std::vector<std::byte> mine(100'000, std::byte{3});
  auto access =
      tie.session->PlainMemoryAccess(reinterpret_cast<uint64_t>(mine.data()), mine.size());
  CHECK(access->kind() == MemoryAccess::Kind::kProcess);
  std::vector<std::byte> host(1000);
  REQUIRE(Copy(access.get(), true, {{.offset = 7, .host = host.data(), .length = 1000}}).ok());
  CHECK(host[999] == std::byte{3});
  // Registration never touches the memory; a copy of memory that is not there fails.
  auto nowhere = tie.session->PlainMemoryAccess(1234, 10);
  const absl::Status status =
      Copy(nowhere.get(), false, {{.offset = 0, .host = host.data(), .length = 10}});
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  CHECK_THAT(std::string(status.message()), Catch::Contains("0x4d2"));
}

TEST_CASE("plain memory that nobody may reach fails with what helps") {
  Tie tie(TestDaemon::Options(), {.probe = false});
  std::byte byte{};
  auto access = tie.session->PlainMemoryAccess(reinterpret_cast<uint64_t>(&byte), 1);
  const absl::Status status = Copy(access.get(), true, {{.offset = 0, .host = &byte, .length = 1}});
  CHECK(ApiCodeOf(status) == ApiCode::kFailed);
  CHECK_THAT(ErrorInfoOf(status).allowed, Catch::Contains("memfd"));
}

TEST_CASE("device memory that only its owner reaches is copied by command") {
  TestDaemon::Options options;
  options.sim.place = ExecutionPlace::kClient;
  Tie tie(options, {.probe = false, .serves_copy_commands = true});
  const auto grant = tie.session->AllocateBuffer(4096, MemoryType::kDevice, 0, 1);
  REQUIRE(grant.ok());
  uint64_t offset;
  auto access = tie.session->BufferAccess(grant->buffer_id, 0, 4096, &offset);
  REQUIRE(access.ok());
  CHECK((*access)->kind() == MemoryAccess::Kind::kExecutor);
  std::byte byte{};
  std::promise<absl::Status> promise;
  (*access)->Read({{.offset = 9, .host = &byte, .length = 1}},
                  [&promise](absl::Status status) { promise.set_value(std::move(status)); });
  const auto packet = tie.client->Receive();
  REQUIRE(packet.ok());
  const auto& command = packet->message.copy_command();
  CHECK(command.device_memory());
  CHECK(command.device_id() == 1);
  REQUIRE(command.slices_size() == 1);
  CHECK(command.slices(0).client_address() == grant->device_address + 9);
  auto arena = tie.client->MapArena(command.arena_id());
  REQUIRE(arena.ok());
  arena->data()[command.slices(0).arena_offset()] = std::byte{42};
  FdMessage answer;
  answer.set_request_id(packet->message.request_id());
  answer.mutable_copy_done();
  REQUIRE(tie.client->Send(answer).ok());
  REQUIRE(promise.get_future().get().ok());
  CHECK(byte == std::byte{42});

  Tie deaf(options, {.probe = false});
  CHECK(ApiCodeOf(deaf.session->AllocateBuffer(1, MemoryType::kDevice, 0, 0).status()) ==
        ApiCode::kUnsupported);
}

TEST_CASE("rings are refused as unsupported for now") {
  Tie tie;
  FdMessage message;
  message.set_request_id(5);
  message.mutable_setup_rings()->set_submission_slots(64);
  CHECK(ApiCodeOf(tie.client->Ask(message).status()) == ApiCode::kUnsupported);
}

TEST_CASE("a session that has ended refuses everything") {
  Tie tie;
  UniqueFd fd = Memfd(4096, F_SEAL_SHRINK);
  const auto handle = tie.client->PutMemory(fd.get(), 4096);
  const auto grant = tie.session->AllocateBuffer(1, MemoryType::kHost, 0, 0);
  REQUIRE((handle.ok() && grant.ok()));
  tie.client->Close();
  tie.daemon.WaitEmpty();
  CHECK(!tie.session->open());
  uint64_t offset;
  for (const absl::Status& status :
       {tie.session->SharedMemoryAccess(*handle, 0, 1, &offset).status(),
        tie.session->BufferAccess(grant->buffer_id, 0, 1, &offset).status(),
        tie.session->AllocateBuffer(1, MemoryType::kHost, 0, 0).status(),
        tie.session->RunBlocking("x", [] {})}) {
    CHECK(ApiCodeOf(status) == ApiCode::kFailed);
    CHECK_THAT(std::string(status.message()), Catch::Contains("has ended"));
  }
  CHECK(tie.daemon.host_pool->stats().arenas == 0);
}

}  // namespace
}  // namespace hixld::testing
