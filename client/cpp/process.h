// Which process an object belongs to. After fork, threads, sockets and sessions are the parent's:
// the child must neither use nor destroy them.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace hixld::client {

// Objects made by MakeOwned are destroyed in the process that made them only; in a forked child
// they are left alone.
template <typename T>
std::shared_ptr<T> OwnedByProcess(std::unique_ptr<T> object) {
  const pid_t owner = getpid();
  return std::shared_ptr<T>(object.release(), [owner](T* pointer) {
    if (getpid() == owner) delete pointer;
  });
}

// Differs in every process that is forked from this one, from now on. A load, where getpid would be
// a system call.
uint64_t ForkGeneration();

// Closes `fd` in every child that is forked from now on, so that the daemon sees the end of this
// process although a child lives on.
class CloseOnFork {
 public:
  explicit CloseOnFork(int fd);
  ~CloseOnFork();
  CloseOnFork(const CloseOnFork&) = delete;
  CloseOnFork& operator=(const CloseOnFork&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace hixld::client
