// The target's end of one lane. Whatever comes over it may be hostile: every number is checked,
// every piece is resolved, and what does not fit closes the lane.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "transports/tcp/body_gatherer.h"
#include "transports/tcp/lane.h"
#include "transports/tcp/target_link.h"

namespace hixld {

class TargetLane : public Lane {
 public:
  TargetLane(std::shared_ptr<TcpContext> context, std::shared_ptr<TargetLinkCore> link,
             uint32_t index, uint32_t generation, uint32_t worker);

  uint32_t generation() const { return generation_; }

  // Any thread.
  void Start(UniqueFd socket);
  // Closes the lane; `fence` is held until nothing that came over it can land any more.
  void Close(Fence fence);
  // The same for what belongs to one transfer's WRITE or to one channel; the lane goes on.
  void FenceTransfer(uint64_t transfer, Fence fence);
  void FenceChannel(uint64_t channel, Fence fence);

 protected:
  absl::Status OnFrame(const wire::FrameHeader& header,
                       const std::vector<wire::Piece>& pieces) override;
  absl::Status OnBodyEnd() override;
  bool MayReadFrame() override;
  bool MayLand() override;
  void OnBroken(absl::Status reason) override;

 private:
  // A WRITE whose bytes are here and whose last copies are under way.
  struct Writing {
    wire::FrameHeader header;
    std::shared_ptr<BodyReceiver> receiver;
  };
  // A READ whose memory is not all mapped: it is answered chunk by chunk.
  struct Reading {
    wire::FrameHeader header;
    std::vector<TargetResolver::Part> parts;
    size_t part = 0;
    uint64_t offset = 0;
    std::shared_ptr<BodyGatherer> gatherer;
  };
  using ReadingPtr = std::shared_ptr<Reading>;
  using Match = absl::FunctionRef<bool(const wire::FrameHeader&)>;

  absl::Status CheckPieces(const wire::FrameHeader& header,
                           const std::vector<wire::Piece>& pieces) const;
  absl::Status Resolve(const wire::FrameHeader& header, const std::vector<wire::Piece>& pieces);
  absl::Status StartWrite(const wire::FrameHeader& header, const std::vector<wire::Piece>& pieces);
  void TrackUntilQuiet(const wire::FrameHeader& header, std::shared_ptr<BodyReceiver> receiver,
                       bool answer);
  void AnswerWrite(const wire::FrameHeader& header, const absl::Status& status);
  void StartRead(const wire::FrameHeader& header, const std::vector<wire::Piece>& pieces);
  void AnswerMapped(const wire::FrameHeader& header);
  void ReadChunk(const ReadingPtr& reading);
  void ChunkReady(const ReadingPtr& reading, uint64_t bytes, absl::Status status);
  void QueueError(const wire::FrameHeader& request, wire::FrameType type,
                  const absl::Status& status);

  void FenceMatching(Match match, const absl::Status& reason, const Fence& fence);
  void CloseNow(const Fence& fence);
  void LetGo(const Fence& fence);
  void GoneIfQuiet();

  std::shared_ptr<TargetLinkCore> link_;  // until the lane is closed and quiet
  const uint32_t generation_;
  const uint32_t worker_;

  // The WRITE that comes in.
  wire::FrameHeader current_;
  std::shared_ptr<BodyReceiver> receiver_;  // its places; nullptr when it is thrown away
  absl::Status refusal_;                    // why it is thrown away
  std::shared_ptr<BodyReceiver> spare_;     // kept for the next frame
  std::vector<TargetResolver::Part> parts_;

  std::vector<Writing> writing_;
  std::vector<ReadingPtr> reading_;
};

}  // namespace hixld
