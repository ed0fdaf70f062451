// The initiator's end of one queue pair: posts work, and finds out what became of it.
//
// A lane lives for one queue pair. When that fails, or is told to stop, the queue pair is moved to
// the error state, its completions are collected, it is destroyed, and everything that was not
// acknowledged goes back to the link: its fate is unknown. Only then can nothing of it land in
// this node's memory any more (for the target's memory, the target's queue pair must go too).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transports/loop/loop.h"
#include "transports/rdma/completion_queue.h"
#include "transports/rdma/job_queue.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma {

class SendLane : public CompletionQueue::Client, public std::enable_shared_from_this<SendLane> {
 public:
  // What broke it, where a work request is to blame.
  struct Culprit {
    Job* job = nullptr;
    ibv_wc_status status = IBV_WC_SUCCESS;
  };

  // The link, as its lanes see it.
  class Source {
   public:
    virtual ~Source() = default;
    // On the worker's thread.
    // A first request went there and its answer came back: the way works in both directions.
    virtual void OnProven(SendLane& lane) = 0;
    virtual void TakeWork(SendLane& lane, size_t max_works, uint64_t max_bytes,
                          std::vector<Work>* out) = 0;
    virtual void OnSent(SendLane& lane, const std::vector<Work>& sent) = 0;
    // Last call, on the control thread: the queue pair is gone.
    virtual void OnBroken(SendLane& lane, absl::Status why, Culprit culprit,
                          std::vector<Work> unknown) = 0;
  };

  struct Options {
    uint32_t index = 0;  // of the lane in its link
    uint64_t attempt = 0;
    uint32_t device = 0;         // local
    uint32_t remote_device = 0;  // the target's number
    uint32_t depth = 128;
    uint64_t inflight_bytes = 8 << 20;
  };

  // `control` is the thread that destroys the queue pair.
  SendLane(Options options, std::unique_ptr<VerbsQueuePair> queue_pair,
           std::shared_ptr<CompletionQueue> completions, std::shared_ptr<Source> source,
           Loop* control);
  ~SendLane() override;

  const Options& options() const { return options_; }
  uint32_t queue_pair_number() const { return number_; }

  // Thread-safe.
  // The queue pair is ready to send. It proves the way first: two ready queue pairs may still not
  // reach each other.
  void Start();
  // There may be work.
  void Kick();
  // Ends it; OnBroken follows.
  void Break(absl::Status why);
  // Found nothing to send when it last looked. Guarded by the link's lock.
  bool idle() const { return idle_; }
  void set_idle(bool idle) { idle_ = idle; }
  uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  uint64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }

  void OnCompletion(const ibv_wc& completion, uint32_t sequence) override;
  void OnCompletionsEnd() override;

 private:
  enum class State : uint8_t { kNew, kProving, kUp, kDraining, kEnded };

  void Pump();
  // False when the queue pair took not all of them.
  void Post();
  void BreakHere(absl::Status why);
  // Posts a WRITE of no bytes, which needs no key at the other end.
  int PostEmpty(uint32_t sequence);
  void PostDrain();
  void Finish();
  void PopUntil(uint32_t sequence);
  Work& PostedAt(uint32_t sequence) { return posted_[sequence & (posted_.size() - 1)]; }

  const Options options_;
  std::unique_ptr<VerbsQueuePair> queue_pair_;
  const std::shared_ptr<CompletionQueue> completions_;
  const std::shared_ptr<Source> source_;
  Loop* const control_;
  const uint32_t number_;
  bool idle_ = true;
  std::atomic<bool> kicked_{false};
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> bytes_received_{0};

  // The rest belongs to the worker's thread.
  State state_ = State::kNew;
  uint32_t token_ = 0;
  bool pumping_ = false;
  bool pump_again_ = false;  // somebody asked to since work was last looked for
  absl::Status why_;
  Culprit culprit_;
  // Posted and not acknowledged: number n lies at n modulo the size, which is a power of two.
  std::vector<Work> posted_;
  uint32_t posted_count_ = 0;
  uint32_t first_sequence_ = 0;
  uint64_t posted_bytes_ = 0;
  uint32_t drain_sequence_ = 0;
  Loop::TimerId drain_timer_ = 0;
  std::vector<Work> batch_;
  std::vector<Work> sent_;
  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> segments_;
};

}  // namespace hixld::rdma
