#include "proto/fdchannel/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"
#include "proto/base/unix_socket.h"

namespace hixld {
namespace {

using hixl::fdchannel::v1::FdMessage;

// Takes every descriptor out of the control messages, so that each one is closed by its owner.
std::vector<UniqueFd> TakeFds(msghdr* header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(header); c != nullptr; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

absl::Status SendFdPacket(int socket, const FdMessage& message, const std::vector<int>& fds) {
  const std::string bytes = message.SerializeAsString();
  if (bytes.size() > kMaxFdPacketBytes || fds.size() > kMaxFdsPerPacket) {
    return ParamInvalid(absl::StrCat("fd channel packet of ", bytes.size(), " bytes and ",
                                     fds.size(), " descriptors is too large"),
                        {.object = "fd channel packet",
                         .allowed = absl::StrCat("up to ", kMaxFdPacketBytes, " bytes and ",
                                                 kMaxFdsPerPacket, " descriptors")});
  }
  iovec iov = {.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFdsPerPacket)] = {};
  msghdr header = {};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return absl::OkStatus();
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return absl::ResourceExhaustedError("the peer does not read its fd channel");
  }
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
    return absl::UnavailableError("the fd channel's peer is gone");
  }
  return ErrnoError(errno, "send on the fd channel");
}

absl::StatusOr<FdPacket> ReceiveFdPacket(int socket, std::vector<UniqueFd>* refused) {
  std::string bytes(kMaxFdPacketBytes, '\0');
  iovec iov = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFdsPerPacket)] = {};
  msghdr header = {};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t received;
  int resets = 0;
  do {
    received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    // A peer that closes with packets of ours unread resets the connection; what it said before
    // that, such as a Goodbye, is still there to be read after the reset has been reported once.
  } while (received < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::AbortedError("no packet");
    if (errno == ECONNRESET) return absl::UnavailableError("the fd channel's peer is gone");
    return ErrnoError(errno, "receive on the fd channel");
  }
  FdPacket packet;
  packet.fds = TakeFds(&header);
  const auto hand_over = [&] {
    if (refused != nullptr) *refused = std::move(packet.fds);
  };
  if (received == 0) {
    hand_over();
    return absl::UnavailableError("the fd channel's peer closed it");
  }
  // There is room for as many as a packet may have, so fewer of them were cut off by a limit of the
  // process.
  const bool cut = (header.msg_flags & MSG_CTRUNC) != 0;
  packet.fds_lost = cut && packet.fds.size() < kMaxFdsPerPacket;
  if ((header.msg_flags & MSG_TRUNC) != 0 || (cut && !packet.fds_lost)) {
    hand_over();
    return ParamInvalid("fd channel packet is too large",
                        {.object = "fd channel packet",
                         .allowed = absl::StrCat("up to ", kMaxFdPacketBytes, " bytes and ",
                                                 kMaxFdsPerPacket, " descriptors")});
  }
  if (!packet.message.ParseFromArray(bytes.data(), static_cast<int>(received))) {
    hand_over();
    return ParamInvalid("fd channel packet is no FdMessage", {.object = "fd channel packet"});
  }
  if (packet.fds_lost && refused != nullptr) *refused = std::move(packet.fds);
  if (packet.fds_lost) packet.fds.clear();
  return packet;
}

absl::StatusOr<PeerCredentials> PeerCredentialsOf(int socket) {
  ucred cred = {};
  socklen_t length = sizeof(cred);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &length) != 0) {
    return ErrnoError(errno, "SO_PEERCRED");
  }
  return PeerCredentials{.pid = cred.pid, .uid = cred.uid, .gid = cred.gid};
}

absl::StatusOr<UniqueFd> ConnectFdSocket(absl::string_view path) {
  HIXLD_ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoError(errno, "create a unix socket");
  int result;
  do {
    result = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return fd;
  if (errno == ENOENT || errno == ECONNREFUSED) {
    return absl::UnavailableError(absl::StrCat("no daemon listens at ", path));
  }
  return ErrnoError(errno, absl::StrCat("connect to ", path),
                    {.object = absl::StrCat("socket ", path)});
}

absl::StatusOr<UniqueFd> ListenFdSocket(const std::string& path, mode_t mode, gid_t group) {
  return ListenUnixSocket(path, SOCK_SEQPACKET, mode, group);
}

}  // namespace hixld
