// One completion queue of one device, polled by one worker and shared by that worker's lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "transports/loop/loop.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma {

class CompletionQueue : public Loop::Poller {
 public:
  // What a lane gets; on the worker's thread.
  class Client {
   public:
    virtual ~Client() = default;
    // `sequence` is what it posted with.
    virtual void OnCompletion(const ibv_wc& completion, uint32_t sequence) = 0;
    // After a run of completions.
    virtual void OnCompletionsEnd() = 0;
  };

  CompletionQueue(std::unique_ptr<VerbsCompletions> completions, Loop* loop, uint32_t depth);
  // Call Stop first.
  ~CompletionQueue() override = default;

  VerbsCompletions* verbs() const { return completions_.get(); }
  Loop* loop() const { return loop_; }

  // Room for `entries` completions that may be waiting at once; thread-safe.
  bool Reserve(uint32_t entries);
  void Unreserve(uint32_t entries);

  // The rest runs on the worker's thread.
  void Start();
  void Stop();
  // The returned number goes into the upper half of wr_id.
  uint32_t Attach(Client* client);
  void Detach(uint32_t token);

  bool Poll() override;
  bool TrySleep() override;
  void Wake() override {}

  static uint64_t WorkId(uint32_t token, uint32_t sequence) {
    return static_cast<uint64_t>(token) << 32 | sequence;
  }

 private:
  void Deliver(int count, const ibv_wc* completions);

  const std::unique_ptr<VerbsCompletions> completions_;
  Loop* const loop_;
  std::atomic<uint32_t> free_;
  bool armed_ = false;
  bool watched_ = false;  // events end the sleep; without them there is none
  uint32_t next_token_ = 1;
  std::unordered_map<uint32_t, Client*> clients_;
};

}  // namespace hixld::rdma
