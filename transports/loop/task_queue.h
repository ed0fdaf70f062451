// Tasks from many threads to one: a lock-free stack that the consumer takes whole and reverses.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"

namespace hixld {

class TaskQueue {
 public:
  using Task = absl::AnyInvocable<void()>;

  TaskQueue() = default;
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;
  ~TaskQueue() { DropAll(); }

  // Any thread. The push is sequentially consistent: it is one half of the agreement by which a
  // producer sees that the consumer sleeps (Loop::Impl::Post), empty() is the other.
  void Push(Task task) {
    Node* node = new Node{std::move(task), head_.load(std::memory_order_relaxed)};
    while (!head_.compare_exchange_weak(node->next, node, std::memory_order_seq_cst,
                                        std::memory_order_relaxed)) {
    }
  }

  bool empty() const { return head_.load(std::memory_order_seq_cst) == nullptr; }

  // Consumer only: destroys what is queued without running it. Returns how many there were.
  size_t DropAll() {
    size_t count = 0;
    for (Node* node = TakeAll(); node != nullptr; ++count) {
      std::unique_ptr<Node> owned(node);
      node = node->next;
    }
    return count;
  }

  // Consumer only: runs everything that was queued when it was called, oldest first. Tasks that
  // are pushed meanwhile wait for the next call. Returns how many ran.
  size_t RunAll() {
    size_t count = 0;
    for (Node* node = TakeAll(); node != nullptr; ++count) {
      std::unique_ptr<Node> owned(node);
      node = node->next;
      owned->task();
    }
    return count;
  }

 private:
  struct Node {
    Task task;
    Node* next;
  };

  Node* TakeAll() {
    // A plain load first: an empty look must not take the cache line from the producers.
    if (head_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    Node* newest = head_.exchange(nullptr, std::memory_order_acquire);
    Node* oldest = nullptr;
    while (newest != nullptr) {
      Node* next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

  alignas(64) std::atomic<Node*> head_{nullptr};
};

}  // namespace hixld
