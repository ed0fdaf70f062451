#include "client/bench/pump.h"

#include <sys/sendfile.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/bench/threads.h"
#include "proto/base/clock.h"
#include "proto/base/memfd.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

// What iperf3 hands to one call.
constexpr size_t kPiece = 128 << 10;
constexpr int kAcceptTimeoutMs = 10'000;
constexpr uint64_t kMaxStreams = 64;

// Runs `work` for each stream in a thread of its own and adds the results up.
absl::StatusOr<uint64_t> ForEachStream(const std::vector<UniqueFd>& streams,
                                       const std::function<absl::StatusOr<uint64_t>(int)>& work) {
  std::vector<absl::StatusOr<uint64_t>> results(streams.size(), 0);
  {
    Threads threads;
    for (size_t i = 0; i < streams.size(); ++i) {
      threads.Start([&, i] { results[i] = work(streams[i].get()); });
    }
  }
  uint64_t sum = 0;
  for (const auto& result : results) {
    HIXLD_RETURN_IF_ERROR(result.status());
    sum += *result;
  }
  return sum;
}

absl::StatusOr<uint64_t> ReceiveAll(int fd) {
  std::vector<std::byte> buffer(kPiece);
  uint64_t received = 0;
  while (true) {
    const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (n == 0) return received;
    if (n < 0 && errno != EINTR) return ErrnoError(errno, "socket baseline: receive");
    if (n > 0) received += static_cast<uint64_t>(n);
  }
}

ssize_t SendOnce(int fd, int memfd, const std::vector<std::byte>& buffer) {
  if (memfd < 0) return ::send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL);
  off_t offset = 0;
  return ::sendfile(fd, memfd, &offset, kPiece);
}

absl::StatusOr<uint64_t> SendFor(int fd, const PumpOrder& order) {
  UniqueFd memfd;
  if (order.zero_copy) {
    HIXLD_ASSIGN_OR_RETURN(memfd, CreateSealedMemfd("hixl-bench-pump", kPiece));
  }
  const std::vector<std::byte> buffer(kPiece);
  const int64_t end = MonotonicNanos() + order.duration;
  uint64_t sent = 0;
  while (MonotonicNanos() < end) {
    const ssize_t n = SendOnce(fd, memfd.get(), buffer);
    if (n < 0 && errno != EINTR) return ErrnoError(errno, "socket baseline: send");
    if (n > 0) sent += static_cast<uint64_t>(n);
  }
  ::shutdown(fd, SHUT_WR);
  HIXLD_RETURN_IF_ERROR(ReceiveAll(fd).status());
  return sent;
}

}  // namespace

std::string PumpOrder::ToText() const {
  return absl::StrCat("pump streams=", streams, " towards_initiator=", towards_initiator ? 1 : 0,
                      " zero_copy=", zero_copy ? 1 : 0, " duration=", duration);
}

absl::StatusOr<PumpOrder> PumpOrder::FromText(absl::string_view text) {
  std::map<std::string, uint64_t> fields = {
      {"streams", 1}, {"towards_initiator", 0}, {"zero_copy", 0}, {"duration", 0}};
  for (const absl::string_view field : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (field == "pump") continue;
    const std::pair<std::string, std::string> pair = absl::StrSplit(field, absl::MaxSplits('=', 1));
    const auto found = fields.find(pair.first);
    if (found == fields.end() || !absl::SimpleAtoi(pair.second, &found->second)) {
      return ParamInvalid(absl::StrCat("pump: bad field ", field));
    }
  }
  if (fields["streams"] < 1 || fields["streams"] > kMaxStreams ||
      fields["duration"] > uint64_t{3600} * kNanosPerSecond) {
    return ParamInvalid(absl::StrCat("pump: out of bounds: ", text));
  }
  return PumpOrder{fields["streams"], fields["towards_initiator"] != 0, fields["zero_copy"] != 0,
                   static_cast<int64_t>(fields["duration"])};
}

absl::StatusOr<uint64_t> PumpOut(const std::vector<UniqueFd>& streams, const PumpOrder& order) {
  return ForEachStream(streams, [&order](int fd) { return SendFor(fd, order); });
}

absl::StatusOr<uint64_t> PumpIn(const std::vector<UniqueFd>& streams) {
  return ForEachStream(streams, [](int fd) -> absl::StatusOr<uint64_t> {
    HIXLD_ASSIGN_OR_RETURN(const uint64_t received, ReceiveAll(fd));
    ::shutdown(fd, SHUT_WR);
    return received;
  });
}

absl::Status ServePump(LineSocket& initiator, const PumpOrder& order) {
  HIXLD_ASSIGN_OR_RETURN(const Endpoint here, LocalAddress(initiator.fd()));
  HIXLD_ASSIGN_OR_RETURN(const UniqueFd listener, Listen(here.WithPort(0)));
  HIXLD_ASSIGN_OR_RETURN(const Endpoint bound, LocalAddress(listener.get()));
  HIXLD_RETURN_IF_ERROR(initiator.Send(absl::StrCat("ok ", bound.port)));
  std::vector<UniqueFd> streams;
  for (uint64_t i = 0; i < order.streams; ++i) {
    HIXLD_ASSIGN_OR_RETURN(UniqueFd stream, Accept(listener.get(), kAcceptTimeoutMs));
    streams.push_back(std::move(stream));
  }
  auto pumped = order.towards_initiator ? PumpOut(streams, order) : PumpIn(streams);
  return pumped.status();
}

absl::StatusOr<double> RunPump(LineSocket& target, const PumpOrder& order) {
  HIXLD_ASSIGN_OR_RETURN(const std::string answer, target.Ask(order.ToText()));
  uint32_t port = 0;
  if (!absl::SimpleAtoi(answer, &port) || port == 0 || port > 65535) {
    return Failed(absl::StrCat("target: bad port \"", answer, "\""));
  }
  HIXLD_ASSIGN_OR_RETURN(const Endpoint there, PeerAddress(target.fd()));
  std::vector<UniqueFd> streams;
  for (uint64_t i = 0; i < order.streams; ++i) {
    HIXLD_ASSIGN_OR_RETURN(UniqueFd stream, ConnectTo(there.WithPort(static_cast<uint16_t>(port))));
    streams.push_back(std::move(stream));
  }
  const int64_t start = MonotonicNanos();
  HIXLD_ASSIGN_OR_RETURN(const uint64_t bytes,
                         order.towards_initiator ? PumpIn(streams) : PumpOut(streams, order));
  const int64_t elapsed = MonotonicNanos() - start;
  HIXLD_RETURN_IF_ERROR(target.Answer().status());
  return static_cast<double>(bytes) / static_cast<double>(elapsed);
}

}  // namespace hixld::bench
