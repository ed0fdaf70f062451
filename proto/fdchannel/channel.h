// Sending and receiving FdMessage packets with descriptors over a SOCK_SEQPACKET socket.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/fd.h"
#include "proto/fdchannel/fdchannel.pb.h"

namespace hixld {

// Version of the fd channel that this code speaks.
constexpr uint32_t kFdChannelVersion = 1;
// A packet is never longer; a longer one is refused by both sides.
constexpr size_t kMaxFdPacketBytes = 128 * 1024;
// Descriptors beside one packet.
constexpr size_t kMaxFdsPerPacket = 4;

struct FdPacket {
  hixl::fdchannel::v1::FdMessage message;
  std::vector<UniqueFd> fds;
  // This process had no room for the descriptors that came with it; none is kept.
  bool fds_lost = false;
};

// Sends one packet; the descriptors stay the caller's. Blocks only if the socket does.
// UNAVAILABLE when the peer is gone or, on a non-blocking socket, when its queue is full
// (absl::StatusCode::kUnavailable / kResourceExhausted).
absl::Status SendFdPacket(int socket, const hixl::fdchannel::v1::FdMessage& message,
                          const std::vector<int>& fds = {});

// Receives one packet. kUnavailable: the peer closed. kAborted: no packet now (non-blocking
// socket). PARAM_INVALID: the packet was oversized, truncated or no FdMessage; descriptors that
// came with it are closed, or moved to `*refused`: closing what a stranger sent may block.
absl::StatusOr<FdPacket> ReceiveFdPacket(int socket, std::vector<UniqueFd>* refused = nullptr);

// Who is at the other end, by SO_PEERCRED. pid is 0 when it lives in a pid namespace that this
// process cannot see.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};
absl::StatusOr<PeerCredentials> PeerCredentialsOf(int socket);

// Connects a blocking SEQPACKET socket to `path`. kUnavailable when nobody listens.
absl::StatusOr<UniqueFd> ConnectFdSocket(absl::string_view path);

// Listens on `path` (at most 107 bytes) with exactly `mode`, non-blocking, and replaces what is
// there. The socket is bound under a private name inside a 0700 directory, given to `group` (unless
// that is -1) and renamed, so that no moment has a wider mode.
absl::StatusOr<UniqueFd> ListenFdSocket(const std::string& path, mode_t mode,
                                        gid_t group = static_cast<gid_t>(-1));

}  // namespace hixld
