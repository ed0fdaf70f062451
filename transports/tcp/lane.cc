#include "transports/tcp/lane.h"

#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"
#include "transports/tcp/socket.h"

namespace hixld {
namespace {

constexpr size_t kMaxIov = 1024;  // IOV_MAX of Linux
constexpr size_t kBufferBytes = 16 << 10;
constexpr size_t kScratchBytes = 64 << 10;
// A stripe or two with their headers, rather than all but their last bytes.
constexpr uint64_t kMaxBytesPerCall = (1 << 20) + (128 << 10);
constexpr uint64_t kMinLowWater = 128 << 10;
constexpr uint64_t kMaxLowWater = 256 << 10;
// After this much the loop's other work comes first.
constexpr uint64_t kBytesPerTurn = 2 << 20;

// Bytes that nobody wants.
std::byte* Scratch() {
  static thread_local const auto scratch = std::make_unique<std::byte[]>(kScratchBytes);
  return scratch.get();
}

bool HasBody(wire::FrameType type) { return type != wire::FrameType::kRead; }

}  // namespace

Lane::Lane(std::shared_ptr<TcpContext> context, Loop* loop, uint32_t index)
    : context_(std::move(context)), loop_(loop), index_(index) {}

Lane::~Lane() = default;

LaneStats Lane::stats() const {
  LaneStats stats;
  stats.index = index_;
  stats.bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  stats.bytes_received = bytes_received_.load(std::memory_order_relaxed);
  stats.bytes_uncopied = bytes_uncopied_.load(std::memory_order_relaxed);
  stats.reconnects = reconnects_.load(std::memory_order_relaxed);
  MutexLock lock(&mutex_);
  stats.local_address = local_address_;
  stats.remote_address = remote_address_;
  stats.state = state_text_;
  stats.error = error_;
  return stats;
}

void Lane::SetState(std::string state, std::string error) {
  std::string local = socket_.valid() ? LocalAddress(socket_.get()) : "";
  std::string remote = socket_.valid() ? RemoteAddress(socket_.get()) : "";
  MutexLock lock(&mutex_);
  state_text_ = std::move(state);
  if (!error.empty()) error_ = std::move(error);
  if (!local.empty()) local_address_ = std::move(local);
  if (!remote.empty()) remote_address_ = std::move(remote);
}

absl::Status Lane::Attach(UniqueFd socket) {
  socket_ = std::move(socket);
  readable_ = false;
  writable_ = false;
  hung_up_ = false;
  blocked_ = false;
  low_water_ = 1;
  state_ = State::kHeader;
  out_.Clear();
  out_.set_file_bytes(IsLoopback(socket_.get()) ? 0 : context_->options.zero_copy_bytes);
  if (buffer_ == nullptr) buffer_ = std::make_unique<uint8_t[]>(kBufferBytes);
  buffer_begin_ = 0;
  buffer_end_ = 0;
  MarkProgress();
  // The callback keeps the lane alive while it is watched.
  absl::Status status =
      loop_->AddFd(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                   [self = shared_from_this()](uint32_t events) { self->OnEvents(events); });
  if (!status.ok()) socket_.reset();
  return status;
}

void Lane::Detach() {
  if (!socket_.valid()) return;
  loop_->RemoveFd(socket_.get());
  CloseAbruptly(std::move(socket_));
  state_ = State::kHeader;
  sink_ = Sink::kDiscard;
  receiver_ = nullptr;
  text_ = nullptr;
}

void Lane::OnEvents(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) readable_ = true;
  if ((events & EPOLLOUT) != 0) writable_ = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up_ = true;
  if ((events & EPOLLERR) != 0) {
    Break(SocketError(socket_.get(), absl::StrCat("lane ", index_)), false);
    return;
  }
  Run();
}

void Lane::Schedule() {
  if (run_posted_ || running_ || !attached()) return;
  run_posted_ = true;
  loop_->Post([self = shared_from_this()] {
    self->run_posted_ = false;
    self->Run();
  });
}

void Lane::Break(absl::Status reason, bool malformed) {
  if (malformed) context_->malformed_frames.fetch_add(1, std::memory_order_relaxed);
  Detach();
  OnBroken(std::move(reason));
}

// One turn: receive, then send what that made possible, each within its budget.
void Lane::Run() {
  if (!attached() || running_) return;
  const std::shared_ptr<Lane> self = shared_from_this();
  running_ = true;
  uint64_t budget = kBytesPerTurn;
  bool open = Receive();
  while (open) {
    Refill();
    const uint64_t before = budget;
    open = Send(&budget);
    if (budget == before || budget == 0) break;
  }
  running_ = false;
  if (!open || !attached()) return;
  // Input that waits for staging is resumed by it.
  const bool more_input = blocked_ ? !in_body() && MayReadFrame() : readable_;
  const bool more_output = writable_ && !out_.empty();
  if (more_input || more_output) Schedule();
}

// Returns false when the lane is closed.
bool Lane::Receive() {
  blocked_ = false;
  for (uint64_t received = 0;;) {
    if (!MayLand()) {
      Break(Failed(absl::StrCat("the lease of lane ", index_, "'s link has ended")), false);
      return false;
    }
    // Also after the last read of a turn: what it brought may be all that there is.
    if (absl::Status status = Parse(); !status.ok()) {
      if (attached()) Break(std::move(status), true);
      return false;
    }
    if (!attached()) return false;
    if (blocked_ || !readable_ || received >= kBytesPerTurn) return true;
    const ssize_t count = ReadMore();
    if (blocked_) return true;
    if (count == 0) {
      Break(Failed(absl::StrCat("lane ", index_, " was closed by its other end")), false);
      return false;
    }
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        readable_ = false;
        return true;
      }
      Break(ErrnoError(errno, absl::StrCat("receive on lane ", index_)), false);
      return false;
    }
    received += static_cast<uint64_t>(count);
  }
}

// Reads what is there: the current body straight to its places, and what follows it into the
// buffer, all in one call.
ssize_t Lane::ReadMore() {
  iovec iov[kMaxIov];
  size_t count = 0;
  uint64_t body = 0;
  if (state_ == State::kBody) {
    count = BodyPlaces(iov, kMaxIov - 1, std::min(body_left_, kMaxBytesPerCall), &body);
    if (count == 0) {
      blocked_ = true;
      return 0;
    }
  }
  uint64_t wanted = body;
  if (body == body_left_ || state_ != State::kBody) {
    if (buffer_begin_ == buffer_end_) buffer_begin_ = buffer_end_ = 0;
    iov[count++] = {buffer_.get() + buffer_end_, kBufferBytes - buffer_end_};
    wanted += kBufferBytes - buffer_end_;
  }
  const ssize_t got = readv(socket_.get(), iov, static_cast<int>(count));
  if (got <= 0) {
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      AdjustLowWater();
      errno = EAGAIN;
    }
    return got;
  }
  // A short read has emptied the socket, and the next byte is a new edge; only the end of the
  // stream brings no edge of its own when it came together with the last bytes.
  if (static_cast<uint64_t>(got) < wanted && !hung_up_) readable_ = false;
  MarkProgress();
  bytes_received_.fetch_add(static_cast<uint64_t>(got), std::memory_order_relaxed);
  const uint64_t to_body = std::min<uint64_t>(static_cast<uint64_t>(got), body);
  if (to_body > 0) BodyReceived(to_body);
  buffer_end_ += static_cast<uint64_t>(got) - to_body;
  if (!readable_) AdjustLowWater();
  return got;
}

// In the middle of a large body the lane need not be woken for every packet.
void Lane::AdjustLowWater() {
  int wanted = 1;
  if (state_ == State::kBody && body_left_ > kMinLowWater) {
    wanted = static_cast<int>(std::min(body_left_, kMaxLowWater));
  }
  if (wanted == low_water_) return;
  low_water_ = wanted;
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof(wanted));
}

// Consumes the buffer as far as possible. Afterwards it is empty, or holds part of a header or
// table, or the input is blocked.
absl::Status Lane::Parse() {
  for (;;) {
    switch (state_) {
      case State::kHeader: {
        if (buffered() > 0 && !MayReadFrame()) {
          blocked_ = true;
          return absl::OkStatus();
        }
        absl::Status error;
        if (!ParseHeader(&error)) return error;
        break;
      }
      case State::kPieces: {
        if (!ParsePieces()) return absl::OkStatus();
        HIXLD_RETURN_IF_ERROR(StartBody());
        break;
      }
      case State::kBody: {
        const bool moved = CopyBufferedBody();
        if (body_left_ > 0) {
          blocked_ = blocked_ || (!moved && buffered() > 0);
          return absl::OkStatus();
        }
        HIXLD_RETURN_IF_ERROR(EndBodyIfComplete());
        break;
      }
    }
    if (!attached()) return absl::OkStatus();
  }
}

// Returns whether a header was there.
bool Lane::ParseHeader(absl::Status* error) {
  if (buffered() < wire::kFrameHeaderBytes) {
    if (buffer_begin_ > 0) {
      memmove(buffer_.get(), buffer_.get() + buffer_begin_, buffered());
      buffer_end_ -= buffer_begin_;
      buffer_begin_ = 0;
    }
    return false;
  }
  auto header = wire::DecodeHeader(
      absl::MakeConstSpan(buffer_.get() + buffer_begin_, wire::kFrameHeaderBytes));
  if (!header.ok()) {
    *error = header.status();
    return false;
  }
  header_ = *header;
  buffer_begin_ += wire::kFrameHeaderBytes;
  pieces_.clear();
  state_ = State::kPieces;
  return true;
}

// Returns whether the table is complete.
bool Lane::ParsePieces() {
  while (pieces_.size() < header_.pieces && buffered() >= wire::kPieceBytes) {
    pieces_.push_back(wire::DecodePiece(buffer_.get() + buffer_begin_));
    buffer_begin_ += wire::kPieceBytes;
  }
  if (pieces_.size() == header_.pieces) return true;
  if (buffer_begin_ > 0) {
    memmove(buffer_.get(), buffer_.get() + buffer_begin_, buffered());
    buffer_end_ -= buffer_begin_;
    buffer_begin_ = 0;
  }
  return false;
}

absl::Status Lane::StartBody() {
  state_ = State::kBody;
  body_left_ = HasBody(header_.type) ? header_.body : 0;
  Divert();
  return OnFrame(header_, pieces_);
}

absl::Status Lane::EndBodyIfComplete() {
  if (body_left_ > 0) return absl::OkStatus();
  state_ = State::kHeader;
  receiver_ = nullptr;
  text_ = nullptr;
  return OnBodyEnd();
}

// Moves what was read ahead to where the body goes. Returns false when there was no place.
bool Lane::CopyBufferedBody() {
  while (body_left_ > 0 && buffered() > 0) {
    iovec place;
    uint64_t bytes = 0;
    if (BodyPlaces(&place, 1, std::min<uint64_t>(body_left_, buffered()), &bytes) == 0) {
      return false;
    }
    memcpy(place.iov_base, buffer_.get() + buffer_begin_, bytes);
    buffer_begin_ += bytes;
    BodyReceived(bytes);
  }
  return true;
}

size_t Lane::BodyPlaces(iovec* out, size_t max, uint64_t limit, uint64_t* bytes) {
  if (sink_ == Sink::kReceiver) return receiver_->Places(out, max, limit, bytes);
  if (sink_ == Sink::kText) {
    *out = {text_->data() + text_at_, limit};
    *bytes = limit;
    return 1;
  }
  size_t count = 0;
  for (*bytes = 0; *bytes < limit && count < max; ++count) {
    const uint64_t length = std::min<uint64_t>(limit - *bytes, kScratchBytes);
    out[count] = {Scratch(), length};
    *bytes += length;
  }
  return count;
}

void Lane::BodyReceived(uint64_t bytes) {
  body_left_ -= bytes;
  if (sink_ == Sink::kReceiver) {
    receiver_->Received(bytes);
  } else if (sink_ == Sink::kText) {
    text_at_ += bytes;
  }
}

void Lane::ReceiveInto(BodyReceiver* receiver) {
  sink_ = Sink::kReceiver;
  receiver_ = receiver;
  receiver_->set_resume([this] { Schedule(); });
}

void Lane::ReceiveInto(std::string* text, uint64_t bytes) {
  sink_ = Sink::kText;
  text_ = text;
  text_->resize(bytes);
  text_at_ = 0;
}

void Lane::Divert() {
  sink_ = Sink::kDiscard;
  receiver_ = nullptr;
  text_ = nullptr;
  if (blocked_) Schedule();
}

ssize_t Lane::SendFile(const OutPart& part, uint64_t limit) {
  auto offset = static_cast<off_t>(part.file_offset);
  const ssize_t sent =
      sendfile(socket_.get(), part.fd, &offset, std::min<uint64_t>(part.length, limit));
  if (sent > 0) bytes_uncopied_.fetch_add(static_cast<uint64_t>(sent), std::memory_order_relaxed);
  return sent;
}

ssize_t Lane::SendGathered(uint64_t limit) {
  iovec iov[kMaxIov];
  msghdr message = {};
  message.msg_iov = iov;
  message.msg_iovlen = out_.Gather(iov, kMaxIov, limit);
  uint64_t gathered = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) gathered += iov[i].iov_len;
  // What a file gives next shares the packet.
  const bool file_follows =
      gathered < limit && message.msg_iovlen < kMaxIov && gathered < out_.bytes();
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL | (file_follows ? MSG_MORE : 0));
}

// Returns false when the lane is closed.
bool Lane::Send(uint64_t* budget) {
  while (writable_ && !out_.empty() && *budget > 0) {
    const uint64_t limit = std::min(*budget, kMaxBytesPerCall);
    const OutPart file = out_.NextFile();
    const ssize_t sent = file.fd >= 0 ? SendFile(file, limit) : SendGathered(limit);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        writable_ = false;
        return true;
      }
      if (file.fd >= 0 && errno == EINVAL) {
        // Files on huge pages cannot be sent from.
        out_.set_file_bytes(0);
        continue;
      }
      Break(ErrnoError(errno, absl::StrCat("send on lane ", index_)), false);
      return false;
    }
    const uint64_t bytes = static_cast<uint64_t>(sent);
    out_.Sent(bytes);
    MarkProgress();
    bytes_sent_.fetch_add(bytes, std::memory_order_relaxed);
    *budget -= std::min(*budget, bytes);
  }
  return true;
}

}  // namespace hixld
