// Links over the machine's own RDMA devices, both ends in this process: what tests/rdma_vm runs in
// its machine. Each command prints what it saw and ends with 0, or says what is wrong.
//
//   exercise check HERE THERE            random lists in both directions, compared byte by byte
//   exercise pieces HERE THERE           the same with memory registered in small pieces
//   exercise cancel HERE THERE           cancelled and timed-out transfers never write afterwards
//   exercise break HERE THERE            queue pairs forced into errors while transfers run
//   exercise ports HERE THERE COMMAND    a shell command takes a port down and up meanwhile
//   exercise speed HERE THERE SIZE READ|WRITE SECONDS DEPTH
//   exercise refuse HERE                 prints why the transport cannot be made
// HERE and THERE are device names separated by commas.
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/transports/rdma/rdma_harness.h"

namespace hixld::rdma::testing {
namespace {

using hixld::testing::FillRandom;

// An emulated processor moves some MB/s.
constexpr size_t kSize = 4 << 20;
constexpr uint64_t kSmallPiece = 96 << 10;

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "FAILED: " << what << std::endl;
  _exit(1);
}

RdmaOptions OptionsFor(const std::string& devices) {
  RdmaOptions options;
  // 2 s: processors that are emulated, and shared, acknowledge late, and packets that are sent
  // again though nothing was lost slow them down further.
  options.ack_timeout = 19;
  options.message_bytes = 256 << 10;
  options.inflight_bytes = 1 << 20;
  options.selection.devices = absl::StrSplit(devices, ',', absl::SkipEmpty());
  options.on_event = [](const RdmaEvent& event) {
    std::cerr << "event " << event.device << " " << event.port << ": " << event.text << std::endl;
  };
  return options;
}

struct Nodes {
  std::unique_ptr<WorkerSet> workers = std::move(*WorkerSet::Start(2, 50'000));
  std::shared_ptr<MappedMemory> local;
  std::shared_ptr<MappedMemory> remote;
  TestResolver resolver;
  TestPath to_target;
  TestPath to_initiator;
  std::unique_ptr<RdmaTransport> there_transport;
  std::unique_ptr<RdmaTransport> here_transport;
  std::unique_ptr<TargetLink> target;
  std::unique_ptr<RdmaInitiatorLink> link;

  Nodes(const std::string& here, const std::string& there, size_t size, uint32_t lanes = 2,
        uint64_t registration_bytes = 1 << 30)
      : local(std::make_shared<MappedMemory>(size)), remote(std::make_shared<MappedMemory>(size)) {
    resolver.OpenChannel(kChannel);
    resolver.AddRegion(kRemoteBase, remote, 0, size);
    there_transport = Make(there, lanes, registration_bytes);
    here_transport = Make(here, lanes, registration_bytes);
    target = there_transport->Serve(&resolver, &to_initiator);
    to_target.Connect([this](const std::string& payload) { target->OnControlMessage(payload); });
    link = here_transport->Connect(*ParseEndpoint("127.0.0.1:1"), RdmaClass{}, nullptr, &to_target);
    to_initiator.Connect([this](const std::string& payload) { link->OnControlMessage(payload); });
  }
  ~Nodes() {
    link->Close(NotConnected("over"), MonotonicNanos());
    std::promise<void> closed;
    target->Close(NotConnected("over"), [&] { closed.set_value(); });
    closed.get_future().wait();
    to_target.Cut();
    to_initiator.Cut();
    link.reset();
    target.reset();
  }

  std::unique_ptr<RdmaTransport> Make(const std::string& devices, uint32_t lanes,
                                      uint64_t registration_bytes) {
    RdmaOptions options = OptionsFor(devices);
    options.lanes = lanes;
    options.registration_bytes = registration_bytes;
    options.give_up_ns = 60 * kNanosPerSecond;
    auto made = RdmaTransport::Create(workers.get(), options);
    if (!made.ok()) Fail(std::string(made.status().message()));
    return std::move(*made);
  }

  std::shared_ptr<TransferJob> Job(CopyDirection direction, CopyPieces pieces) {
    static std::atomic<uint64_t> next_id{1};
    auto job = std::make_shared<TransferJob>();
    job->id = next_id++;
    job->direction = direction;
    job->channel = kChannel;
    job->pieces = std::move(pieces);
    for (const CopyPiece& piece : job->pieces) job->bytes += piece.length;
    job->pins = {local};
    return job;
  }
  absl::Status Run(const std::shared_ptr<TransferJob>& job) {
    std::promise<absl::Status> ended;
    job->done = [&](absl::Status status) { ended.set_value(std::move(status)); };
    link->Submit(job);
    return ended.get_future().get();
  }
  CopyPiece Piece(uint64_t here, uint64_t there, uint64_t length) const {
    CopyPiece piece;
    piece.local = {local.get(), here};
    piece.remote_address = kRemoteBase + there;
    piece.length = length;
    return piece;
  }
};

// Blocks of random lengths that cover most of both memories, in another order there.
CopyPieces RandomList(const Nodes& nodes, size_t size, std::mt19937_64& random) {
  CopyPieces pieces;
  for (uint64_t at = 0; at < size;) {
    const uint64_t length =
        std::min<uint64_t>(size - at, 1 + random() % (random() % 8 ? 9000 : 700'000));
    if (random() % 8 != 0) pieces.push_back(nodes.Piece(at, size - at - length, length));
    at += length;
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

// Runs lists until `more` says no; every byte of both memories must be as expected after each.
int CheckLists(Nodes& nodes, const std::function<bool(int)>& more) {
  std::mt19937_64 random(1);
  FillRandom(nodes.local->bytes(), kSize, 1);
  FillRandom(nodes.remote->bytes(), kSize, 2);
  std::vector<std::byte> local(nodes.local->bytes(), nodes.local->bytes() + kSize);
  std::vector<std::byte> remote(nodes.remote->bytes(), nodes.remote->bytes() + kSize);
  int round = 0;
  for (; more(round); ++round) {
    const bool write = random() % 2 == 0;
    const CopyPieces pieces = RandomList(nodes, kSize, random);
    for (const CopyPiece& piece : pieces) {
      std::byte* const here = local.data() + piece.local.offset;
      std::byte* const there = remote.data() + (piece.remote_address - kRemoteBase);
      memcpy(write ? there : here, write ? here : there, piece.length);
    }
    const absl::Status status =
        nodes.Run(nodes.Job(write ? CopyDirection::kWrite : CopyDirection::kRead, pieces));
    if (!status.ok()) Fail(absl::StrCat("round ", round, ": ", status.ToString()));
    if (memcmp(local.data(), nodes.local->bytes(), kSize) != 0) Fail("local bytes differ");
    if (memcmp(remote.data(), nodes.remote->bytes(), kSize) != 0) Fail("remote bytes differ");
  }
  for (const LaneStats& lane : nodes.link->Lanes()) {
    std::cout << "lane " << lane.index << " " << lane.local_address << " -> " << lane.remote_address
              << " " << lane.state << " sent " << lane.bytes_sent << " received "
              << lane.bytes_received << " reconnects " << lane.reconnects << "\n";
  }
  std::cout << round << " lists right\n";
  return 0;
}

int Check(const std::string& here, const std::string& there, uint64_t registration_bytes) {
  Nodes nodes(here, there, kSize, 4, registration_bytes);
  return CheckLists(nodes, [](int round) { return round < 4; });
}

// Cuts transfers short at random moments; the buffer is filled at once and must stay as it is.
int CancelRounds(const std::string& here, const std::string& there) {
  constexpr size_t kPart = 1 << 20;
  constexpr int kRounds = 20;
  Nodes nodes(here, there, kPart);
  std::mt19937_64 random(3);
  memset(nodes.local->bytes(), 0x11, kPart);
  int cut = 0;
  for (int round = 0; round < kRounds; ++round) {
    memset(nodes.remote->bytes(), 0x22, kPart);
    auto job = nodes.Job(CopyDirection::kWrite, {nodes.Piece(0, 0, kPart)});
    std::promise<absl::Status> ended;
    job->done = [&](absl::Status status) { ended.set_value(std::move(status)); };
    const bool by_deadline = round % 2 == 0;
    const int64_t moment = static_cast<int64_t>(random() % 30) * kNanosPerMilli;
    if (by_deadline) job->deadline_ns = MonotonicNanos() + moment;
    nodes.link->Submit(job);
    if (!by_deadline) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(moment));
      nodes.link->Cancel(job, Failed("cancelled"));
    }
    cut += ended.get_future().get().ok() ? 0 : 1;
    memset(nodes.remote->bytes(), 0x33, kPart);
    // A later transfer over the same lanes: whatever was still under way came before it.
    const absl::Status after = nodes.Run(nodes.Job(CopyDirection::kRead, {nodes.Piece(0, 0, 1)}));
    if (!after.ok()) Fail(after.ToString());
    for (size_t i = 0; i < kPart; ++i) {
      if (nodes.remote->bytes()[i] != std::byte{0x33}) Fail(absl::StrCat("late byte at ", i));
    }
    nodes.local->bytes()[0] = std::byte{0x11};
  }
  std::cout << cut << " of " << kRounds << " transfers cut short, no late byte\n";
  return cut > 0 ? 0 : 1;
}

// While lists run, transfers with a range that the target's keys do not cover break the lanes.
int BreakRounds(const std::string& here, const std::string& there) {
  Nodes nodes(here, there, kSize, 3);
  constexpr size_t kTorn = 256 << 10;
  auto more = std::make_shared<MappedMemory>(kTorn);
  std::atomic<bool> over{false};
  std::atomic<int> fenced{0};
  std::thread breaker([&] {
    std::mt19937_64 random(5);
    while (!over) {
      nodes.resolver.AddRegion(0x1000000, more, 0, kTorn);
      CopyPiece piece = nodes.Piece(0, 0, kTorn);
      piece.local = {more.get(), 0};
      piece.remote_address = 0x1000000;
      auto job = nodes.Job(CopyDirection::kRead, {piece});
      job->pins = {more};
      std::promise<absl::Status> ended;
      job->done = [&](absl::Status status) { ended.set_value(std::move(status)); };
      nodes.link->Submit(job);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
      // The registration is torn away under the running READ.
      nodes.resolver.RemoveRegion(0x1000000);
      std::promise<void> done;
      nodes.target->FenceChannel(kChannel, [&] { done.set_value(); });
      done.get_future().wait();
      if (!ended.get_future().get().ok()) ++fenced;
    }
  });
  const int result = CheckLists(nodes, [](int round) { return round < 4; });
  over = true;
  breaker.join();
  std::cout << fenced << " transfers lost their memory\n";
  return result;
}

int PortRounds(const std::string& here, const std::string& there, const std::string& command) {
  Nodes nodes(here, there, kSize, 4);
  std::atomic<bool> over{false};
  std::thread shell([&] {
    const int code = std::system(command.c_str());
    if (code != 0) Fail(absl::StrCat("the command ended with ", code));
    over = true;
  });
  const int result = CheckLists(nodes, [&](int) { return !over; });
  shell.join();
  return result;
}

// Keeps `depth` transfers of `size` bytes under way and prints MiB/s and operations/s.
int Speed(const std::string& here, const std::string& there, size_t size, bool read, int seconds,
          size_t depth) {
  const size_t slots = std::min<size_t>(depth, std::max<size_t>(1, (32 << 20) / size));
  Nodes nodes(here, there, slots * size, 1);
  std::atomic<uint64_t> ended{0};
  std::atomic<uint64_t> running{0};
  std::atomic<int64_t> until{INT64_MAX};
  std::vector<std::shared_ptr<TransferJob>> jobs(depth);
  std::function<void(size_t)> start = [&](size_t slot) {
    auto job = nodes.Job(read ? CopyDirection::kRead : CopyDirection::kWrite,
                         {nodes.Piece((slot % slots) * size, (slot % slots) * size, size)});
    job->done = [&, slot](absl::Status status) {
      if (!status.ok()) Fail(status.ToString());
      ++ended;
      if (MonotonicNanos() < until) return start(slot);
      --running;
    };
    jobs[slot] = job;
    nodes.link->Submit(job);
  };
  if (!nodes.Run(nodes.Job(CopyDirection::kWrite, {nodes.Piece(0, 0, slots * size)})).ok()) {
    Fail("warm-up");
  }
  const int64_t begin = MonotonicNanos();
  until = begin + seconds * kNanosPerSecond;
  running = depth;
  for (size_t slot = 0; slot < depth; ++slot) start(slot);
  while (running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const double took = static_cast<double>(MonotonicNanos() - begin) / 1e9;
  const double rate = static_cast<double>(ended) / took;
  printf("MiB/s %.2f ops/s %.1f\n", rate * static_cast<double>(size) / (1 << 20), rate);
  return 0;
}

int Refuse(const std::string& here) {
  auto workers = std::move(*WorkerSet::Start(1, 0));
  RdmaOptions options = OptionsFor(here);
  const auto made = RdmaTransport::Create(workers.get(), options);
  if (made.ok()) Fail("the transport was made");
  std::cout << made.status().message() << "\n";
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  const auto at = [&](size_t i) { return i < arguments.size() ? arguments[i] : std::string(); };
  const auto number = [&](size_t i) {
    uint64_t value = 0;
    if (!absl::SimpleAtoi(at(i), &value)) Fail(absl::StrCat("argument ", i, " is no number"));
    return value;
  };
  if (at(0) == "check") return Check(at(1), at(2), 1 << 30);
  if (at(0) == "pieces") return Check(at(1), at(2), kSmallPiece);
  if (at(0) == "cancel") return CancelRounds(at(1), at(2));
  if (at(0) == "break") return BreakRounds(at(1), at(2));
  if (at(0) == "ports") return PortRounds(at(1), at(2), at(3));
  if (at(0) == "refuse") return Refuse(at(1));
  if (at(0) == "speed") {
    return Speed(at(1), at(2), number(3), at(4) == "READ", static_cast<int>(number(5)), number(6));
  }
  Fail("unknown command");
}

}  // namespace
}  // namespace hixld::rdma::testing

int main(int argc, char** argv) { return hixld::rdma::testing::Main({argv + 1, argv + argc}); }
