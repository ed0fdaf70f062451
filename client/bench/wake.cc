#include "client/bench/wake.h"

#include <sched.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>

#include "client/bench/threads.h"
#include "proto/base/clock.h"
#include "proto/base/fd.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

// Where there is one core for both, the sleeper runs only once the caller has given way.
constexpr int64_t kSpin = 200'000;

class WakeMover : public Mover {
 public:
  static absl::StatusOr<std::unique_ptr<Mover>> Create() {
    UniqueFd bell(eventfd(0, EFD_CLOEXEC));
    if (!bell.valid()) return ErrnoError(errno, "wake baseline: make an eventfd");
    return std::unique_ptr<Mover>(new WakeMover(std::move(bell)));
  }
  ~WakeMover() override {
    ending_.store(true, std::memory_order_relaxed);
    eventfd_write(bell_.get(), 1);
  }

  uint64_t count() const override { return 1; }
  uint64_t blocks(uint64_t) const override { return 1; }
  uint64_t bytes(uint64_t) const override { return 0; }

  absl::Status Move(uint64_t) override {
    const uint64_t before = heard_.load(std::memory_order_relaxed);
    const int64_t yield_at = MonotonicNanos() + kSpin;
    if (eventfd_write(bell_.get(), 1) != 0) return ErrnoError(errno, "wake baseline");
    while (heard_.load(std::memory_order_acquire) == before) {
      if (MonotonicNanos() >= yield_at) ::sched_yield();
    }
    return absl::OkStatus();
  }

 private:
  explicit WakeMover(UniqueFd bell) : bell_(std::move(bell)) {
    sleeper_.Start([this] { Sleep(); });
  }

  void Sleep() {
    eventfd_t value = 0;
    while (eventfd_read(bell_.get(), &value) == 0 || errno == EINTR) {
      if (ending_.load(std::memory_order_relaxed)) return;
      heard_.fetch_add(1, std::memory_order_release);
    }
  }

  const UniqueFd bell_;
  std::atomic<uint64_t> heard_{0};
  std::atomic<bool> ending_{false};
  // Last: it is joined before what it uses goes.
  Threads sleeper_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Mover>>> WakeMovers(uint64_t threads) {
  std::vector<std::unique_ptr<Mover>> movers;
  for (uint64_t i = 0; i < threads; ++i) {
    HIXLD_ASSIGN_OR_RETURN(std::unique_ptr<Mover> mover, WakeMover::Create());
    movers.push_back(std::move(mover));
  }
  return movers;
}

}  // namespace hixld::bench
