#include "client/cpp/process.h"

#include <pthread.h>

#include <array>
#include <atomic>

namespace hixld::client {
namespace {

// A fixed table of atomics, since the fork handler may neither lock nor allocate. A process has
// one session per daemon socket, and a file for each peer whose memory it reaches; more than this
// many are not closed by children, which only delays the release of what a dead parent owned.
constexpr int kFree = -1;
constexpr int kReserved = -2;
std::array<std::atomic<int>, 1024> g_fds;

// Forks that lie between the first process that asked and this one.
std::atomic<uint64_t> g_generation{0};

void CloseInChild() {
  g_generation.fetch_add(1, std::memory_order_relaxed);
  for (std::atomic<int>& fd : g_fds) {
    const int value = fd.exchange(kFree, std::memory_order_relaxed);
    if (value >= 0) close(value);
  }
}

void InstallOnce() {
  static const bool installed = [] {
    for (std::atomic<int>& fd : g_fds) fd.store(kFree, std::memory_order_relaxed);
    return pthread_atfork(nullptr, nullptr, CloseInChild) == 0;
  }();
  (void)installed;
}

}  // namespace

uint64_t ForkGeneration() {
  InstallOnce();
  return g_generation.load(std::memory_order_relaxed);
}

CloseOnFork::CloseOnFork(int fd) {
  InstallOnce();
  for (size_t i = 0; i < g_fds.size(); ++i) {
    int expected = kFree;
    if (g_fds[i].compare_exchange_strong(expected, kReserved, std::memory_order_relaxed)) {
      g_fds[i].store(fd, std::memory_order_release);
      slot_ = static_cast<int>(i);
      return;
    }
  }
}

CloseOnFork::~CloseOnFork() {
  if (slot_ >= 0) g_fds[static_cast<size_t>(slot_)].store(kFree, std::memory_order_release);
}

}  // namespace hixld::client
