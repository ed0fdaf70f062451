#include "proto/fdchannel/channel.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "proto/base/status.h"

namespace hixld {
namespace {

struct Sockets {
  UniqueFd a;
  UniqueFd b;
};

Sockets Pair(int flags = 0) {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | flags, 0, fds) == 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::string MakeDirectory() {
  std::string directory = std::filesystem::temp_directory_path() / "fdchannel.XXXXXX";
  REQUIRE(mkdtemp(directory.data()) != nullptr);
  return directory;
}

size_t OpenDescriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

}  // namespace

TEST_CASE("a packet arrives whole, with its descriptors in order") {
  const Sockets sockets = Pair();
  const UniqueFd one(open("/dev/null", O_RDONLY));
  const UniqueFd two(open("/", O_RDONLY | O_DIRECTORY));
  hixl::fdchannel::v1::FdMessage message;
  message.set_request_id(7);
  message.mutable_get_arena()->set_arena_id(9);
  REQUIRE(SendFdPacket(sockets.a.get(), message, {one.get(), two.get()}).ok());
  const auto packet = ReceiveFdPacket(sockets.b.get());
  REQUIRE(packet.ok());
  CHECK(packet->message.request_id() == 7);
  CHECK(packet->message.get_arena().arena_id() == 9);
  REQUIRE(packet->fds.size() == 2);
  struct stat sent;
  struct stat received;
  REQUIRE(fstat(two.get(), &sent) == 0);
  REQUIRE(fstat(packet->fds[1].get(), &received) == 0);
  CHECK(sent.st_ino == received.st_ino);
  CHECK((fcntl(packet->fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("oversized and malformed packets are refused and leak no descriptor") {
  const Sockets sockets = Pair();
  hixl::fdchannel::v1::FdMessage message;
  message.mutable_hello()->set_client_name(std::string(kMaxFdPacketBytes + 1, 'x'));
  CHECK(ApiCodeOf(SendFdPacket(sockets.a.get(), message)) == ApiCode::kParamInvalid);
  const size_t before = OpenDescriptors();
  const std::string garbage = "\xff\xff\xff\xff";
  const int null = open("/dev/null", O_RDONLY);
  iovec iov = {const_cast<char*>(garbage.data()), garbage.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(c), &null, sizeof(int));
  REQUIRE(sendmsg(sockets.a.get(), &header, 0) == static_cast<ssize_t>(garbage.size()));
  close(null);
  CHECK(ApiCodeOf(ReceiveFdPacket(sockets.b.get()).status()) == ApiCode::kParamInvalid);
  const std::string big(kMaxFdPacketBytes + 10, '\0');
  REQUIRE(send(sockets.a.get(), big.data(), big.size(), 0) > 0);
  CHECK(ApiCodeOf(ReceiveFdPacket(sockets.b.get()).status()) == ApiCode::kParamInvalid);
  CHECK(OpenDescriptors() == before);
}

TEST_CASE("a packet whose descriptors find no room is told from one that is too large") {
  const Sockets sockets = Pair();
  hixl::fdchannel::v1::FdMessage message;
  message.set_request_id(9);
  message.mutable_put_memory()->set_size(4096);
  const UniqueFd null(open("/dev/null", O_RDONLY));
  REQUIRE(SendFdPacket(sockets.a.get(), message, {null.get(), null.get()}).ok());
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The next free number is the last one: one of two is lost.
  const UniqueFd next(dup(null.get()));
  rlimit tight = {.rlim_cur = static_cast<rlim_t>(next.get()) + 2, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  const auto packet = ReceiveFdPacket(sockets.b.get());
  const absl::Status why = ErrnoError(EMFILE, "open");
  setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE(packet.ok());
  CHECK(packet->fds_lost);
  CHECK(packet->fds.empty());
  CHECK(packet->message.request_id() == 9);
  CHECK(ApiCodeOf(why) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(why).option == "RLIMIT_NOFILE");
  CHECK(ErrorInfoOf(why).limit == "RLIMIT_NOFILE " + std::to_string(tight.rlim_cur));
}

TEST_CASE("a gone peer, an empty socket and a full queue are told apart") {
  Sockets sockets = Pair(SOCK_NONBLOCK);
  CHECK(ReceiveFdPacket(sockets.b.get()).status().code() == absl::StatusCode::kAborted);
  hixl::fdchannel::v1::FdMessage message;
  message.mutable_hello()->set_client_name(std::string(10000, 'x'));
  absl::Status status;
  for (int i = 0; i < 10000 && status.ok(); ++i) status = SendFdPacket(sockets.a.get(), message);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  sockets.b.reset();
  CHECK(SendFdPacket(sockets.a.get(), message).code() == absl::StatusCode::kUnavailable);
  Sockets other = Pair();
  other.a.reset();
  CHECK(ReceiveFdPacket(other.b.get()).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a listening socket has exactly the stated mode whatever the umask") {
  const std::string directory = MakeDirectory();
  for (const mode_t mask : {0000, 0077}) {
    const mode_t old = umask(mask);
    const std::string path = directory + "/s" + std::to_string(mask);
    const auto listener = ListenFdSocket(path, 0660);
    umask(old);
    REQUIRE(listener.ok());
    struct stat st;
    REQUIRE(stat(path.c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == 0660);
    const auto client = ConnectFdSocket(path);
    REQUIRE(client.ok());
    const auto credentials = PeerCredentialsOf(client->get());
    REQUIRE(credentials.ok());
    CHECK(credentials->pid == getpid());
    CHECK(credentials->uid == getuid());
  }
  // Nothing but the two sockets is left.
  CHECK(std::distance(std::filesystem::directory_iterator(directory), {}) == 2);
  std::filesystem::remove_all(directory);
}

TEST_CASE("nobody there and impossible paths have clear errors") {
  CHECK(ConnectFdSocket("/nonexistent/socket").status().code() == absl::StatusCode::kUnavailable);
  CHECK(ApiCodeOf(ConnectFdSocket(std::string(200, 'x')).status()) == ApiCode::kParamInvalid);
  CHECK(ApiCodeOf(ConnectFdSocket("").status()) == ApiCode::kParamInvalid);
}

}  // namespace hixld
