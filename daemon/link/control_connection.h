// One control connection between two daemons: PeerMessages in frames over TCP, never blocking.
// Lives on the control loop; only Send may be called from anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "proto/wire/peer.pb.h"
#include "transports/loop/loop.h"

namespace hixld {

// A frame's length may not be more.
constexpr uint32_t kMaxPeerMessageBytes = 1 << 20;
// Bytes that wait to be sent; a peer that lets more pile up is cut off.
constexpr size_t kMaxPeerQueueBytes = 32 << 20;

// How a connection ended.
enum class ConnectionEnd : uint8_t {
  kEof,       // the peer's kernel says that the socket was closed
  kReset,     // RST: closed by a dying process, or somebody in between
  kError,     // any other error: nothing is known about the peer
  kProtocol,  // the peer broke the protocol, or let too much pile up
};

class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  struct Handler {
    absl::AnyInvocable<void(hixl::wire::v1::PeerMessage)> on_message;
    // At most once, not after Close; the connection has been closed.
    absl::AnyInvocable<void(absl::Status, ConnectionEnd)> on_end;
  };

  // `socket` is connected and non-blocking.
  ControlConnection(Loop* loop, UniqueFd socket);
  ~ControlConnection();

  // Starts reading; replaces the handler when called again.
  void SetHandler(Handler handler);
  // Thread-safe, in order per thread; dropped when the connection is closed.
  void Send(const hixl::wire::v1::PeerMessage& message);
  // No further message is taken in, but the socket stays open.
  void StopReading();
  // Closes at once; what waits to be sent is lost.
  void Close();
  // Sends what waits and an end-of-file, and closes when the peer has closed too, at most a second
  // later. An abrupt close would reset the connection, and the peer could not tell it from a loss.
  void CloseFlushed();

  bool closed() const { return !socket_.valid(); }
  const Endpoint& local() const { return local_; }
  const Endpoint& peer() const { return peer_; }

 private:
  void Watch(uint32_t events);
  void OnEvents(uint32_t events);
  void Read();
  void Dispatch();
  void Flush();
  void End(const absl::Status& status, ConnectionEnd end);

  Loop* const loop_;
  UniqueFd socket_;
  Endpoint local_;
  Endpoint peer_;
  std::shared_ptr<Handler> handler_;
  bool watching_ = false;
  uint32_t events_ = 0;
  bool reading_ = true;
  bool draining_ = false;  // CloseFlushed: what still comes in is thrown away
  bool shut_ = false;
  std::string in_;
  std::string out_;
  size_t sent_ = 0;  // of out_
  std::atomic<size_t> queued_{0};
};

// Sets what every connection between daemons needs: no delay, keep-alive (contract 1.7).
void ConfigureControlSocket(int fd);

}  // namespace hixld
