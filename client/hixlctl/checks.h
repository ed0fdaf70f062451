// What `hixlctl doctor` looks at: what a node must have so that the daemon can do its work well.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace hixld::hixlctl {

enum class Level {
  kGood,
  kNote,     // works, but more would be possible
  kProblem,  // something does not work
};

struct Finding {
  std::string check;  // "memlock", "rdma port rxe0:1"
  Level level = Level::kGood;
  std::string found;   // what is there
  std::string advice;  // what to do; empty when there is nothing to do
};

// Where to look; another root lets tests make a node of their own.
struct Host {
  // Before /proc, /sys and /dev.
  std::string root;
  // Of the running daemon; 0: none, then this process stands for it.
  pid_t daemon_pid = 0;
  std::string socket_path;
  // That of the daemon's lanes; empty: the kernel's default.
  std::string congestion_control;
  // Whether this process can load libibverbs.
  std::function<bool()> has_verbs_library;
};

// All findings, in an order for reading.
std::vector<Finding> Examine(const Host& host);

// The parts, for tests.
std::vector<Finding> CheckSocket(const Host& host);
std::vector<Finding> CheckMemlock(const Host& host);
std::vector<Finding> CheckRdma(const Host& host);
std::vector<Finding> CheckHugePages(const Host& host);
std::vector<Finding> CheckPtrace(const Host& host);
std::vector<Finding> CheckKernel(const Host& host);
std::vector<Finding> CheckTcp(const Host& host);

// "good", "note", "problem".
const char* LevelWord(Level level);

}  // namespace hixld::hixlctl
