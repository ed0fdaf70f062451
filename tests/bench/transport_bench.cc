// How close the transports come to what the machine can do: the local transport beside memcpy, the
// TCP transport over loopback beside a plain socket pump, measured in turn in one process.
//
//   bazel run --config=opt //tests/bench:transport_bench -- [--mib=128] [--workers=2] [--reps=7]
//
// Each line shows the best of the rounds of both, with the processor time in milliseconds per GB,
// and the ratio of the bests; nothing passes or fails.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "proto/base/memfd.h"
#include "transports/local/local_transport.h"
#include "transports/tcp/tcp_transport.h"

namespace hixld {
namespace {

constexpr uint64_t kBlock = 16 << 10;

struct Settings {
  uint64_t bytes = 128 << 20;
  uint32_t workers = 2;
  int reps = 7;
  std::string only;
};

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "transport_bench: %s\n", what.c_str());
  exit(2);
}

// A memfd mapping, all pages present, as the daemon maps client memory.
class Memory : public MemoryAccess {
 public:
  static std::shared_ptr<Memory> Make(uint64_t size) {
    auto fd = CreateSealedMemfd("bench", size);
    if (!fd.ok()) Die(std::string(fd.status().message()));
    auto mapping = MapShared(fd->get(), 0, size);
    if (!mapping.ok()) Die(std::string(mapping.status().message()));
    memset(mapping->data(), 1, size);
    return std::shared_ptr<Memory>(new Memory(std::move(*mapping)));
  }
  void Read(std::vector<Slice>, Done done) override { done(absl::InternalError("mapped")); }
  void Write(std::vector<Slice>, Done done) override { done(absl::InternalError("mapped")); }
  absl::string_view description() const override { return "bench memory"; }

 private:
  explicit Memory(Mapping mapping)
      : MemoryAccess(Kind::kMapped, mapping.data(), mapping.size()), mapping_(std::move(mapping)) {}
  Mapping mapping_;
};

// One memory at address 1 << 40 for every channel.
class OneRegion : public TargetResolver {
 public:
  static constexpr uint64_t kAddress = 1ULL << 40;
  explicit OneRegion(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  absl::Status Resolve(uint64_t, uint64_t address, uint64_t length,
                       std::vector<Part>* parts) override {
    const uint64_t offset = address - kAddress;
    if (offset >= memory_->length() || length > memory_->length() - offset) {
      return absl::InvalidArgumentError("out of range");
    }
    parts->push_back({.memory = {memory_.get(), offset}, .length = length, .pin = memory_});
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Memory> memory_;
};

struct Cost {
  double seconds = 1e9;
  double cpu_seconds = 1e9;
};

double CpuSeconds() {
  timespec cpu;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  return static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9;
}

Cost CostOf(absl::AnyInvocable<void()> work) {
  const int64_t start = MonotonicNanos();
  const double cpu = CpuSeconds();
  work();
  return {static_cast<double>(MonotonicNanos() - start) * 1e-9, CpuSeconds() - cpu};
}

Cost Best(const Cost& a, const Cost& b) {
  return {std::min(a.seconds, b.seconds), std::min(a.cpu_seconds, b.cpu_seconds)};
}

// Runs both in turn and prints the best of each.
void Compare(const Settings& settings, const std::string& name, uint64_t bytes,
             const std::string& base_name, absl::AnyInvocable<void()> base,
             absl::AnyInvocable<void()> ours) {
  if (!settings.only.empty() && name.find(settings.only) == std::string::npos) return;
  Cost best_base;
  Cost best_ours;
  std::vector<double> ratios;
  for (int i = 0; i < settings.reps; ++i) {
    const Cost b = CostOf([&] { base(); });
    const Cost o = CostOf([&] { ours(); });
    best_base = Best(best_base, b);
    best_ours = Best(best_ours, o);
    ratios.push_back(b.seconds / o.seconds);
  }
  std::sort(ratios.begin(), ratios.end());
  const double gb = static_cast<double>(bytes) * 1e-9;
  printf("%-44s %6.2f GB/s %5.0f   %-20s %6.2f GB/s %5.0f   %4.2f (median %4.2f)\n", name.c_str(),
         gb / best_ours.seconds, best_ours.cpu_seconds / gb * 1e3, base_name.c_str(),
         gb / best_base.seconds, best_base.cpu_seconds / gb * 1e3,
         best_base.seconds / best_ours.seconds, ratios[ratios.size() / 2]);
  fflush(stdout);
}

using Blocks = std::vector<std::pair<uint64_t, uint64_t>>;  // local offset, remote offset

Blocks Scattered(uint64_t bytes, uint64_t block) {
  Blocks blocks(bytes / block);
  std::mt19937_64 random(3);
  std::vector<uint64_t> order(blocks.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (size_t i = 0; i < order.size(); ++i) blocks[i].first = order[i] * block;
  std::shuffle(order.begin(), order.end(), random);
  for (size_t i = 0; i < order.size(); ++i) blocks[i].second = order[i] * block;
  return blocks;
}

std::shared_ptr<TransferJob> MakeJob(CopyDirection direction, MemoryAccess* local,
                                     MemoryAccess* remote, const Blocks& blocks, uint64_t block) {
  static std::atomic<uint64_t> next_id{1};
  auto job = std::make_shared<TransferJob>();
  job->id = next_id.fetch_add(1);
  job->direction = direction;
  job->pieces.reserve(blocks.size());
  for (const auto& [mine, theirs] : blocks) {
    job->pieces.push_back({.local = {local, mine},
                           .remote = {remote, theirs},
                           .remote_address = OneRegion::kAddress + theirs,
                           .length = block});
    job->bytes += block;
  }
  return job;
}

void RunJobs(TransferSink& sink, std::vector<std::shared_ptr<TransferJob>> jobs, size_t at_once) {
  std::atomic<size_t> next{0};
  std::atomic<size_t> ended{0};
  std::promise<void> all;
  const size_t count = jobs.size();
  absl::AnyInvocable<void()> submit_next;
  std::function<void()> submit = [&] {
    const size_t i = next.fetch_add(1);
    if (i >= count) return;
    jobs[i]->done = [&](absl::Status status) {
      if (!status.ok()) Die(std::string(status.message()));
      submit();
      if (ended.fetch_add(1) + 1 == count) all.set_value();
    };
    sink.Submit(jobs[i]);
  };
  for (size_t i = 0; i < at_once; ++i) submit();
  all.get_future().get();
}

template <typename Work>
void OnThreads(uint32_t count, Work work) {
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < count; ++i) threads.emplace_back(work, i);
  work(0);
  for (auto& thread : threads) thread.join();
}

void BenchLocal(const Settings& settings) {
  auto workers = WorkerSet::Start(settings.workers, 0);
  if (!workers.ok()) Die("workers");
  auto transport = LocalTransport::Create(workers->get(), {});
  auto local = Memory::Make(settings.bytes);
  auto remote = Memory::Make(settings.bytes);
  const std::string threads = absl::StrCat("memcpy, ", settings.workers, " threads");
  const uint64_t share = settings.bytes / settings.workers;

  Compare(
      settings, "local, one block", settings.bytes, threads,
      [&] {
        OnThreads(settings.workers, [&](uint32_t i) {
          memcpy(local->mapped() + i * share, remote->mapped() + i * share, share);
        });
      },
      [&] {
        RunJobs(
            *transport,
            {MakeJob(CopyDirection::kRead, local.get(), remote.get(), {{0, 0}}, settings.bytes)},
            1);
      });
  for (const uint64_t block : {uint64_t{1} << 20, kBlock, uint64_t{4096}}) {
    const Blocks blocks = Scattered(settings.bytes, block);
    const size_t part = blocks.size() / settings.workers;
    auto job = MakeJob(CopyDirection::kRead, local.get(), remote.get(), blocks, block);
    Compare(
        settings,
        absl::StrCat("local, ", blocks.size(), " scattered blocks of ", block >> 10, " KiB"),
        settings.bytes, threads,
        [&] {
          OnThreads(settings.workers, [&](uint32_t t) {
            for (size_t i = t * part; i < (t + 1) * part; ++i) {
              memcpy(local->mapped() + blocks[i].first, remote->mapped() + blocks[i].second, block);
            }
          });
        },
        [&] { RunJobs(*transport, {job}, 1); });
  }
  for (const uint64_t size : {uint64_t{1} << 20, uint64_t{2} << 20, uint64_t{256} << 10}) {
    const size_t count = settings.bytes / size;
    std::vector<std::shared_ptr<TransferJob>> jobs;
    for (size_t i = 0; i < count; ++i) {
      jobs.push_back(
          MakeJob(CopyDirection::kRead, local.get(), remote.get(), {{i * size, i * size}}, size));
      jobs.back()->worker = static_cast<uint32_t>(i);
    }
    Compare(
        settings, absl::StrCat("local, transfers of ", size >> 10, " KiB, 4 at once"),
        settings.bytes, threads,
        [&] {
          OnThreads(settings.workers, [&](uint32_t t) {
            for (size_t i = t; i < count; i += settings.workers) {
              memcpy(local->mapped() + i * size, remote->mapped() + i * size, size);
            }
          });
        },
        [&] { RunJobs(*transport, jobs, 4); });
  }
  const int rounds = 20'000;
  std::vector<std::shared_ptr<TransferJob>> tiny;
  for (int i = 0; i < rounds; ++i) {
    tiny.push_back(MakeJob(CopyDirection::kRead, local.get(), remote.get(), {{0, 0}}, 64));
  }
  const double seconds = CostOf([&] { RunJobs(*transport, tiny, 64); }).seconds;
  printf("%-44s %6.2f us per transfer, 64 at once\n", "local, transfers of 64 bytes",
         seconds / rounds * 1e6);
}

// Connected pairs over loopback, the accepting side first.
std::pair<UniqueFd, UniqueFd> LoopbackPair() {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  auto any = ParseEndpoint("127.0.0.1:0");
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  if (bind(listener.get(), any->sockaddr_ptr(), any->address_len) != 0 ||
      listen(listener.get(), 8) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    Die("listen on loopback");
  }
  UniqueFd client(socket(AF_INET, SOCK_STREAM, 0));
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&bound), length) != 0) Die("connect");
  UniqueFd server(accept(listener.get(), nullptr, nullptr));
  return {std::move(server), std::move(client)};
}

// A plain pump per stream. With `memory` it sends all of one and receives into all of another, as
// a transfer must; without, it sends one hot buffer again and again, as iperf3 does.
class Pump {
 public:
  explicit Pump(uint32_t streams) {
    for (uint32_t i = 0; i < streams; ++i) pairs_.push_back(LoopbackPair());
  }
  void Run(uint64_t bytes, Memory* from = nullptr, Memory* to = nullptr) {
    const uint64_t share = bytes / pairs_.size();
    OnThreads(static_cast<uint32_t>(2 * pairs_.size()), [&](uint32_t i) {
      static thread_local std::vector<std::byte> hot(kPumpBytes);
      Memory* memory = i % 2 == 0 ? from : to;
      std::byte* start = memory == nullptr ? hot.data() : memory->mapped() + i / 2 * share;
      for (uint64_t at = 0; at < share;) {
        std::byte* place = memory == nullptr ? start : start + at;
        const size_t want = std::min(share - at, kPumpBytes);
        const ssize_t moved = i % 2 == 0 ? send(pairs_[i / 2].second.get(), place, want, 0)
                                         : recv(pairs_[i / 2].first.get(), place, want, 0);
        if (moved <= 0) Die("the pump's socket failed");
        at += static_cast<uint64_t>(moved);
      }
    });
  }

 private:
  static constexpr uint64_t kPumpBytes = 128 << 10;
  std::vector<std::pair<UniqueFd, UniqueFd>> pairs_;
};

class DirectControl : public ControlPath {
 public:
  void SendToPeer(std::string payload) override { deliver(payload); }
  std::function<void(const std::string&)> deliver = [](const std::string&) {};
};

// Two ends of a link, each with workers of its own, as in two daemons.
class TcpBench {
 public:
  TcpBench(TcpOptions options, std::shared_ptr<Memory> remote) : resolver_(std::move(remote)) {
    const uint32_t lanes = options.lanes;
    auto a = WorkerSet::Start(lanes, 0);
    auto b = WorkerSet::Start(lanes, 0);
    if (!a.ok() || !b.ok()) Die("workers");
    initiator_workers_ = std::move(*a);
    target_workers_ = std::move(*b);
    initiator_transport_ = TcpTransport::Create(initiator_workers_.get(), options);
    target_transport_ = TcpTransport::Create(target_workers_.get(), options);
    const LaneIdentity identity = {.link_id = 1, .secret = std::string(32, 's')};
    target_ = target_transport_->Serve(identity, &resolver_, &to_initiator_);
    listener_.reset(socket(AF_INET, SOCK_STREAM, 0));
    auto any = ParseEndpoint("127.0.0.1:0");
    sockaddr_storage bound = {};
    socklen_t length = sizeof(bound);
    if (bind(listener_.get(), any->sockaddr_ptr(), any->address_len) != 0 ||
        listen(listener_.get(), 64) != 0 ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
      Die("listen on loopback");
    }
    link_ =
        initiator_transport_->Connect(EndpointFromSockaddr(bound, length), identity, &to_target_);
    to_target_.deliver = [this](const std::string& m) { target_->OnControlMessage(m); };
    to_initiator_.deliver = [this](const std::string& m) { link_->OnControlMessage(m); };
    for (uint32_t i = 0; i < lanes; ++i) {
      target_transport_->AcceptLane(
          UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    }
  }
  ~TcpBench() {
    link_->Close(absl::CancelledError("the end"), 0);
    link_.reset();
    std::promise<void> closed;
    target_->Close(absl::CancelledError("the end"), [&] { closed.set_value(); });
    closed.get_future().get();
    target_.reset();
  }
  InitiatorLink& link() { return *link_; }

 private:
  OneRegion resolver_;
  DirectControl to_target_;
  DirectControl to_initiator_;
  std::unique_ptr<WorkerSet> initiator_workers_;
  std::unique_ptr<WorkerSet> target_workers_;
  std::unique_ptr<TcpTransport> initiator_transport_;
  std::unique_ptr<TcpTransport> target_transport_;
  std::unique_ptr<TargetLink> target_;
  UniqueFd listener_;
  std::unique_ptr<InitiatorLink> link_;
};

void BenchTcp(const Settings& settings, uint32_t lanes) {
  auto local = Memory::Make(settings.bytes);
  auto remote = Memory::Make(settings.bytes);
  TcpOptions options;
  options.lanes = lanes;
  TcpBench bench(options, remote);
  Pump pump(lanes);
  const std::string base =
      absl::StrCat("socket pump, ", lanes, lanes == 1 ? " stream" : " streams");
  const auto compare = [&](const std::string& name, std::vector<std::shared_ptr<TransferJob>> jobs,
                           size_t at_once) {
    Compare(
        settings, absl::StrCat("tcp, ", lanes, lanes == 1 ? " lane, " : " lanes, ", name),
        settings.bytes, base, [&] { pump.Run(settings.bytes); },
        [&] { RunJobs(bench.link(), jobs, at_once); });
  };
  Pump full(lanes);
  Compare(
      settings, absl::StrCat("tcp, plain pump through all of memory, ", lanes), settings.bytes,
      base, [&] { pump.Run(settings.bytes); },
      [&] { full.Run(settings.bytes, local.get(), remote.get()); });
  for (const auto direction : {CopyDirection::kWrite, CopyDirection::kRead}) {
    const std::string verb = direction == CopyDirection::kRead ? "READ " : "WRITE ";
    compare(verb + "one block",
            {MakeJob(direction, local.get(), nullptr, {{0, 0}}, settings.bytes)}, 1);
    const Blocks blocks = Scattered(settings.bytes, kBlock);
    compare(verb + "scattered 16 KiB blocks",
            {MakeJob(direction, local.get(), nullptr, blocks, kBlock)}, 1);
    std::vector<std::shared_ptr<TransferJob>> batches;
    for (size_t i = 0; i + 128 <= blocks.size(); i += 128) {
      batches.push_back(MakeJob(direction, local.get(), nullptr,
                                Blocks(blocks.begin() + i, blocks.begin() + i + 128), kBlock));
      batches.back()->worker = static_cast<uint32_t>(batches.size());
    }
    compare(verb + "128 x 16 KiB, 1 at once", batches, 1);
    compare(verb + "128 x 16 KiB, 4 at once", batches, 4);
  }
  const int rounds = 5'000;
  for (const size_t at_once : {size_t{1}, size_t{64}}) {
    std::vector<std::shared_ptr<TransferJob>> tiny;
    for (int i = 0; i < rounds; ++i) {
      tiny.push_back(MakeJob(CopyDirection::kWrite, local.get(), nullptr, {{0, 0}}, 4096));
    }
    const double seconds = CostOf([&] { RunJobs(bench.link(), tiny, at_once); }).seconds;
    printf("tcp, %u lane(s), WRITE of 4 KiB %26.2f us per transfer, %zu at once\n", lanes,
           seconds / rounds * 1e6, at_once);
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    uint64_t value = 0;
    const size_t equals = argument.find('=');
    const absl::string_view key = argument.substr(0, equals);
    const absl::string_view text =
        equals == absl::string_view::npos ? "" : argument.substr(equals + 1);
    if (key == "--only") {
      settings.only = std::string(text);
    } else if (!absl::SimpleAtoi(text, &value) || value == 0) {
      Die(absl::StrCat("\"", argument,
                       "\" is not one of --mib=N --workers=N --reps=N --only=TEXT"));
    } else if (key == "--mib") {
      settings.bytes = value << 20;
    } else if (key == "--workers") {
      settings.workers = static_cast<uint32_t>(value);
    } else if (key == "--reps") {
      settings.reps = static_cast<int>(value);
    } else {
      Die(absl::StrCat("unknown option ", key));
    }
  }
  printf("%-44s %17s   %-20s %17s   ratio\n", "", "GB/s  cpu ms/GB", "beside", "GB/s  cpu ms/GB");
  BenchLocal(settings);
  BenchTcp(settings, 1);
  BenchTcp(settings, 2);
  return 0;
}

}  // namespace
}  // namespace hixld

int main(int argc, char** argv) { return hixld::Main(argc, argv); }
