// Accepts the connections of a listening socket on a loop, also after descriptors had run out.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "proto/base/fd.h"
#include "transports/loop/loop.h"

namespace hixld {

class Acceptor {
 public:
  struct Options {
    // Refuse a connection that would take one of the last descriptors (IsReservedDescriptor).
    bool keep_reserve = false;
  };
  // All are called on the loop's thread; connections do not block.
  struct Callbacks {
    absl::AnyInvocable<void(UniqueFd)> take;
    // A connection that is refused for want of descriptors, to be told so before it is closed;
    // invalid where it could not even be accepted. Nothing is accepted for a moment after it.
    absl::AnyInvocable<void(UniqueFd)> refuse;
    // The listener cannot be watched.
    absl::AnyInvocable<void(const absl::Status&)> fail;
  };

  // Accepts from now on. `listener` does not block. `loop` outlives it.
  Acceptor(Loop* loop, UniqueFd listener, Options options, Callbacks callbacks);
  // Closes the listener before it returns; nothing is called after that.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  class Core;
  Loop* const loop_;
  std::shared_ptr<Core> core_;
};

}  // namespace hixld
