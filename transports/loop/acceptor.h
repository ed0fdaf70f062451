// Accepts the connections of a listening socket on a loop, also after descriptors had run out.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "proto/base/fd.h"
#include "transports/loop/loop.h"

namespace hixld {

class Acceptor {
 public:
  struct Options {
    // What connections are for, in the log: "a gRPC connection".
    std::string what;
    // A connection that would leave the process fewer descriptors than this, or than a quarter of
    // RLIMIT_NOFILE where that is less, is closed at once.
    int spare_descriptors = 0;
  };
  // Gets each connection, non-blocking, on the loop's thread.
  using Take = absl::AnyInvocable<void(UniqueFd)>;
  // Gets, on the loop's thread, one line about connections that were refused; at most one a pause.
  using Complain = absl::AnyInvocable<void(const std::string&)>;

  // Accepts from now on. `listener` does not block. `loop` outlives it.
  Acceptor(Loop* loop, UniqueFd listener, Options options, Take take, Complain complain);
  // Closes the listener before it returns; nothing is taken after that. Not on the loop's thread.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  class Core;
  Loop* const loop_;
  std::shared_ptr<Core> core_;
};

}  // namespace hixld
