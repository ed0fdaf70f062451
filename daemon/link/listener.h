// Listening sockets of engines, and the telling apart of what comes in: a data lane or a control
// connection.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "daemon/link/link.h"
#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "transports/loop/loop.h"

namespace hixld {

// Sorts accepted connections by their first four bytes, which stay unread. Lives on the control
// loop.
class Greeter : public std::enable_shared_from_this<Greeter> {
 public:
  struct Options {
    // A connection that says nothing for this long is closed.
    int64_t silence_ns = 0;
    // Silent ones; the oldest makes room for the newest.
    size_t max_silent = 256;
  };
  using Take = absl::AnyInvocable<void(UniqueFd)>;

  Greeter(Loop* loop, Options options, Take lane, Take control);
  ~Greeter();
  void Add(UniqueFd socket);
  void Stop();
  size_t silent() const { return silent_.size(); }

 private:
  struct Guest {
    UniqueFd socket;
    int64_t deadline_ns = 0;
  };
  void OnReadable(int fd);
  UniqueFd Remove(int fd);
  void ArmTimer();
  void Expire();

  Loop* const loop_;
  const Options options_;
  Take lane_;
  Take control_;
  std::deque<Guest> silent_;  // oldest first
  bool armed_ = false;
};

// One listening socket on the control loop.
class TcpListener : public EngineListener {
 public:
  // Binds and listens at once; connections that are accepted go to `accepted` on the loop.
  static absl::StatusOr<std::unique_ptr<EngineListener>> Start(
      Loop* loop, const Endpoint& endpoint, std::function<void(UniqueFd)> accepted);
  ~TcpListener() override;
  uint16_t port() const override { return port_; }
  void Close(absl::AnyInvocable<void()> closed) override;

 private:
  class Socket;
  TcpListener(Loop* loop, std::shared_ptr<Socket> socket, uint16_t port);

  Loop* const loop_;
  const std::shared_ptr<Socket> socket_;
  const uint16_t port_;
};

}  // namespace hixld
