// The sockets of lanes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "transports/tcp/tcp_transport.h"

namespace hixld {

// Sets what every lane needs: non-blocking, no delay, keep-alive, user timeout, buffer sizes,
// congestion control. Errors of single options are ignored where the lane works without them.
void SetLaneOptions(int socket, bool loopback, const TcpOptions& options);

// Whether lanes can have this congestion control. PARAM_INVALID lists those that they can have.
absl::Status TryCongestionControl(const std::string& name);

// Starts to connect to `peer`, from the address of `interface` unless that is empty. The socket
// becomes writable once it is connected. FAILED names peer or interface.
absl::StatusOr<UniqueFd> StartConnect(const Endpoint& peer, const std::string& interface,
                                      const TcpOptions& options);

// The error that a socket's event stands for.
absl::Status SocketError(int socket, absl::string_view what);

// Whether both ends are on this machine, by the peer's address; false when that is not known.
bool IsLoopback(int socket);
std::string LocalAddress(int socket);
std::string RemoteAddress(int socket);

// Closes at once and throws away what the kernel has not sent yet.
void CloseAbruptly(UniqueFd socket);

}  // namespace hixld
