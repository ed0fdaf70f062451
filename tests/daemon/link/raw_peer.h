// A peer that speaks the control protocol byte by byte, and may break it at any point.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string>

#include "proto/base/endpoint.h"
#include "proto/base/fd.h"
#include "proto/wire/peer.pb.h"

namespace hixld {

class RawPeer {
 public:
  static RawPeer ConnectTo(const std::string& address) {
    const Endpoint endpoint = *ParseEndpoint(address);
    UniqueFd fd(socket(endpoint.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), endpoint.sockaddr_ptr(), endpoint.address_len) != 0) fd.reset();
    return RawPeer(std::move(fd));
  }
  explicit RawPeer(UniqueFd fd) : fd_(std::move(fd)) {}

  void SendBytes(const std::string& bytes) {
    send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void Send(const hixl::wire::v1::PeerMessage& message) {
    const std::string body = message.SerializeAsString();
    std::string frame(4, '\0');
    for (int i = 0; i < 4; ++i) frame[i] = static_cast<char>(body.size() >> (8 * i));
    SendBytes(frame + body);
  }
  // The next message; none when the connection ended or nothing came for ten seconds.
  std::optional<hixl::wire::v1::PeerMessage> Receive() {
    std::string header;
    if (!Read(4, &header)) return std::nullopt;
    uint32_t length;
    memcpy(&length, header.data(), 4);
    std::string body;
    hixl::wire::v1::PeerMessage message;
    if (!Read(length, &body) || !message.ParseFromString(body)) return std::nullopt;
    return message;
  }
  // Whether the other side closes the connection.
  bool Ended() {
    std::string byte;
    while (Read(1, &byte)) byte.clear();
    return !timed_out_;
  }
  int fd() const { return fd_.get(); }
  void Close() { fd_.reset(); }
  // Closes with a RST.
  void Reset() {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    fd_.reset();
  }

 private:
  bool Read(size_t count, std::string* out) {
    while (out->size() < count) {
      pollfd wait = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
      if (poll(&wait, 1, 10'000) <= 0) {
        timed_out_ = true;
        return false;
      }
      char bytes[4096];
      const ssize_t got = recv(fd_.get(), bytes, std::min(count - out->size(), sizeof(bytes)), 0);
      if (got <= 0) return false;
      out->append(bytes, static_cast<size_t>(got));
    }
    return true;
  }

  UniqueFd fd_;
  bool timed_out_ = false;
};

// A listening socket on loopback that the test serves by hand.
class RawListener {
 public:
  RawListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Endpoint any = *ParseEndpoint("127.0.0.1");
    bind(fd_.get(), any.sockaddr_ptr(), any.address_len);
    listen(fd_.get(), 16);
    sockaddr_storage bound = {};
    socklen_t length = sizeof(bound);
    getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    address_ = EndpointFromSockaddr(bound, length).ToString();
  }
  const std::string& address() const { return address_; }
  RawPeer Accept() { return RawPeer(UniqueFd(accept(fd_.get(), nullptr, nullptr))); }
  void Close() { fd_.reset(); }

 private:
  UniqueFd fd_;
  std::string address_;
};

}  // namespace hixld
