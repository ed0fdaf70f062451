// A few threads that do one thing each and are waited for.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace hixld::bench {

class Threads {
 public:
  Threads() = default;
  ~Threads() { Join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  void Start(std::function<void()> work) { threads_.emplace_back(std::move(work)); }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace hixld::bench
