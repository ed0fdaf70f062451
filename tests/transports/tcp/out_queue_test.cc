#include "transports/tcp/out_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace hixld {
namespace {

std::unique_ptr<OutFrame> Frame(OutQueue* queue, uint64_t transfer, const std::string& body,
                                std::shared_ptr<const void> pin = nullptr) {
  auto frame = queue->New();
  frame->header.type = wire::FrameType::kWrite;
  frame->header.transfer = transfer;
  frame->header.pieces = 1;
  frame->header.body = body.size();
  frame->AddPiece({.address = transfer * 1000, .length = body.size()});
  frame->AddBody(reinterpret_cast<const std::byte*>(body.data()), body.size());
  frame->Pin(std::move(pin));
  return frame;
}

// Takes up to `limit` bytes out of the queue, as a socket would.
std::string Drain(OutQueue* queue, uint64_t limit) {
  iovec iov[16];
  std::string bytes;
  const size_t count = queue->Gather(iov, 16, limit);
  for (size_t i = 0; i < count; ++i) {
    bytes.append(static_cast<const char*>(iov[i].iov_base), iov[i].iov_len);
  }
  REQUIRE(bytes.size() <= limit);
  queue->Sent(bytes.size());
  return bytes;
}

constexpr size_t kHead = wire::kFrameHeaderBytes + wire::kPieceBytes;

TEST_CASE("large parts that lie in a file are given as such, the rest as memory") {
  const std::string memory(5000, 'm');
  const auto* data = reinterpret_cast<const std::byte*>(memory.data());
  OutQueue queue;
  queue.set_file_bytes(1000);
  auto frame = queue.New();
  frame->header.body = 4000;
  frame->AddBody(data, 500, {.fd = 7, .offset = 100});  // small, but joined with the next
  frame->AddBody(data + 500, 1000, {.fd = 7, .offset = 600});
  frame->AddBody(data + 1500, 1000, {.fd = 7, .offset = 9000});   // another place of the file
  frame->AddBody(data + 3000, 999, {.fd = 7, .offset = 20'000});  // too small
  frame->AddBody(data + 4100, 501);
  queue.Push(std::move(frame));
  CHECK(queue.NextFile().fd == -1);
  CHECK(Drain(&queue, 10'000).size() == wire::kFrameHeaderBytes);
  OutPart file = queue.NextFile();
  CHECK((file.fd == 7 && file.file_offset == 100 && file.length == 1500));
  queue.Sent(400);
  file = queue.NextFile();
  CHECK((file.file_offset == 500 && file.length == 1100 && file.data == data + 400));
  queue.Sent(200);
  // What is left of a part is sent as memory when it is small.
  CHECK(queue.NextFile().fd == -1);
  CHECK(Drain(&queue, 10'000).size() == 900);
  CHECK(queue.NextFile().file_offset == 9000);
  queue.Sent(1000);
  CHECK(queue.NextFile().fd == -1);
  CHECK(Drain(&queue, 10'000).size() == 1500);
  CHECK(queue.empty());
}

TEST_CASE("frames come out in order, however they are torn") {
  std::mt19937_64 random(1);
  std::vector<std::string> bodies;
  for (int i = 0; i < 50; ++i) {
    bodies.push_back(std::string(1 + random() % 500, static_cast<char>('a' + i % 26)));
  }
  OutQueue queue;
  uint64_t expected_bytes = 0;
  for (size_t i = 0; i < bodies.size(); ++i) {
    queue.Push(Frame(&queue, i, bodies[i]));
    expected_bytes += kHead + bodies[i].size();
  }
  CHECK(queue.bytes() == expected_bytes);
  std::string stream;
  while (!queue.empty()) stream += Drain(&queue, 1 + random() % 300);
  REQUIRE(stream.size() == expected_bytes);
  CHECK(queue.bytes() == 0);
  CHECK(queue.pieces() == 0);
  size_t at = 0;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const auto header = wire::DecodeHeader(absl::MakeConstSpan(
        reinterpret_cast<const uint8_t*>(stream.data()) + at, wire::kFrameHeaderBytes));
    REQUIRE(header.ok());
    REQUIRE(header->transfer == i);
    REQUIRE(stream.substr(at + kHead, bodies[i].size()) == bodies[i]);
    at += kHead + bodies[i].size();
  }
}

TEST_CASE("neighbouring parts of a body become one") {
  OutQueue queue;
  auto frame = queue.New();
  const std::string text = "abcdef";
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  frame->AddBody(bytes, 2);
  frame->AddBody(bytes + 2, 2);
  frame->AddBody(bytes + 5, 1);
  CHECK(frame->body.size() == 2);
}

TEST_CASE("abandoned frames are taken out, or finish with a copy when they have started") {
  std::string body(300, 'x');
  const std::string other(100, 'y');
  // Torn inside the header, inside the table, at its end, inside the body.
  const size_t torn = GENERATE(10, 50, kHead, kHead + 100);
  OutQueue queue;
  auto pin = std::make_shared<int>(0);
  queue.Push(Frame(&queue, 1, body, pin));
  queue.Push(Frame(&queue, 2, other));
  queue.Push(Frame(&queue, 1, body, pin));
  std::string stream = Drain(&queue, torn);
  std::vector<uint64_t> dropped;
  queue.Abandon([](const wire::FrameHeader& header) { return header.transfer == 1; },
                [&](const wire::FrameHeader& header) { dropped.push_back(header.transfer); });
  CHECK(dropped == std::vector<uint64_t>{1});
  CHECK(pin.use_count() == 1);
  CHECK(queue.frames() == 2);
  // The memory is the user's again.
  body.assign(body.size(), 'z');
  while (!queue.empty()) stream += Drain(&queue, 7);
  REQUIRE(stream.size() == 2 * kHead + body.size() + other.size());
  CHECK(stream.substr(kHead, body.size()) == std::string(300, 'x'));
  const wire::Piece piece =
      wire::DecodePiece(reinterpret_cast<const uint8_t*>(stream.data()) + wire::kFrameHeaderBytes);
  CHECK(piece.address == 1000);
  CHECK(piece.length == body.size());
  CHECK(stream.substr(2 * kHead + body.size()) == other);
}

TEST_CASE("a used frame comes back empty") {
  OutQueue queue;
  queue.Push(Frame(&queue, 1, "hello"));
  queue.Push(Frame(&queue, 2, "world"));
  queue.Clear();
  CHECK(queue.empty());
  CHECK(queue.bytes() == 0);
  const auto frame = queue.New();
  CHECK(frame->table.empty());
  CHECK(frame->body.empty());
  CHECK(frame->header.transfer == 0);
}

}  // namespace
}  // namespace hixld
