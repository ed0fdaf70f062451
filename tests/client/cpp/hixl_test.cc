// Class Hixl and HixlExt against a fake daemon: codes and order of checks (contract 1.3), links,
// transfers, buffers, forks, and daemons that die and come back.
#include "hixl/hixl.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hixl/hixl_ext.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"
#include "tests/client/cpp/fake_daemon.h"

namespace hixl {
namespace {

using hixld::testing::FakeDaemon;
using hixld::testing::TemporaryDirectory;
using Options = std::map<AscendString, AscendString>;

// Long enough for any machine; nothing here waits for it to pass.
constexpr int32_t kLong = 60000;

constexpr char kServer[] = "127.0.0.1:26001";
constexpr char kClient[] = "127.0.0.1:26000";
// HixlEngine: the kind that answers everything.
const Options kFull = {{OPTION_LOCAL_COMM_RES, R"({"version":"1.3"})"}};

MemDesc Range(const void* address, size_t length) {
  MemDesc desc{};
  desc.addr = reinterpret_cast<uintptr_t>(address);
  desc.len = length;
  return desc;
}

TransferOpDesc Piece(const void* local, const void* remote, size_t length) {
  return {reinterpret_cast<uintptr_t>(local), reinterpret_cast<uintptr_t>(remote), length};
}

// Waits for something that another thread brings about.
bool Eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A fake daemon that this process's engines find.
struct Node {
  Node() {
    setenv("HIXLD_SOCKET", directory.file("hixld.sock").c_str(), 1);
    setenv("HIXLD_NO_AUTOSTART", "1", 1);
    Start();
  }
  void Start() { daemon = std::make_unique<FakeDaemon>(directory.file("hixld.sock")); }
  void Kill() { daemon.reset(); }

  TemporaryDirectory directory;
  std::unique_ptr<FakeDaemon> daemon;
};

// Two engines on it, with memory of 64 KiB each.
struct Pair {
  explicit Pair(const Options& options = kFull) {
    REQUIRE(server.Initialize(kServer, kFull) == SUCCESS);
    REQUIRE(client.Initialize(kClient, options) == SUCCESS);
    REQUIRE(server.RegisterMem(Range(there.data(), there.size()), MEM_HOST, handle) == SUCCESS);
    REQUIRE(client.RegisterMem(Range(here.data(), here.size()), MEM_HOST, handle) == SUCCESS);
  }
  std::vector<TransferOpDesc> All() const {
    return {Piece(here.data(), there.data(), here.size())};
  }

  Node node;
  std::vector<char> here = std::vector<char>(65536, 1);
  std::vector<char> there = std::vector<char>(65536, 2);
  MemHandle handle = nullptr;
  Hixl server;
  Hixl client;
};

TEST_CASE("every call on an engine that is not initialised is FAILED") {
  std::vector<Hixl> engines(4);
  Hixl& engine = engines[0];
  MemHandle handle = nullptr;
  TransferReq request = nullptr;
  TransferStatus state = TransferStatus::WAITING;
  std::vector<TransferResult> results;
  std::vector<NotifyDesc> notifies;
  AsyncConnectStatus link = AsyncConnectStatus::CONNECTED;
  std::map<AscendString, AsyncConnectStatus> links;
  CHECK(engine.RegisterMem({}, MEM_HOST, handle) == FAILED);
  CHECK(engine.DeregisterMem(nullptr) == FAILED);
  CHECK(engine.Connect("x", -1) == FAILED);
  CHECK(engine.Disconnect("x", -1) == FAILED);
  CHECK(engine.ConnectAsync("x", -1) == FAILED);
  CHECK(engine.DisconnectAsync("x", -1) == FAILED);
  CHECK(engine.GetAsyncConnectStatus("x", link) == FAILED);
  CHECK(engine.GetAsyncConnectStatus(links) == FAILED);
  CHECK(engine.TransferSync("x", READ, {}, -1) == FAILED);
  CHECK(engine.TransferAsync("x", READ, {}, {}, request) == FAILED);
  CHECK(engine.GetTransferStatus(request, state) == FAILED);
  CHECK(state == TransferStatus::WAITING);
  CHECK(engine.GetTransferStatus({}, results) == FAILED);
  CHECK(engine.SendNotify("x", {}, -1) == FAILED);
  CHECK(engine.GetNotifies(notifies) == FAILED);
  CHECK(HixlExt::LastError().text_code == "HIXL_001003");
  engine.Finalize();
  int32_t value = -1;
  CHECK(Hixl::GetCapability(AUTO_CONNECT, value) == SUCCESS);
  CHECK(value == FEATURE_SUPPORTED);
  CHECK(Hixl::GetCapability(static_cast<FeatureType>(2), value) == SUCCESS);
  CHECK(value == FEATURE_NOT_SUPPORTED);
  CHECK(Hixl::GetCapability(static_cast<FeatureType>(-1), value) == PARAM_INVALID);
}

TEST_CASE("initialize checks options, then the address; failures can be corrected") {
  Node node;
  Hixl engine;
  CHECK(engine.Initialize("ad.0.0.1:26200", {}) == PARAM_INVALID);
  CHECK(engine.Initialize(kClient, {{"InvalidOption", "x"}}) == PARAM_INVALID);
  CHECK(HixlExt::LastError().option == "InvalidOption");
  CHECK(engine.Initialize(kClient, {{OPTION_GLOBAL_RESOURCE_CONFIG,
                                     R"({"connect_pool.thread_num":"0"})"}}) == PARAM_INVALID);
  CHECK(node.daemon->engines() == 0);
  CHECK(engine.Initialize(kClient, {{"adxl.RdmaTrafficClass", "40"}}) == SUCCESS);
  CHECK(node.daemon->last_open().options().at("RdmaTrafficClass") == "40");
  SECTION("on a live engine bad options are refused and nothing else happens") {
    CHECK(engine.Initialize(kClient, {{"InvalidOption", "x"}}) == PARAM_INVALID);
    CHECK(engine.Initialize("no address", {}) == PARAM_INVALID);
    CHECK(engine.Initialize("127.0.0.1:1", {}) == SUCCESS);
    CHECK(node.daemon->Count("OpenEngineRequest") == 1);
  }
  SECTION("finalised, it may start again") {
    engine.Finalize();
    engine.Finalize();
    CHECK(node.daemon->engines() == 0);
    CHECK(Eventually([&] { return node.daemon->sessions() == 0; }));
    CHECK(engine.Initialize(kClient, {}) == SUCCESS);
  }
  SECTION("engines of one process share a session") {
    Hixl other;
    CHECK(other.Initialize("127.0.0.1:0", {}) == SUCCESS);
    CHECK(node.daemon->sessions() == 1);
    CHECK(node.daemon->probed_sessions() == 1);
  }
}

TEST_CASE("an engine may listen on any port and then has that name") {
  Node node;
  Hixl engine;
  InitializeExtArgs args;
  args.listen_on_any_port = true;
  REQUIRE(HixlExt::Initialize(engine, "127.0.0.1", {}, args) == SUCCESS);
  AscendString id;
  CHECK(HixlExt::EngineId(engine, id) == SUCCESS);
  CHECK(id == "127.0.0.1:40001");
  CHECK(engine.Connect("127.0.0.1:40001", kLong) == PARAM_INVALID);
}

TEST_CASE("registration keeps the contract's order and rules") {
  Node node;
  Hixl engine;
  REQUIRE(engine.Initialize(kClient, kFull) == SUCCESS);
  MemHandle first = nullptr;
  MemHandle second = nullptr;
  CHECK(engine.RegisterMem(Range(nullptr, 16), MEM_HOST, first) == PARAM_INVALID);
  CHECK(engine.RegisterMem(Range("x", 0), MEM_HOST, first) == PARAM_INVALID);
  MemDesc overflow{};
  overflow.addr = UINTPTR_MAX;
  overflow.len = 2;
  CHECK(engine.RegisterMem(overflow, MEM_HOST, first) == PARAM_INVALID);
  CHECK(HixlExt::LastError().text_code == "HIXL_001001");
  CHECK(first == nullptr);

  // Nothing is touched: these addresses do not exist.
  MemDesc tiny{};
  tiny.addr = 1;
  tiny.len = 1;
  REQUIRE(engine.RegisterMem(tiny, MEM_HOST, first) == SUCCESS);
  CHECK(engine.RegisterMem(tiny, MEM_HOST, second) == SUCCESS);
  CHECK(first == second);
  CHECK(node.daemon->Count("RegisterMemoryRequest") == 1);
  tiny.len = 10;
  CHECK(engine.RegisterMem(tiny, MEM_HOST, second) == PARAM_INVALID);
  CHECK(engine.RegisterMem(tiny, MEM_DEVICE, second) == SUCCESS);

  CHECK(engine.DeregisterMem(nullptr) == PARAM_INVALID);
  CHECK(engine.DeregisterMem(reinterpret_cast<MemHandle>(0x100)) == SUCCESS);
  CHECK(engine.DeregisterMem(first) == SUCCESS);
  CHECK(engine.DeregisterMem(first) == SUCCESS);
  CHECK(node.daemon->regions() == 1);
}

TEST_CASE("many ranges are registered in one round trip, all or none") {
  Node node;
  Hixl engine;
  REQUIRE(engine.Initialize(kClient, kFull) == SUCCESS);
  std::vector<MemDesc> ranges;
  for (uintptr_t i = 1; i <= 1000; ++i)
    ranges.push_back(Range(reinterpret_cast<void*>(i << 20), 4096));
  std::vector<MemHandle> handles;
  REQUIRE(HixlExt::RegisterMemBatch(engine, ranges, MEM_HOST, handles) == SUCCESS);
  CHECK(handles.size() == 1000);
  CHECK(node.daemon->Count("RegisterMemoryRequest") == 1);
  CHECK(HixlExt::DeregisterMemBatch(engine, handles) == SUCCESS);
  CHECK(node.daemon->Count("DeregisterMemoryRequest") == 1);
  CHECK(node.daemon->regions() == 0);
  ranges.back().addr = ranges.front().addr + 1;
  CHECK(HixlExt::RegisterMemBatch(engine, ranges, MEM_HOST, handles) == PARAM_INVALID);
  CHECK(node.daemon->regions() == 0);
}

TEST_CASE("eight threads that register the same ranges get the same handles") {
  Node node;
  Hixl engine;
  REQUIRE(engine.Initialize(kClient, kFull) == SUCCESS);
  std::vector<std::vector<MemHandle>> handles(8, std::vector<MemHandle>(50));
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (auto& mine : handles) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < mine.size(); ++i) {
        const MemDesc range = Range(reinterpret_cast<void*>((i + 1) << 20), 4096);
        failures += engine.RegisterMem(range, MEM_HOST, mine[i]) == SUCCESS ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  for (const auto& mine : handles) CHECK(mine == handles[0]);
  CHECK(node.daemon->regions() == 50);
}

TEST_CASE("links: codes, direction, and memory that cannot leave meanwhile") {
  Pair pair;
  CHECK(pair.client.Connect(kServer, 0) == PARAM_INVALID);
  CHECK(pair.client.Connect(kClient) == PARAM_INVALID);
  CHECK(pair.client.Connect("localhost:1") == PARAM_INVALID);
  CHECK(pair.client.Connect("127.0.0.1:19999", kLong) == FAILED);
  CHECK(pair.client.Disconnect(kServer, -1) == PARAM_INVALID);
  CHECK(pair.client.Disconnect(kServer, kLong) == NOT_CONNECTED);
  CHECK(pair.client.Connect(kServer, kLong) == SUCCESS);
  CHECK(pair.client.Connect(kServer, kLong) == ALREADY_CONNECTED);
  CHECK(pair.client.DeregisterMem(pair.handle) == FAILED);
  MemHandle theirs = nullptr;
  REQUIRE(pair.server.RegisterMem(Range(pair.there.data(), pair.there.size()), MEM_HOST, theirs) ==
          SUCCESS);
  CHECK(pair.server.DeregisterMem(theirs) == SUCCESS);
  CHECK(pair.client.Disconnect(kServer, kLong) == SUCCESS);
  CHECK(pair.client.Disconnect(kServer, kLong) == NOT_CONNECTED);
  CHECK(pair.client.DeregisterMem(pair.handle) == SUCCESS);
}

TEST_CASE("of twenty concurrent connects exactly one succeeds") {
  Pair pair;
  std::atomic<int> succeeded{0};
  std::atomic<int> already{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&] {
      const Status status = pair.client.Connect(kServer, kLong);
      succeeded += status == SUCCESS ? 1 : 0;
      already += status == ALREADY_CONNECTED ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(succeeded == 1);
  CHECK(already == 19);
}

TEST_CASE("transfers: order of checks and bytes") {
  Pair pair;
  const auto all = pair.All();
  const std::vector<TransferOpDesc> null_local = {Piece(nullptr, pair.there.data(), 1)};
  CHECK(pair.client.TransferSync(kServer, READ, null_local, 0) == PARAM_INVALID);
  CHECK(pair.client.TransferSync(kServer, READ, null_local) == PARAM_INVALID);
  CHECK(pair.client.TransferSync(kServer, READ, {}) == NOT_CONNECTED);
  CHECK(pair.client.TransferSync(kServer, READ, all, kLong) == NOT_CONNECTED);
  REQUIRE(pair.client.Connect(kServer, kLong) == SUCCESS);
  CHECK(pair.client.TransferSync(kServer, READ, {}) == PARAM_INVALID);
  CHECK(pair.client.TransferSync(kServer, READ, {Piece(pair.here.data(), pair.there.data(), 0)}) ==
        PARAM_INVALID);
  CHECK(pair.client.TransferSync(kServer, READ, {Piece(pair.here.data(), "", 1)}) == PARAM_INVALID);
  CHECK(pair.client.TransferSync(kServer, READ, all, kLong) == SUCCESS);
  CHECK(pair.here == pair.there);
  pair.here[0] = 9;
  const uint64_t local = reinterpret_cast<uint64_t>(pair.here.data());
  const uint64_t remote = reinterpret_cast<uint64_t>(pair.there.data());
  const uint64_t length = 100;
  const TransferArrays arrays = {&local, &remote, &length, 1};
  CHECK(HixlExt::TransferSync(pair.client, kServer, WRITE, arrays) == SUCCESS);
  CHECK(pair.there[0] == 9);
}

TEST_CASE("asynchronous transfers are told once, in order of submission") {
  Pair pair;
  const auto all = pair.All();
  TransferReq request = nullptr;
  TransferStatus state = TransferStatus::WAITING;
  CHECK(pair.client.TransferAsync(kServer, READ, all, {}, request) == NOT_CONNECTED);
  CHECK(request == nullptr);
  REQUIRE(pair.client.Connect(kServer, kLong) == SUCCESS);
  CHECK(pair.client.GetTransferStatus(nullptr, state) == FAILED);
  REQUIRE(pair.client.TransferAsync(kServer, READ, all, {}, request) == SUCCESS);
  CHECK(pair.client.GetTransferStatus(request, state) == SUCCESS);
  CHECK(state == TransferStatus::COMPLETED);
  CHECK(pair.client.GetTransferStatus(request, state) == PARAM_INVALID);
  CHECK(state == TransferStatus::FAILED);

  TransferArgs args;
  std::vector<TransferReq> requests(6);
  for (size_t i = 0; i < requests.size(); ++i) {
    args.user_data = &requests[i];
    REQUIRE(pair.client.TransferAsync(kServer, READ, all, args, requests[i]) == SUCCESS);
  }
  std::vector<TransferResult> results(3);
  GetTransferStatusArgs limits;
  limits.max_query_count = 0;
  CHECK(pair.client.GetTransferStatus(limits, results) == SUCCESS);
  CHECK(results.empty());
  limits.max_query_count = 4;
  REQUIRE(pair.client.GetTransferStatus(limits, results) == SUCCESS);
  REQUIRE(results.size() == 4);
  for (size_t i = 0; i < results.size(); ++i) {
    CHECK(results[i].req == requests[i]);
    CHECK(results[i].user_data == &requests[i]);
    CHECK(results[i].status == TransferStatus::COMPLETED);
  }
  // What was not reached stays, although the daemon has told it already.
  CHECK(pair.client.GetTransferStatus(requests[4], state) == SUCCESS);
  CHECK(state == TransferStatus::COMPLETED);
  SECTION("a disconnect drops what is outstanding") {
    CHECK(pair.client.Disconnect(kServer, kLong) == SUCCESS);
    CHECK(pair.client.GetTransferStatus(requests[5], state) == PARAM_INVALID);
    CHECK(state == TransferStatus::FAILED);
  }
  SECTION("only what is outstanding is told") {
    CHECK(pair.client.GetTransferStatus({}, results) == SUCCESS);
    CHECK(results.size() == 1);
  }
}

TEST_CASE("a failed transfer tells why") {
  Pair pair;
  REQUIRE(pair.client.Connect(kServer, kLong) == SUCCESS);
  TransferReq request = nullptr;
  TransferStatus state = TransferStatus::WAITING;
  REQUIRE(pair.client.TransferAsync(kServer, READ, {Piece(pair.here.data(), "", 1)}, {}, request) ==
          SUCCESS);
  CHECK(pair.client.GetTransferStatus(request, state) == SUCCESS);
  CHECK(state == TransferStatus::FAILED);
  CHECK_THAT(HixlExt::LastErrorText(), Catch::Contains("piece 0 is not registered"));
}

TEST_CASE("the batch query is for the engines that have it") {
  Pair pair(Options{});
  std::vector<TransferResult> results;
  CHECK(pair.client.GetTransferStatus({}, results) == UNSUPPORTED);
  REQUIRE(pair.client.Connect(kServer, kLong) == SUCCESS);
  CHECK(pair.client.DeregisterMem(pair.handle) == SUCCESS);
}

TEST_CASE("AutoConnect links on demand and drops a link after an error") {
  Options options = kFull;
  options[OPTION_AUTO_CONNECT] = "1";
  Pair pair(options);
  const auto all = pair.All();
  CHECK(pair.client.TransferSync("127.0.0.1:19999", READ, all, kLong) == FAILED);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      failures += pair.client.TransferSync(kServer, READ, all, kLong) == SUCCESS ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(pair.client.Connect(kServer, kLong) == ALREADY_CONNECTED);
  CHECK(pair.client.TransferSync(kServer, READ, {Piece(pair.here.data(), "", 1)}) == PARAM_INVALID);
  CHECK(pair.node.daemon->channels() == 0);
  CHECK(pair.client.TransferSync(kServer, READ, all, kLong) == SUCCESS);
  CHECK(pair.client.Disconnect(kServer, kLong) == SUCCESS);
}

TEST_CASE("AutoConnect makes a link again that the daemon has dropped") {
  Options options = kFull;
  options[OPTION_AUTO_CONNECT] = "1";
  Pair pair(options);
  REQUIRE(pair.client.TransferSync(kServer, READ, pair.All(), kLong) == SUCCESS);
  std::atomic<int> refusals{1};
  pair.node.daemon->SetHook([&](const google::protobuf::Message& request) {
    const bool refuse = request.GetDescriptor()->name() == "TransferRequest" && refusals-- > 0;
    return refuse ? hixld::NotConnected("the peer is gone") : absl::OkStatus();
  });
  CHECK(pair.client.TransferSync(kServer, READ, pair.All(), kLong) == SUCCESS);
}

TEST_CASE("connects in the background are told by their status") {
  Pair pair;
  AsyncConnectStatus link = AsyncConnectStatus::CONNECTED;
  std::map<AscendString, AsyncConnectStatus> links;
  CHECK(pair.client.ConnectAsync(kServer, 0) == PARAM_INVALID);
  CHECK(pair.client.GetAsyncConnectStatus(kServer, link) == SUCCESS);
  CHECK(link == AsyncConnectStatus::NOT_CONNECT);
  CHECK(pair.client.ConnectAsync(kServer, kLong) == SUCCESS);
  CHECK(pair.client.ConnectAsync("127.0.0.1:19999", kLong) == SUCCESS);
  CHECK(Eventually([&] {
    pair.client.GetAsyncConnectStatus(links);
    return links["127.0.0.1:26001"] == AsyncConnectStatus::CONNECTED &&
           links["127.0.0.1:19999"] == AsyncConnectStatus::CONNECT_FAILED;
  }));
  CHECK(pair.client.DisconnectAsync(kServer, kLong) == SUCCESS);
  CHECK(pair.client.DisconnectAsync("127.0.0.1:19999", kLong) == SUCCESS);
  CHECK(Eventually([&] {
    pair.client.GetAsyncConnectStatus(links);
    return links.empty();
  }));
  CHECK(pair.node.daemon->channels() == 0);
}

TEST_CASE("notifies: what is refused before a daemon is asked") {
  Pair pair;
  const std::string limit(1024, 'x');
  const std::string more(1025, 'x');
  CHECK(pair.client.SendNotify(kServer, {more.c_str(), ""}, -1) == PARAM_INVALID);
  CHECK(pair.client.SendNotify(kServer, {"", ""}, 0) == PARAM_INVALID);
  CHECK(pair.client.SendNotify(kServer, {"", more.c_str()}) == PARAM_INVALID);
  CHECK(pair.client.SendNotify(kServer, {limit.c_str(), limit.c_str()}) == NOT_CONNECTED);
  std::vector<NotifyDesc> notifies(1);
  CHECK(pair.client.GetNotifies(notifies) == SUCCESS);
  CHECK(notifies.size() == 1);
  REQUIRE(pair.client.Connect(kServer) == SUCCESS);
  CHECK(pair.client.SendNotify(kServer, {"", ""}, 1) == TIMEOUT);
  CHECK(pair.node.daemon->Count("SendNotifyRequest") == 0);
}

TEST_CASE("notifies arrive in order, are appended and told once") {
  Pair pair;
  REQUIRE(pair.client.Connect(kServer) == SUCCESS);
  const std::string limit(1024, 'x');
  for (const char* name : {"a", "b", "c", "d"}) {
    CHECK(pair.client.SendNotify(kServer, {name, limit.c_str()}) == SUCCESS);
  }
  CHECK(pair.client.SendNotify(kServer, {"", AscendString("n\0l", 3)}) == SUCCESS);
  std::vector<NotifyDesc> notifies(1);
  REQUIRE(pair.server.GetNotifies(notifies) == SUCCESS);
  REQUIRE(notifies.size() == 6);
  CHECK(notifies[1].name == "a");
  CHECK(notifies[4].name == "d");
  CHECK(notifies[4].notify_msg == limit.c_str());
  CHECK(notifies[5].name.GetLength() == 0);
  CHECK(notifies[5].notify_msg.GetLength() == 3);
  REQUIRE(pair.server.GetNotifies(notifies) == SUCCESS);
  CHECK(notifies.size() == 6);
}

TEST_CASE("a fetch that fails loses no notify") {
  Pair pair;
  REQUIRE(pair.client.Connect(kServer) == SUCCESS);
  for (const char* name : {"a", "b", "c"}) {
    CHECK(pair.client.SendNotify(kServer, {name, ""}) == SUCCESS);
  }
  std::atomic<int> answered{0};
  pair.node.daemon->SetHook([&](const google::protobuf::Message& request) -> absl::Status {
    if (request.GetDescriptor()->name() != "GetNotifiesRequest") return absl::OkStatus();
    return answered.fetch_add(1) == 0 ? hixld::Failed("not now") : absl::OkStatus();
  });
  std::vector<NotifyDesc> notifies;
  CHECK(pair.server.GetNotifies(notifies) == FAILED);
  CHECK(notifies.empty());
  REQUIRE(pair.server.GetNotifies(notifies) == SUCCESS);
  CHECK(notifies.size() == 3);
}

TEST_CASE("buffers lie in the pool and are registered as such") {
  Pair pair;
  Buffer buffer;
  CHECK(HixlExt::AllocateBuffer(pair.client, 0, MEM_HOST, buffer) == PARAM_INVALID);
  CHECK(HixlExt::AllocateBuffer(pair.client, 1UL << 40, MEM_HOST, buffer) == RESOURCE_EXHAUSTED);
  CHECK(HixlExt::LastError().option == "pools.host.max_bytes");
  CHECK_FALSE(buffer.valid());
  REQUIRE(HixlExt::AllocateBuffer(pair.client, 10000, MEM_HOST, buffer) == SUCCESS);
  CHECK(buffer.size() == 10000);
  static_cast<char*>(buffer.data())[5] = 42;
  CHECK(pair.node.daemon->arena()[4096 + 5] == std::byte{42});
  MemHandle handle = nullptr;
  REQUIRE(pair.client.RegisterMem(Range(static_cast<char*>(buffer.data()) + 100, 200), MEM_HOST,
                                  handle) == SUCCESS);
  const auto registrations = pair.node.daemon->registrations();
  CHECK(registrations.back().pool_memory().offset() == 100);
  Buffer moved = std::move(buffer);
  CHECK(moved.valid());
  CHECK_FALSE(buffer.valid());
  pair.client.Finalize();
  pair.server.Finalize();
  CHECK(pair.node.daemon->buffers() == 1);
  moved.Free();
  CHECK(pair.node.daemon->buffers() == 0);
  CHECK(Eventually([&] { return pair.node.daemon->sessions() == 0; }));
}

TEST_CASE("memory of a memfd is registered by its descriptor") {
  Pair pair;
  const hixld::UniqueFd fd = hixld::CreateSealedMemfd("test", 8192).value();
  const hixld::Mapping mapping = hixld::MapShared(fd.get(), 0, 8192).value();
  MemHandle handle = nullptr;
  REQUIRE(HixlExt::RegisterMemfd(pair.client, Range(mapping.data() + 4096, 4096), MEM_HOST,
                                 fd.get(), 4096, handle) == SUCCESS);
  const auto registration = pair.node.daemon->registrations().back();
  CHECK(registration.shared_memory().handle() == 0x77);
  CHECK(registration.shared_memory().offset() == 4096);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(HixlExt::RegisterMemfd(pair.client, Range(mapping.data(), 4096), MEM_HOST, ends[0], 0,
                               handle) == PARAM_INVALID);
  CHECK_THAT(HixlExt::LastErrorText(), Catch::Contains("a pipe"));
  CHECK(HixlExt::RegisterMemfd(pair.client, Range(mapping.data(), 4096), MEM_HOST, -1, 0, handle) ==
        PARAM_INVALID);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("the daemon may have memory copied, and a bad address is an error number") {
  Pair pair;
  auto done = pair.node.daemon->Copy(true, reinterpret_cast<uint64_t>(pair.there.data()), 0, 65536);
  CHECK(done.error_number() == 0);
  CHECK(memcmp(pair.node.daemon->arena(), pair.there.data(), 65536) == 0);
  done = pair.node.daemon->Copy(false, reinterpret_cast<uint64_t>(pair.here.data()), 0, 65536);
  CHECK(done.error_number() == 0);
  CHECK(pair.here == pair.there);
  for (const bool to_arena : {true, false}) {
    done = pair.node.daemon->Copy(to_arena, 0x1000, 0, 64);
    CHECK(done.error_number() == EFAULT);
    CHECK(done.failed_address() == 0x1000);
  }
  done = pair.node.daemon->Copy(true, reinterpret_cast<uint64_t>(pair.here.data()), 4 << 20, 1);
  CHECK(done.error_number() == ERANGE);
}

TEST_CASE("a daemon that dies: its calls fail at once, the next ones go on with its successor") {
  Pair pair;
  REQUIRE(pair.client.Connect(kServer, kLong) == SUCCESS);
  TransferReq request = nullptr;
  REQUIRE(pair.client.TransferAsync(kServer, READ, pair.All(), {}, request) == SUCCESS);
  pair.node.Kill();
  TransferStatus state = TransferStatus::WAITING;
  CHECK(Eventually([&] {
    return pair.client.GetTransferStatus(request, state) == SUCCESS &&
           state == TransferStatus::FAILED;
  }));
  CHECK(pair.client.TransferSync(kServer, READ, pair.All(), kLong) == FAILED);
  CHECK_THAT(HixlExt::LastErrorText(), Catch::Contains("hixld"));
  CHECK(pair.client.Connect("127.0.0.1:26009", kLong) == FAILED);

  pair.node.Start();
  // Both engines come back without being called: one of them might only serve.
  CHECK(Eventually([&] { return pair.node.daemon->engines() == 2; }));
  CHECK(Eventually([&] { return pair.node.daemon->regions() == 2; }));
  CHECK(pair.node.daemon->channels() == 0);
  // The link is made again for the first transfer that needs it.
  CHECK(pair.client.TransferSync(kServer, READ, pair.All(), kLong) == SUCCESS);
  CHECK(pair.here == pair.there);
  CHECK(pair.node.daemon->channels() == 1);
  CHECK(pair.client.Disconnect(kServer, kLong) == SUCCESS);
}

TEST_CASE("a link that went down with its daemon is disconnected by forgetting it") {
  Pair pair;
  REQUIRE(pair.client.Connect(kServer, kLong) == SUCCESS);
  pair.node.Kill();
  pair.node.Start();
  CHECK(pair.client.Disconnect(kServer, kLong) == SUCCESS);
  CHECK(pair.client.Disconnect(kServer, kLong) == NOT_CONNECTED);
}

TEST_CASE("a transfer that the daemon took with it is not sent again, a registration is") {
  Pair pair;
  REQUIRE(pair.client.Connect(kServer, kLong) == SUCCESS);
  pair.node.daemon->SetHook([](const google::protobuf::Message&) {
    return absl::UnauthenticatedError("the session was ended");
  });
  const std::vector<char> before = pair.here;
  CHECK(pair.client.TransferSync(kServer, READ, pair.All(), kLong) == FAILED);
  CHECK(pair.here == before);
  CHECK(pair.node.daemon->Count("TransferRequest") == 1);

  std::atomic<int> refusals{1};
  pair.node.daemon->SetHook([&](const google::protobuf::Message& request) {
    const bool refuse =
        request.GetDescriptor()->name() == "RegisterMemoryRequest" && refusals-- > 0;
    return refuse ? absl::UnauthenticatedError("the session was ended") : absl::OkStatus();
  });
  std::vector<char> more(100);
  CHECK(pair.client.RegisterMem(Range(more.data(), more.size()), MEM_HOST, pair.handle) == SUCCESS);
  CHECK(refusals <= 0);
}

TEST_CASE("pool memory outlives its daemon and is handed to the next one") {
  Pair pair;
  Buffer buffer;
  REQUIRE(HixlExt::AllocateBuffer(pair.client, 8192, MEM_HOST, buffer) == SUCCESS);
  REQUIRE(pair.client.RegisterMem(Range(buffer.data(), 8192), MEM_HOST, pair.handle) == SUCCESS);
  pair.node.Kill();
  static_cast<char*>(buffer.data())[0] = 1;
  pair.node.Start();
  CHECK(Eventually([&] { return pair.node.daemon->regions() == 3; }));
  bool handed_over = false;
  for (const auto& registration : pair.node.daemon->registrations()) {
    handed_over = handed_over || registration.shared_memory().offset() == 4096;
  }
  CHECK(handed_over);
}

// Runs `body` in a forked child; its result is the child's exit code.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST_CASE("a forked child is refused, and neither its life nor its end disturbs the parent") {
  Pair pair;
  REQUIRE(pair.client.Connect(kServer, kLong) == SUCCESS);
  auto buffer = std::make_unique<Buffer>();
  REQUIRE(HixlExt::AllocateBuffer(pair.client, 8192, MEM_HOST, *buffer) == SUCCESS);
  const int code = InChild([&] {
    if (pair.client.TransferSync(kServer, READ, pair.All(), kLong) != FAILED) return 1;
    const std::string text = HixlExt::LastErrorText();
    if (text.find("forked") == std::string::npos) return 2;
    MemHandle handle = nullptr;
    if (pair.client.RegisterMem(Range("x", 1), MEM_HOST, handle) != FAILED) return 3;
    buffer.reset();
    pair.client.Finalize();
    pair.server.Finalize();
    if (pair.client.Connect(kServer, kLong) != FAILED) return 4;
    return 0;
  });
  CHECK(code == 0);
  CHECK(pair.node.daemon->sessions() == 1);
  CHECK(pair.node.daemon->engines() == 2);
  CHECK(pair.node.daemon->buffers() == 1);
  CHECK(pair.client.TransferSync(kServer, READ, pair.All(), kLong) == SUCCESS);
  CHECK(pair.here == pair.there);
}

}  // namespace
}  // namespace hixl
