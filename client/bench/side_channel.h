// Lines of text between initiator and target, over TCP: one line asks, one line answers.
//
//   hello VERSION                     -> ok ENGINE
//   memory kind=K bytes=N             -> ok ADDRESS         replaces what was there
//   free                              -> ok
//   plan op=... layout=... ...        -> ok                 what `verify` goes by
//   fill SEED                         -> ok                 the whole region
//   verify LOCAL_SEED REMOTE_SEED     -> ok
//   pump ...                          -> ok PORT, later a second line: ok
//   end                               -> ok                 the target ends
// Any of them may be answered by "error TEXT".
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/endpoint.h"
#include "proto/base/fd.h"

namespace hixld::bench {

// A listening TCP socket on `address`; port 0 takes a free one.
absl::StatusOr<UniqueFd> Listen(const Endpoint& address);
// Waits for one connection; TIMEOUT after `timeout_ms`, -1 waits for ever.
absl::StatusOr<UniqueFd> Accept(int listen_fd, int timeout_ms);
absl::StatusOr<UniqueFd> ConnectTo(const Endpoint& address);
// The socket's own address, or its peer's.
absl::StatusOr<Endpoint> LocalAddress(int fd);
absl::StatusOr<Endpoint> PeerAddress(int fd);

class LineSocket {
 public:
  explicit LineSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  absl::Status Send(absl::string_view line);
  // Without its end. FAILED when the other side closed; TIMEOUT after `timeout_ms` (-1: never).
  absl::StatusOr<std::string> Receive(int timeout_ms);
  // Sends, receives, and gives what follows "ok "; an "error" line becomes FAILED.
  absl::StatusOr<std::string> Ask(absl::string_view line);
  // The answer to an earlier line, as Ask gives it.
  absl::StatusOr<std::string> Answer();
  // Whether the other side has closed; waits up to `wait_ms` for it.
  bool PeerGone(int wait_ms) const;
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::string received_;
};

}  // namespace hixld::bench
