#include "transports/tcp/target_lane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"
#include "proto/wire/peer.pb.h"
#include "transports/tcp/lane_proof.h"

namespace hixld {
namespace {

// Answers that wait for the network: beyond any of these the lane reads no further frame.
constexpr size_t kMaxAnswers = 1024;
constexpr size_t kMaxAnswerPieces = 64 << 10;
constexpr size_t kMaxReading = 64;
constexpr size_t kMaxWriting = 64;
constexpr size_t kMaxErrorText = 1024;

}  // namespace

TargetLane::TargetLane(std::shared_ptr<TcpContext> context, std::shared_ptr<TargetLinkCore> link,
                       uint32_t index, uint32_t generation, uint32_t worker)
    : Lane(context, &context->workers->at(worker), index),
      link_(std::move(link)),
      generation_(generation),
      worker_(worker) {
  SetState("connecting");
}

void TargetLane::Start(UniqueFd socket) {
  loop()->Post([self = std::static_pointer_cast<TargetLane>(shared_from_this()),
                socket = std::move(socket)]() mutable {
    if (self->link_ == nullptr) return;  // closed meanwhile
    if (absl::Status status = self->Attach(std::move(socket)); !status.ok()) {
      self->OnBroken(std::move(status));
      return;
    }
    self->SetState("up");
    const LaneIdentity& identity = self->link_->identity();
    auto welcome = self->out().New();
    welcome->header.type = wire::FrameType::kLaneWelcome;
    welcome->header.transfer = identity.link_id;
    welcome->header.channel = self->index();
    welcome->header.stripe = self->generation_;
    welcome->header.body = wire::kLaneProofBytes;
    welcome->text = LaneProof(identity.secret, LaneSide::kTarget, identity.link_id, self->index(),
                              self->generation_);
    self->out().Push(std::move(welcome));
    self->Schedule();
  });
}

void TargetLane::Close(Fence fence) {
  loop()->Post([self = std::static_pointer_cast<TargetLane>(shared_from_this()),
                fence = std::move(fence)] { self->CloseNow(fence); });
}

void TargetLane::FenceTransfer(uint64_t transfer, Fence fence) {
  loop()->Post([self = std::static_pointer_cast<TargetLane>(shared_from_this()), transfer,
                fence = std::move(fence)] {
    self->FenceMatching(
        [transfer](const wire::FrameHeader& header) {
          return header.transfer == transfer && header.type == wire::FrameType::kWrite;
        },
        Failed(absl::StrCat("transfer ", transfer, " was cancelled")), fence);
  });
}

void TargetLane::FenceChannel(uint64_t channel, Fence fence) {
  loop()->Post([self = std::static_pointer_cast<TargetLane>(shared_from_this()), channel,
                fence = std::move(fence)] {
    self->FenceMatching(
        [channel](const wire::FrameHeader& header) {
          return header.channel == channel && header.type != wire::FrameType::kLaneWelcome;
        },
        NotConnected(absl::StrCat("channel ", channel, " was closed")), fence);
  });
}

// --- frames

absl::Status TargetLane::CheckPieces(const wire::FrameHeader& header,
                                     const std::vector<wire::Piece>& pieces) const {
  if (header.code != 0) return ParamInvalid("a request on a lane must not have a code");
  uint64_t left = header.body;
  for (const wire::Piece& piece : pieces) {
    if (piece.length == 0 || piece.length > left) {
      return ParamInvalid(absl::StrCat("the pieces of a frame do not add up to its body of ",
                                       header.body, " bytes"));
    }
    left -= piece.length;
  }
  if (left > 0 || pieces.empty()) {
    return ParamInvalid(absl::StrCat("the pieces of a frame leave ", left, " of ", header.body,
                                     " bytes without a place"));
  }
  return absl::OkStatus();
}

// Fills parts_; all pieces or an error.
absl::Status TargetLane::Resolve(const wire::FrameHeader& header,
                                 const std::vector<wire::Piece>& pieces) {
  parts_.clear();
  for (const wire::Piece& piece : pieces) {
    const size_t before = parts_.size();
    HIXLD_RETURN_IF_ERROR(
        link_->resolver()->Resolve(header.channel, piece.address, piece.length, &parts_));
    uint64_t bytes = 0;
    for (size_t i = before; i < parts_.size(); ++i) bytes += parts_[i].length;
    if (bytes != piece.length) {
      return Failed(absl::StrCat("range ", piece.address, "+", piece.length, " was resolved to ",
                                 bytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status TargetLane::OnFrame(const wire::FrameHeader& header,
                                 const std::vector<wire::Piece>& pieces) {
  current_ = header;
  switch (header.type) {
    case wire::FrameType::kWrite:
      HIXLD_RETURN_IF_ERROR(CheckPieces(header, pieces));
      return StartWrite(header, pieces);
    case wire::FrameType::kRead:
      HIXLD_RETURN_IF_ERROR(CheckPieces(header, pieces));
      StartRead(header, pieces);
      return absl::OkStatus();
    default:
      return ParamInvalid(
          absl::StrCat("frame type ", static_cast<int>(header.type), " is not for a target"));
  }
}

bool TargetLane::MayReadFrame() {
  return out().frames() < kMaxAnswers && out().pieces() < kMaxAnswerPieces &&
         reading_.size() < kMaxReading && writing_.size() < kMaxWriting;
}

bool TargetLane::MayLand() { return link_->resolver()->MayLand(); }

// --- WRITE

absl::Status TargetLane::StartWrite(const wire::FrameHeader& header,
                                    const std::vector<wire::Piece>& pieces) {
  receiver_ = nullptr;
  refusal_ = link_->IsCancelled(header.transfer)
                 ? Failed(absl::StrCat("transfer ", header.transfer, " was cancelled"))
                 : Resolve(header, pieces);
  if (!refusal_.ok()) return absl::OkStatus();
  if (spare_ == nullptr || spare_.use_count() > 1) {
    spare_ = std::make_shared<BodyReceiver>(loop(), context_->inbound[worker_]);
  }
  receiver_ = std::move(spare_);
  receiver_->Reset();
  for (TargetResolver::Part& part : parts_) {
    receiver_->Add(part.memory, part.length);
    receiver_->Pin(std::move(part.pin));
  }
  parts_.clear();
  ReceiveInto(receiver_.get());
  return absl::OkStatus();
}

absl::Status TargetLane::OnBodyEnd() {
  if (current_.type != wire::FrameType::kWrite) return absl::OkStatus();
  if (receiver_ == nullptr) {
    AnswerWrite(current_, refusal_);
    return absl::OkStatus();
  }
  std::shared_ptr<BodyReceiver> receiver = std::move(receiver_);
  receiver_ = nullptr;
  if (!receiver->busy()) {
    AnswerWrite(current_, receiver->status());
    receiver->Reset();  // lets the pins go
    spare_ = std::move(receiver);
    return absl::OkStatus();
  }
  TrackUntilQuiet(current_, std::move(receiver), true);
  return absl::OkStatus();
}

// Remembers a receiver with writes under way, so that every later fence waits for them.
void TargetLane::TrackUntilQuiet(const wire::FrameHeader& header,
                                 std::shared_ptr<BodyReceiver> receiver, bool answer) {
  BodyReceiver* raw = receiver.get();
  writing_.push_back({header, std::move(receiver)});
  raw->WhenQuiet(
      [self = std::static_pointer_cast<TargetLane>(shared_from_this()), header, raw, answer] {
        const absl::Status status = raw->status();
        auto& writing = self->writing_;
        writing.erase(std::remove_if(writing.begin(), writing.end(),
                                     [raw](const Writing& w) { return w.receiver.get() == raw; }),
                      writing.end());
        if (answer && self->attached()) self->AnswerWrite(header, status);
        self->Schedule();
        self->GoneIfQuiet();
      });
}

void TargetLane::AnswerWrite(const wire::FrameHeader& header, const absl::Status& status) {
  if (!status.ok()) {
    QueueError(header, wire::FrameType::kWriteAck, status);
    return;
  }
  auto ack = out().New();
  ack->header.type = wire::FrameType::kWriteAck;
  ack->header.transfer = header.transfer;
  ack->header.channel = header.channel;
  ack->header.stripe = header.stripe;
  out().Push(std::move(ack));
}

void TargetLane::QueueError(const wire::FrameHeader& request, wire::FrameType type,
                            const absl::Status& status) {
  hixl::wire::v1::Error error;
  error.set_message(std::string(status.message().substr(0, kMaxErrorText)));
  error.set_detail(SerializeErrorDetail(status));
  if (error.ByteSizeLong() > wire::kMaxErrorBytes) error.clear_detail();
  auto answer = out().New();
  answer->header.type = type;
  answer->header.transfer = request.transfer;
  answer->header.channel = request.channel;
  answer->header.stripe = request.stripe;
  answer->header.code = static_cast<uint32_t>(ApiCodeOf(status));
  answer->text = error.SerializeAsString();
  answer->header.body = answer->text.size();
  out().Push(std::move(answer));
}

// --- READ

void TargetLane::StartRead(const wire::FrameHeader& header,
                           const std::vector<wire::Piece>& pieces) {
  if (absl::Status status = Resolve(header, pieces); !status.ok()) {
    QueueError(header, wire::FrameType::kReadData, status);
    return;
  }
  const bool mapped = std::all_of(parts_.begin(), parts_.end(), [](const auto& part) {
    return part.memory.access->mapped() != nullptr;
  });
  if (mapped) {
    AnswerMapped(header);
    return;
  }
  auto reading = std::make_shared<Reading>();
  reading->header = header;
  reading->parts = std::move(parts_);
  parts_.clear();
  reading_.push_back(reading);
  ReadChunk(reading);
}

void TargetLane::AnswerMapped(const wire::FrameHeader& header) {
  auto data = out().New();
  data->header = header;
  data->header.type = wire::FrameType::kReadData;
  data->header.pieces = 0;
  for (TargetResolver::Part& part : parts_) {
    data->AddBody(part.memory.access->mapped() + part.memory.offset, part.length);
    data->Pin(std::move(part.pin));
  }
  parts_.clear();
  out().Push(std::move(data));
}

// Brings the next bytes together, as many as one staging buffer allows; each chunk is a frame of
// its own, so that no frame holds a buffer while it waits for another.
void TargetLane::ReadChunk(const ReadingPtr& reading) {
  reading->gatherer = std::make_shared<BodyGatherer>(loop(), context_->outbound[worker_]);
  uint64_t bytes = 0;
  uint64_t staged = 0;
  while (reading->part < reading->parts.size() && staged < context_->staging_chunk) {
    const TargetResolver::Part& part = reading->parts[reading->part];
    const bool mapped = part.memory.access->mapped() != nullptr;
    uint64_t length = part.length - reading->offset;
    if (!mapped) length = std::min(length, context_->staging_chunk - staged);
    reading->gatherer->Add({part.memory.access, part.memory.offset + reading->offset}, length);
    reading->gatherer->Pin(part.pin);
    bytes += length;
    staged += mapped ? 0 : length;
    reading->offset += length;
    if (reading->offset == part.length) {
      ++reading->part;
      reading->offset = 0;
    }
  }
  // The lane abandons the gatherer before it goes.
  reading->gatherer->Start(
      [this, reading, bytes](absl::Status status) { ChunkReady(reading, bytes, status); });
}

void TargetLane::ChunkReady(const ReadingPtr& reading, uint64_t bytes, absl::Status status) {
  const std::shared_ptr<BodyGatherer> gatherer = std::move(reading->gatherer);
  const bool last = !status.ok() || reading->part == reading->parts.size();
  if (last) reading_.erase(std::find(reading_.begin(), reading_.end(), reading));
  if (!status.ok()) {
    QueueError(reading->header, wire::FrameType::kReadData, status);
  } else {
    auto data = out().New();
    data->header = reading->header;
    data->header.type = wire::FrameType::kReadData;
    data->header.pieces = 0;
    data->header.body = bytes;
    gatherer->MoveTo(data.get());
    out().Push(std::move(data));
    if (!last) ReadChunk(reading);
  }
  Schedule();
}

// --- fences

// Lets go of all memory that matching frames refer to. Requests are answered with `reason`.
void TargetLane::FenceMatching(Match match, const absl::Status& reason, const Fence& fence) {
  for (const Writing& writing : writing_) {
    if (match(writing.header)) writing.receiver->Hold(fence);
  }
  if (receiver_ != nullptr && match(current_)) {
    Divert();
    receiver_->Hold(fence);
    receiver_->Abandon();
    if (receiver_->busy()) TrackUntilQuiet(current_, receiver_, false);
    receiver_ = nullptr;
    refusal_ = reason;
  }
  const auto reading_now = reading_;
  for (const ReadingPtr& reading : reading_now) {
    if (!match(reading->header)) continue;
    reading->gatherer->Hold(fence);
    reading->gatherer->Abandon();
    reading->gatherer = nullptr;
    reading_.erase(std::find(reading_.begin(), reading_.end(), reading));
    if (attached()) QueueError(reading->header, wire::FrameType::kReadData, reason);
  }
  out().Abandon(
      [&](const wire::FrameHeader& header) {
        return header.type == wire::FrameType::kReadData && header.code == 0 && match(header);
      },
      [&](const wire::FrameHeader& header) {
        QueueError(header, wire::FrameType::kReadData, reason);
      });
  Schedule();
}

void TargetLane::LetGo(const Fence& fence) {
  out().Clear();
  FenceMatching([](const wire::FrameHeader& header) { return true; }, Failed("the lane is closed"),
                fence);
  out().Clear();
}

void TargetLane::CloseNow(const Fence& fence) {
  Detach();
  LetGo(fence);
  SetState("down", "closed");
  GoneIfQuiet();
}

void TargetLane::OnBroken(absl::Status reason) {
  LetGo(nullptr);
  SetState("down", std::string(reason.message()));
  GoneIfQuiet();
}

void TargetLane::GoneIfQuiet() {
  if (attached() || !writing_.empty() || link_ == nullptr) return;
  const std::shared_ptr<TargetLinkCore> link = std::move(link_);
  link->LaneGone(this);
}

}  // namespace hixld
