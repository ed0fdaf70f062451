// Sockets that lie: wrong proofs, garbage, frames that do not add up.
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "proto/wire/frame.h"
#include "tests/transports/tcp/tcp_pair.h"
#include "transports/tcp/lane_proof.h"

namespace hixld {
namespace {

using testing::FillRandom;
using testing::MappedMemory;
using testing::SmallTcp;
using testing::TcpPair;
using testing::TestTransfer;

constexpr uint64_t kChannel = 3;
constexpr uint64_t kBase = 0x100000;
constexpr uint64_t kSize = 64 << 10;

// A socket that speaks for itself.
class RawLane {
 public:
  explicit RawLane(const Endpoint& peer) : fd_(socket(peer.address.ss_family, SOCK_STREAM, 0)) {
    REQUIRE(connect(fd_.get(), peer.sockaddr_ptr(), peer.address_len) == 0);
    const timeval limit = {.tv_sec = 10, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  void Send(const std::string& bytes) {
    // The other end may have closed already.
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t put = send(fd_.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (put <= 0) return;
      at += static_cast<size_t>(put);
    }
  }
  void Hello(uint32_t lane, uint32_t generation, const std::string& secret = std::string(32, 's')) {
    Send(HelloBytes(lane, generation, secret));
  }
  static std::string HelloBytes(uint32_t lane, uint32_t generation, const std::string& secret) {
    wire::FrameHeader header;
    header.type = wire::FrameType::kLaneHello;
    header.transfer = 7;
    header.channel = lane;
    header.stripe = generation;
    header.body = wire::kLaneProofBytes;
    return Encode(header) + LaneProof(secret, LaneSide::kInitiator, 7, lane, generation);
  }
  static std::string Encode(const wire::FrameHeader& header,
                            const std::vector<wire::Piece>& pieces = {}) {
    std::string bytes(wire::kFrameHeaderBytes, '\0');
    wire::EncodeHeader(header, reinterpret_cast<uint8_t*>(bytes.data()));
    for (const wire::Piece& piece : pieces) {
      std::string entry(wire::kPieceBytes, '\0');
      wire::EncodePiece(piece, reinterpret_cast<uint8_t*>(entry.data()));
      bytes += entry;
    }
    return bytes;
  }
  // Reads exactly one frame; nullopt when the lane was closed.
  std::optional<wire::FrameHeader> Receive(std::string* body) {
    uint8_t bytes[wire::kFrameHeaderBytes];
    if (!ReadExactly(bytes, sizeof(bytes))) return std::nullopt;
    const auto header = wire::DecodeHeader(bytes);
    REQUIRE(header.ok());
    body->resize(header->body);
    if (!ReadExactly(body->data(), body->size())) return std::nullopt;
    return *header;
  }
  void HalfClose() { shutdown(fd_.get(), SHUT_WR); }
  bool ClosedByPeer() {
    char byte;
    ssize_t got;
    do {
      got = recv(fd_.get(), &byte, 1, 0);
    } while (got > 0);
    return got == 0 || errno == ECONNRESET;
  }

 private:
  bool ReadExactly(void* out, size_t size) {
    for (size_t at = 0; at < size;) {
      const ssize_t got = recv(fd_.get(), static_cast<char*>(out) + at, size - at, 0);
      if (got <= 0) return false;
      at += static_cast<size_t>(got);
    }
    return true;
  }
  UniqueFd fd_;
};

struct Fixture {
  Fixture() : pair({.tcp = SmallTcp()}), remote(std::make_shared<MappedMemory>(kSize)) {
    memset(remote->bytes(), 0x11, kSize);
    pair.resolver.Add(kChannel, kBase, remote);
    pair.WaitUntilUp(2);
  }
  // A lane that the target has taken for a real one.
  std::unique_ptr<RawLane> Accepted() {
    auto lane = std::make_unique<RawLane>(pair.acceptor->endpoint());
    lane->Hello(9, ++generation);
    std::string proof;
    const auto welcome = lane->Receive(&proof);
    REQUIRE(welcome.has_value());
    REQUIRE(welcome->type == wire::FrameType::kLaneWelcome);
    return lane;
  }
  bool Untouched() const {
    const std::vector<std::byte> expected(kSize, std::byte{0x11});
    return memcmp(remote->bytes(), expected.data(), kSize) == 0;
  }
  void CheckStillServing() {
    auto local = std::make_shared<MappedMemory>(kSize);
    TestTransfer read(CopyDirection::kRead,
                      {{.local = {local.get(), 0}, .remote_address = kBase, .length = kSize}});
    read.job()->channel = kChannel;
    REQUIRE(pair.Run(read).ok());
    REQUIRE(pair.CountUp() == 2);
  }

  TcpPair pair;
  std::shared_ptr<MappedMemory> remote;
  uint32_t generation = 0;
};

TEST_CASE("an initiator with the wrong secret gets no lane") {
  TcpPair pair({.tcp = SmallTcp(), .initiator_secret = std::string(32, 'x')});
  auto local = std::make_shared<MappedMemory>(10);
  TestTransfer read(CopyDirection::kRead,
                    {{.local = {local.get(), 0}, .remote_address = kBase, .length = 10}});
  read.job()->deadline_ns = MonotonicNanos() + 50 * kNanosPerMilli;
  CHECK(ApiCodeOf(pair.Run(read)) == ApiCode::kTimeout);
  // On an emulated processor the deadline may pass before the first hello has been looked at.
  while (pair.target_transport->counters().refused_lanes == 0) std::this_thread::yield();
  CHECK(pair.CountUp() == 0);
  CHECK(pair.target->Lanes().empty());
}

TEST_CASE("a hello with a wrong proof, an old generation or an unknown link is refused") {
  Fixture f;
  const uint64_t before = f.pair.target_transport->counters().refused_lanes;
  const std::string good = RawLane::HelloBytes(9, 5, std::string(32, 's'));
  std::vector<std::string> bad;
  bad.push_back(RawLane::HelloBytes(9, 5, std::string(32, 'x')));
  std::string flipped = good;
  flipped.back() ^= 1;
  bad.push_back(flipped);
  // The proof of one lane does not open another.
  std::string other_lane = good;
  other_lane[16] = 8;
  bad.push_back(other_lane);
  bad.push_back(RawLane::HelloBytes(64, 1, std::string(32, 's')));  // beyond the last lane
  bad.push_back(RawLane::HelloBytes(0, 1, std::string(32, 's')));   // replayed
  bad.push_back(RawLane::HelloBytes(9, 0, std::string(32, 's')));
  std::string unknown_link = good;
  unknown_link[8] = 8;
  bad.push_back(unknown_link);
  for (const std::string& hello : bad) {
    RawLane lane(f.pair.acceptor->endpoint());
    lane.Send(hello);
    REQUIRE(lane.ClosedByPeer());
  }
  CHECK(f.pair.target_transport->counters().refused_lanes == before + bad.size());
  // The good one, byte by byte, is taken.
  RawLane slow(f.pair.acceptor->endpoint());
  for (const char byte : good) slow.Send(std::string(1, byte));
  std::string proof;
  const auto welcome = slow.Receive(&proof);
  REQUIRE(welcome.has_value());
  CHECK(proof == LaneProof(std::string(32, 's'), LaneSide::kTarget, 7, 9, 5));
  f.CheckStillServing();
}

TEST_CASE("sockets that say nothing are bounded in number") {
  Fixture f;
  std::vector<std::unique_ptr<RawLane>> silent;
  for (int i = 0; i < 256; ++i) {
    silent.push_back(std::make_unique<RawLane>(f.pair.acceptor->endpoint()));
  }
  const uint64_t before = f.pair.target_transport->counters().refused_lanes;
  RawLane one_too_many(f.pair.acceptor->endpoint());
  CHECK(one_too_many.ClosedByPeer());
  CHECK(f.pair.target_transport->counters().refused_lanes == before + 1);
  f.CheckStillServing();
  silent.clear();
}

TEST_CASE("frames that do not add up close their lane and nothing else") {
  Fixture f;
  wire::FrameHeader write;
  write.type = wire::FrameType::kWrite;
  write.transfer = 1;
  write.channel = kChannel;
  write.pieces = 1;
  write.body = 100;
  std::vector<std::string> bad;
  auto add = [&](wire::FrameHeader header, const std::vector<wire::Piece>& pieces) {
    header.pieces = static_cast<uint32_t>(pieces.size());
    bad.push_back(RawLane::Encode(header, pieces));
  };
  add(write, {});                                           // a body without a place
  add(write, {{kBase, 99}});                                // too short
  add(write, {{kBase, 101}});                               // too long
  add(write, {{kBase, 50}, {kBase, 0}, {kBase + 50, 50}});  // an empty piece
  add(write, {{kBase, UINT64_MAX}, {kBase, 101}});          // a sum that overflows
  wire::FrameHeader read = write;
  read.type = wire::FrameType::kRead;
  add(read, {{kBase, 99}});
  read.body = 0;
  add(read, {});
  for (const auto type : {wire::FrameType::kWriteAck, wire::FrameType::kReadData,
                          wire::FrameType::kLaneHello, wire::FrameType::kLaneWelcome}) {
    wire::FrameHeader header = write;
    header.type = type;
    add(header, {});
  }
  write.code = 1;
  add(write, {{kBase, 100}});
  std::string magic = RawLane::Encode(write, {{kBase, 100}});
  magic[0] ^= 1;
  bad.push_back(magic);
  wire::FrameHeader huge;
  huge.body = wire::kMaxBodyBytes + 1;
  bad.push_back(RawLane::Encode(huge));
  wire::FrameHeader many;
  many.pieces = wire::kMaxPiecesPerFrame + 1;
  bad.push_back(RawLane::Encode(many));

  for (size_t i = 0; i < bad.size(); ++i) {
    INFO("frame " << i);
    auto lane = f.Accepted();
    lane->Send(bad[i]);
    REQUIRE(lane->ClosedByPeer());
    REQUIRE(f.pair.target_transport->counters().malformed_frames == i + 1);
  }
  f.CheckStillServing();
  CHECK(f.Untouched());
}

TEST_CASE("ranges that are not registered are refused one by one, the lane goes on") {
  Fixture f;
  auto lane = f.Accepted();
  uint64_t transfer = 100;
  const std::vector<std::vector<wire::Piece>> bad = {
      {{kBase - 1, 100}}, {{kBase + kSize - 99, 100}}, {{kBase + kSize, 100}},
      {{0, 100}},         {{UINT64_MAX - 10, 100}},    {{kBase, 50}, {kBase + kSize, 50}},
  };
  for (const auto& pieces : bad) {
    wire::FrameHeader header;
    header.type = wire::FrameType::kWrite;
    header.transfer = ++transfer;
    header.channel = kChannel;
    header.stripe = 4;
    header.pieces = static_cast<uint32_t>(pieces.size());
    header.body = 100;
    lane->Send(RawLane::Encode(header, pieces) + std::string(100, 'w'));
    header.type = wire::FrameType::kRead;
    lane->Send(RawLane::Encode(header, pieces));
    for (const auto type : {wire::FrameType::kWriteAck, wire::FrameType::kReadData}) {
      std::string error;
      const auto answer = lane->Receive(&error);
      REQUIRE(answer.has_value());
      CHECK(answer->type == type);
      CHECK(answer->transfer == transfer);
      CHECK(answer->stripe == 4);
      CHECK(answer->code == static_cast<uint32_t>(ApiCode::kParamInvalid));
      CHECK(error.find("is not registered") != std::string::npos);
    }
  }
  CHECK(f.Untouched());
  CHECK(f.pair.target_transport->counters().malformed_frames == 0);
}

TEST_CASE("random bytes and mutated frames never reach memory, and the daemon serves on") {
  Fixture f;
  std::mt19937_64 random(5);
  for (int round = 0; round < 150; ++round) {
    auto lane = f.Accepted();
    std::string bytes;
    if (round % 3 == 0) {
      bytes.resize(1 + random() % 5000);
      for (char& byte : bytes) byte = static_cast<char>(random());
    } else {
      // A frame that is right except for a few bits; its channel does not exist, so that what
      // happens to be valid is refused by the resolver.
      wire::FrameHeader header;
      header.type = random() % 2 == 0 ? wire::FrameType::kWrite : wire::FrameType::kRead;
      header.transfer = random();
      header.channel = 1ULL << 40;
      std::vector<wire::Piece> pieces(1 + random() % 20);
      for (wire::Piece& piece : pieces) {
        piece = {.address = kBase + random() % kSize, .length = 1 + random() % 500};
        header.body += piece.length;
      }
      header.pieces = static_cast<uint32_t>(pieces.size());
      bytes = RawLane::Encode(header, pieces);
      if (header.type == wire::FrameType::kWrite) bytes += std::string(header.body, 'w');
      for (uint64_t flips = random() % 4; flips > 0; --flips) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
      }
    }
    lane->Send(bytes);
    lane->HalfClose();
    REQUIRE(lane->ClosedByPeer());
  }
  CHECK(f.Untouched());
  f.CheckStillServing();
}

TEST_CASE("a peer that asks and never reads does not make the target grow without bound") {
  Fixture f;
  auto lane = f.Accepted();
  wire::FrameHeader header;
  header.type = wire::FrameType::kRead;
  header.channel = kChannel;
  header.pieces = 1;
  header.body = kSize;
  std::string burst;
  for (int i = 0; i < 20'000; ++i) {
    header.transfer = static_cast<uint64_t>(i);
    burst += RawLane::Encode(header, {{kBase, kSize}});
  }
  // Blocks once the target stops reading, so it is sent from a thread that the close ends.
  std::thread sender([&] { lane->Send(burst); });
  f.CheckStillServing();
  std::promise<void> fenced;
  f.pair.target->FenceChannel(kChannel, [&] { fenced.set_value(); });
  fenced.get_future().get();
  f.pair.CloseTarget();
  sender.join();
}

}  // namespace
}  // namespace hixld
