// Connects one TCP socket without blocking. Lives on the control loop.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "transports/loop/loop.h"

namespace hixld {

class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  // A connected, non-blocking socket; or FAILED, which says whether the peer refused: then nobody
  // listens there.
  using Done = absl::AnyInvocable<void(absl::StatusOr<UniqueFd> socket, bool refused)>;

  // `done` may run before Start returns, and does not run after Cancel.
  static std::shared_ptr<Dialer> Start(Loop* loop, const Endpoint& endpoint, Done done);
  ~Dialer();
  void Cancel();

 private:
  Dialer(Loop* loop, const Endpoint& endpoint, Done done);
  void Begin();
  void OnWritable();
  void Finish(absl::StatusOr<UniqueFd> socket, bool refused);
  void Fail(int error);

  Loop* const loop_;
  const Endpoint endpoint_;
  Done done_;
  UniqueFd socket_;
  bool watching_ = false;
};

}  // namespace hixld
