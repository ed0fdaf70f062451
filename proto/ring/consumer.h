// The daemon's end of the rings. Everything in the shared memory may be nonsense and may change
// at any moment: each word is read once, copied, and only the copy is checked and used.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/fd.h"
#include "proto/ring/layout.h"

namespace hixld::ring {

// Head, sleep and reading belong to one thread; Publish may be called on any.
class Consumer {
 public:
  // Creates the sealed memfd, its mapping and the eventfd.
  static absl::StatusOr<std::unique_ptr<Consumer>> Create(const Geometry& geometry);

  // To be passed to the client.
  int memory_fd() const { return memory_fd_.get(); }
  int wake_fd() const { return wake_fd_.get(); }
  uint64_t size() const { return memory_.size(); }
  uint32_t slots() const { return geometry_.slots; }

  // Room for a batch of a block or two without memory of its own.
  using Words = absl::InlinedVector<uint64_t, 2>;

  // One whole batch, copied.
  struct Batch {
    uint64_t engine = 0;
    uint64_t channel = 0;
    uint64_t timeout_ns = 0;
    uint32_t slot = 0;
    Op op = Op::kRead;
    bool verdict = false;  // SayRunning is asked for
    // One entry per descriptor in each.
    Words local;
    Words remote;
    Words lengths;
    size_t size() const { return lengths.size(); }
  };

  // Takes the next whole batch. False: there is none (its later parts may still be missing).
  // PARAM_INVALID: the client wrote nonsense into the ring itself (indices, counts, a slot in
  // use); the session cannot go on. `max_descriptors` bounds one batch; a longer one is finished
  // on its own with RESOURCE_EXHAUSTED and skipped.
  absl::StatusOr<bool> Next(uint32_t max_descriptors, Batch* batch);

  // Announces that the daemon sleeps and looks once more: false = there is work, stay awake.
  bool TrySleep();
  void StayAwake();

  // The slot's transfer is accepted; its end has not been published yet. As many extents as fit.
  void SayRunning(uint32_t slot, absl::Span<const Extent> local, absl::Span<const Extent> remote);
  void SayRegionsGone() { header_->regions_gone.fetch_add(1, std::memory_order_seq_cst); }
  // Ends the slot's transfer; the slot is free for the client's next one afterwards. `code` is an
  // API result code, 0 with kCompleted.
  void Publish(uint32_t slot, SlotState state, uint32_t code, uint64_t bytes, uint64_t transfer_id,
               absl::string_view text);
  // Transfers accepted and not yet published.
  uint32_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

 private:
  Consumer(const Geometry& geometry, UniqueFd memory_fd, Mapping memory, UniqueFd wake_fd);
  absl::Status CheckEntry(const Entry& entry) const;
  void Begin(const Entry& entry);
  void CopyDescriptors(const Entry& entry);
  void Append(const Descriptor* descriptors, uint32_t count);
  void AppendBlocks(const Entry& entry);
  void AdvanceHead();
  static void SetState(Slot* slot, SlotState state);

  const Geometry geometry_;
  const UniqueFd memory_fd_;
  const Mapping memory_;
  const UniqueFd wake_fd_;
  Header* const header_;
  Entry* entries_;
  Slot* slots_;
  Descriptor* arena_;

  uint32_t head_ = 0;
  // The batch whose parts are being collected.
  bool collecting_ = false;
  bool too_long_ = false;
  Batch partial_;

  // The daemon's own record of which slots have a transfer; the client cannot touch it.
  std::vector<std::atomic<bool>> active_;
  std::atomic<uint32_t> in_flight_{0};
};

}  // namespace hixld::ring
