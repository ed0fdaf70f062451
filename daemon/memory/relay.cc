#include "daemon/memory/relay.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// As docs/fd-channel.md promises.
constexpr size_t kMaxSlices = 1024;

absl::Status AnswerError(const std::string& client, const hixl::fdchannel::v1::CopyDone& answer) {
  const ErrorInfo info = {
      .object = absl::StrFormat("memory 0x%x of %s", answer.failed_address(), client)};
  if (answer.error_number() == EFAULT) {
    return Failed(absl::StrFormat("copy in %s at 0x%x: the process has no such memory", client,
                                  answer.failed_address()),
                  info);
  }
  return ErrnoError(answer.error_number(),
                    absl::StrFormat("copy in %s at 0x%x", client, answer.failed_address()), info);
}

}  // namespace

struct Relay::Operation {
  Direction direction = Direction::kFromClient;
  ClientSpace space;
  uint64_t base = 0;
  std::vector<MemoryAccess::Slice> slices;
  MemoryAccess::Done done;
  // Everything before this place has been cut into pieces.
  size_t next = 0;
  uint64_t offset = 0;
  uint32_t pieces = 0;  // on their way
  absl::Status error;

  bool cut() const { return next == slices.size() || !error.ok(); }
};

// As much of an operation as fits into one slot and one command.
struct Relay::Piece {
  struct Part {
    uint64_t client_address = 0;
    uint64_t slot_offset = 0;
    std::byte* host = nullptr;
    uint64_t length = 0;
  };
  std::shared_ptr<Operation> operation;
  std::shared_ptr<ArenaPool::Buffer> buffer;
  uint32_t slot = 0;
  uint64_t slot_start = 0;  // in the buffer
  std::vector<Part> parts;
  int64_t sent_ns = 0;

  void FillSlot() const {
    for (const Part& part : parts) {
      memcpy(buffer->data() + slot_start + part.slot_offset, part.host, part.length);
    }
  }
  void DrainSlot() const {
    for (const Part& part : parts) {
      memcpy(part.host, buffer->data() + slot_start + part.slot_offset, part.length);
    }
  }
};

Relay::Relay(Options options, std::shared_ptr<ArenaPool> pool, Executor* executor, Send send)
    : options_(std::move(options)),
      pool_(std::move(pool)),
      executor_(executor),
      send_(std::move(send)) {}

absl::Status Relay::TakeArena() {
  absl::StatusOr<std::unique_ptr<ArenaPool::Buffer>> buffer;
  uint32_t slots = options_.max_slots;
  for (; slots > 0; slots /= 2) {
    buffer = pool_->Allocate(options_.session_id, slots * options_.slot_bytes, 0);
    if (buffer.ok()) break;
  }
  if (!buffer.ok()) return buffer.status();
  buffer_ = *std::move(buffer);
  for (uint32_t slot = 0; slot < slots; ++slot) free_slots_.push_back(slot);
  return absl::OkStatus();
}

void Relay::Copy(Direction direction, ClientSpace space, uint64_t base,
                 std::vector<MemoryAccess::Slice> slices, MemoryAccess::Done done) {
  std::erase_if(slices, [](const MemoryAccess::Slice& slice) { return slice.length == 0; });
  if (slices.empty()) return done(absl::OkStatus());
  absl::Status refused;
  std::vector<PiecePtr> pieces;
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) {
      refused = closed_;
    } else if (waiting_.size() >= options_.max_waiting) {
      refused = ResourceExhausted(absl::StrCat("too many copies wait for ", options_.client),
                                  {.object = absl::StrCat("relay of ", options_.client),
                                   .limit = absl::StrCat(options_.max_waiting, " waiting copies")});
    } else if (buffer_ == nullptr) {
      refused = TakeArena();
    }
    if (refused.ok()) {
      auto operation = std::make_shared<Operation>();
      operation->direction = direction;
      operation->space = space;
      operation->base = base;
      operation->slices = std::move(slices);
      operation->done = std::move(done);
      waiting_.push_back(std::move(operation));
      pieces = Cut();
    }
  }
  if (!refused.ok()) return done(std::move(refused));
  Launch(std::move(pieces));
}

std::vector<Relay::PiecePtr> Relay::Cut() {
  std::vector<PiecePtr> pieces;
  while (!free_slots_.empty() && !waiting_.empty()) {
    const std::shared_ptr<Operation> operation = waiting_.front();
    PiecePtr piece = CutOne(operation.get(), free_slots_.back());
    free_slots_.pop_back();
    piece->operation = operation;
    ++operation->pieces;
    if (operation->cut()) waiting_.pop_front();
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Relay::PiecePtr Relay::CutOne(Operation* operation, uint32_t slot) {
  auto piece = std::make_shared<Piece>();
  piece->buffer = buffer_;
  piece->slot = slot;
  piece->slot_start = slot * options_.slot_bytes;
  uint64_t used = 0;
  while (operation->next < operation->slices.size() && used < options_.slot_bytes &&
         piece->parts.size() < kMaxSlices) {
    const MemoryAccess::Slice& slice = operation->slices[operation->next];
    const uint64_t length = std::min(slice.length - operation->offset, options_.slot_bytes - used);
    piece->parts.push_back({.client_address = operation->base + slice.offset + operation->offset,
                            .slot_offset = used,
                            .host = slice.host + operation->offset,
                            .length = length});
    used += length;
    operation->offset += length;
    if (operation->offset == slice.length) {
      operation->offset = 0;
      ++operation->next;
    }
  }
  return piece;
}

void Relay::Launch(std::vector<PiecePtr> pieces) {
  for (PiecePtr& piece : pieces) {
    if (piece->operation->direction == Direction::kFromClient) {
      SendCommand(std::move(piece));
      continue;
    }
    // Bounded by the slots, so it needs no limit of the queue.
    executor_->Release(options_.session_id, "fill a relay slot",
                       [self = shared_from_this(), piece = std::move(piece)] {
                         piece->FillSlot();
                         self->SendCommand(piece);
                       });
  }
}

void Relay::SendCommand(PiecePtr piece) {
  CopyCommand command;
  command.set_arena_id(piece->buffer->arena()->id);
  command.set_to_arena(piece->operation->direction == Direction::kFromClient);
  command.set_device_memory(piece->operation->space.device);
  command.set_device_id(piece->operation->space.device_id);
  for (const Piece::Part& part : piece->parts) {
    auto* slice = command.add_slices();
    slice->set_client_address(part.client_address);
    slice->set_arena_offset(piece->buffer->offset() + piece->slot_start + part.slot_offset);
    slice->set_length(part.length);
  }
  uint64_t request_id = 0;
  absl::Status closed;
  {
    MutexLock lock(&mutex_);
    closed = closed_;
    if (closed.ok()) {
      request_id = next_request_id_++;
      piece->sent_ns = MonotonicNanos();
      sent_.emplace(request_id, piece);
    }
  }
  if (!closed.ok()) return Finish(piece, std::move(closed));
  send_(request_id, std::move(command));
}

absl::Status Relay::OnAnswer(uint64_t request_id, const CopyDone& answer) {
  PiecePtr piece;
  {
    MutexLock lock(&mutex_);
    auto node = sent_.extract(request_id);
    if (!node.empty()) piece = std::move(node.mapped());
  }
  if (piece == nullptr) {
    return ParamInvalid(absl::StrCat("CopyDone answers no command (request ", request_id, ")"),
                        {.object = "CopyDone"});
  }
  if (answer.error_number() != 0) {
    Finish(piece, AnswerError(options_.client, answer));
  } else if (piece->operation->direction == Direction::kToClient) {
    Finish(piece, absl::OkStatus());
  } else {
    executor_->Release(options_.session_id, "drain a relay slot",
                       [self = shared_from_this(), piece] {
                         piece->DrainSlot();
                         self->Finish(piece, absl::OkStatus());
                       });
  }
  return absl::OkStatus();
}

void Relay::Finish(const PiecePtr& piece, absl::Status status) {
  const std::shared_ptr<Operation>& operation = piece->operation;
  std::vector<PiecePtr> next;
  bool ended = false;
  absl::Status result;
  {
    MutexLock lock(&mutex_);
    free_slots_.push_back(piece->slot);
    --operation->pieces;
    if (!status.ok() && operation->error.ok()) {
      if (!operation->cut()) std::erase(waiting_, operation);
      operation->error = std::move(status);
    }
    ended = operation->pieces == 0 && operation->cut();
    result = operation->error;
    if (closed_.ok()) next = Cut();
  }
  Launch(std::move(next));
  if (ended) operation->done(std::move(result));
}

void Relay::Close(absl::Status reason) {
  std::vector<PiecePtr> pieces;
  std::vector<std::shared_ptr<Operation>> ended;
  // Freed here, unless a slot is being filled or drained: then by the thread that does it.
  std::shared_ptr<ArenaPool::Buffer> buffer;
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return;
    closed_ = reason;
    buffer.swap(buffer_);
    for (auto& [id, piece] : sent_) pieces.push_back(std::move(piece));
    sent_.clear();
    for (auto& operation : waiting_) {
      operation->error = reason;
      // Those with pieces on their way end with the last of them.
      if (operation->pieces == 0) ended.push_back(std::move(operation));
    }
    waiting_.clear();
  }
  for (const PiecePtr& piece : pieces) Finish(piece, reason);
  for (const auto& operation : ended) operation->done(reason);
}

std::optional<int64_t> Relay::OldestCommand() const {
  MutexLock lock(&mutex_);
  std::optional<int64_t> oldest;
  for (const auto& [id, piece] : sent_) {
    if (!oldest.has_value() || piece->sent_ns < *oldest) oldest = piece->sent_ns;
  }
  return oldest;
}

std::shared_ptr<const Arena> Relay::FindArena(uint64_t arena_id) const {
  MutexLock lock(&mutex_);
  if (buffer_ == nullptr || buffer_->arena()->id != arena_id) return nullptr;
  return buffer_->arena();
}

RelayAccess::RelayAccess(std::shared_ptr<Relay> relay, ClientSpace space, uint64_t address,
                         uint64_t length, std::string description)
    : MemoryAccess(Kind::kExecutor, nullptr, length),
      relay_(std::move(relay)),
      space_(space),
      address_(address),
      description_(std::move(description)) {}

void RelayAccess::Read(std::vector<Slice> slices, Done done) {
  relay_->Copy(Relay::Direction::kFromClient, space_, address_, std::move(slices), std::move(done));
}

void RelayAccess::Write(std::vector<Slice> slices, Done done) {
  relay_->Copy(Relay::Direction::kToClient, space_, address_, std::move(slices), std::move(done));
}

}  // namespace hixld
