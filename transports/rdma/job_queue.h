// What is still to be sent on one link, cut into work requests in fair turns. No locks and no
// verbs: the link guards it, and tells it the keys.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "transports/rdma/linked_list.h"
#include "transports/transport.h"

namespace hixld::rdma {

constexpr uint32_t kMaxLanes = 16;

// A part of one piece of a transfer.
struct Range {
  uint32_t piece = 0;
  uint64_t offset = 0;  // in the piece
  uint64_t length = 0;
};

struct Job : Linked {
  explicit Job(std::shared_ptr<TransferJob> transfer_in) : transfer(std::move(transfer_in)) {}

  const std::shared_ptr<TransferJob> transfer;
  // Cursor over the pieces, and what has to be sent again.
  uint32_t piece = 0;
  uint64_t offset = 0;
  std::vector<Range> again;
  // Work requests that are posted or whose fate is unknown, per lane and in all.
  std::array<uint32_t, kMaxLanes> on_lane = {};
  uint32_t outstanding = 0;
  // No more is sent; the transfer ends with `end` once nothing is outstanding.
  bool ending = false;
  absl::Status end;
  // With nothing outstanding, it starts anew on the fall-back instead of ending.
  bool elsewhere = false;
  // How often a work request of it has broken a lane.
  uint32_t strikes = 0;
  bool write() const { return transfer->direction == CopyDirection::kWrite; }

  // What comes next, without taking it; nullopt when all has been sent.
  std::optional<Range> Next() const;
  void Advance(const Range& taken);
  // Whether any byte may have moved.
  bool Begun() const { return piece > 0 || offset > 0; }
  bool AllSent() const { return !Next().has_value(); }

 private:
  friend class JobQueue;
  enum class Place : uint8_t { kNowhere, kRunnable, kParked } place_ = Place::kNowhere;
};

// One work request to be.
struct Work {
  Job* job = nullptr;
  Range range;
  uint64_t local = 0;
  uint64_t remote = 0;
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
};

// Keys for the bytes at the start of a range.
struct Keys {
  uint64_t local = 0;
  uint64_t remote = 0;
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  uint64_t usable = 0;  // bytes that both keys cover
};

class JobQueue {
 public:
  struct Limits {
    uint64_t message_bytes = 1 << 20;
    // A job's turn ends after this many work requests or bytes.
    uint32_t turn_works = 16;
    uint64_t turn_bytes = 1 << 20;
  };
  explicit JobQueue(Limits limits) : limits_(limits) {}

  // Adds a job, or puts one back that has something to send again. No effect while it is queued.
  void Add(Job* job);
  void Remove(Job* job);
  bool empty() const { return runnable_.empty(); }
  bool parked() const { return !parked_.empty(); }

  // Finds the keys, or nullopt: then the job is parked until Unpark.
  using FindKeys = absl::FunctionRef<std::optional<Keys>(Job& job, const Range& range)>;

  // Takes up to `max_works` work requests of together at most `max_bytes` (one may exceed it), in
  // turns between the jobs.
  void Take(size_t max_works, uint64_t max_bytes, FindKeys find, std::vector<Work>* out);

  void Unpark(Job* job);
  void UnparkAll();

 private:
  // One job's turn. False when it has left the queue.
  bool Turn(Job* job, size_t max_works, uint64_t* bytes_left, FindKeys find,
            std::vector<Work>* out);

  const Limits limits_;
  void Move(Job* job, Job::Place place);

  LinkedList<Job> runnable_;
  LinkedList<Job> parked_;
};

}  // namespace hixld::rdma
