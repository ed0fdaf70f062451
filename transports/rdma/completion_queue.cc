#include "transports/rdma/completion_queue.h"

#include <sys/epoll.h>

#include <utility>

namespace hixld::rdma {
namespace {

constexpr int kBatch = 32;
// Then the loop gets its turn.
constexpr int kBatchesPerPoll = 4;

}  // namespace

CompletionQueue::CompletionQueue(std::unique_ptr<VerbsCompletions> completions, Loop* loop,
                                 uint32_t depth)
    : completions_(std::move(completions)), loop_(loop), free_(depth) {}

bool CompletionQueue::Reserve(uint32_t entries) {
  uint32_t free = free_.load(std::memory_order_relaxed);
  while (free >= entries) {
    if (free_.compare_exchange_weak(free, free - entries, std::memory_order_relaxed)) return true;
  }
  return false;
}

void CompletionQueue::Unreserve(uint32_t entries) {
  free_.fetch_add(entries, std::memory_order_relaxed);
}

void CompletionQueue::Start() {
  loop_->AddPoller(this);
  // An event only ends the sleep; the poller then looks.
  const absl::Status watched = loop_->AddFd(completions_->fd(), EPOLLIN, [this](uint32_t) {
    completions_->ConsumeEvents();
    armed_ = false;
    Poll();
  });
  watched_ = watched.ok();
}

void CompletionQueue::Stop() {
  loop_->RemoveFd(completions_->fd());
  loop_->RemovePoller(this);
}

uint32_t CompletionQueue::Attach(Client* client) {
  while (next_token_ == 0 || clients_.count(next_token_) != 0) ++next_token_;
  clients_[next_token_] = client;
  return next_token_++;
}

void CompletionQueue::Detach(uint32_t token) { clients_.erase(token); }

bool CompletionQueue::Poll() {
  if (clients_.empty()) return false;
  bool found = false;
  ibv_wc completions[kBatch];
  for (int i = 0; i < kBatchesPerPoll; ++i) {
    const int count = completions_->Poll(kBatch, completions);
    if (count <= 0) break;
    found = true;
    Deliver(count, completions);
    if (count < kBatch) break;
  }
  return found;
}

void CompletionQueue::Deliver(int count, const ibv_wc* completions) {
  uint32_t last = 0;
  const auto end_of_run = [this](uint32_t token) {
    // The lane may have detached itself meanwhile.
    const auto client = clients_.find(token);
    if (client != clients_.end()) client->second->OnCompletionsEnd();
  };
  for (int i = 0; i < count; ++i) {
    const auto token = static_cast<uint32_t>(completions[i].wr_id >> 32);
    if (last != 0 && token != last) end_of_run(last);
    last = token;
    const auto client = clients_.find(token);
    if (client == clients_.end()) continue;
    client->second->OnCompletion(completions[i], static_cast<uint32_t>(completions[i].wr_id));
  }
  if (last != 0) end_of_run(last);
}

bool CompletionQueue::TrySleep() {
  if (clients_.empty()) return true;
  if (!armed_) armed_ = completions_->Arm().ok();
  // What came before the arming makes no event.
  return !Poll() && armed_ && watched_;
}

}  // namespace hixld::rdma
