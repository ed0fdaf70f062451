#include "transports/loop/acceptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/base/unix_socket.h"
#include "tests/test_directory.h"

namespace hixld {
namespace {

// Without a check: under the sanitizers those need descriptors themselves.
UniqueFd Connect(const std::string& path) {
  const sockaddr_un address = *UnixAddress(path);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return UniqueFd();
  }
  return fd;
}

// Whether the other end has closed; blocks until it has or has written.
bool Refused(const UniqueFd& fd) {
  char byte;
  return read(fd.get(), &byte, 1) <= 0;
}

class Server {
 public:
  explicit Server(bool keep_reserve) {
    auto listener = ListenUnixSocket(path(), SOCK_STREAM, 0600, static_cast<gid_t>(-1));
    REQUIRE(listener.ok());
    Acceptor::Callbacks callbacks;
    callbacks.take = [this](UniqueFd socket) {
      // Checks are for the test's own thread.
      const bool blocks = (fcntl(socket.get(), F_GETFL) & O_NONBLOCK) == 0;
      if (blocks || write(socket.get(), "x", 1) != 1) bad_.fetch_add(1);
      MutexLock lock(&mutex_);
      taken_.push_back(std::move(socket));
    };
    callbacks.refuse = [this](const UniqueFd&) { refusals_.fetch_add(1); };
    callbacks.fail = [this](const absl::Status&) { bad_.fetch_add(1); };
    acceptor_ = std::make_unique<Acceptor>(loop_.get(), *std::move(listener),
                                           Acceptor::Options{.keep_reserve = keep_reserve},
                                           std::move(callbacks));
  }
  std::string path() const { return directory_.socket(); }
  void CloseTaken() {
    MutexLock lock(&mutex_);
    taken_.clear();
  }
  int refusals() const { return refusals_.load(); }
  void Stop() { acceptor_.reset(); }
  // Connections that would block, or could not be written to.
  int bad() const { return bad_.load(); }

 private:
  const testing::TestDirectory directory_;
  const std::unique_ptr<Loop> loop_ = *Loop::Start({.name = "test-accept"});
  std::atomic<int> bad_{0};
  std::atomic<int> refusals_{0};
  Mutex mutex_;
  std::vector<UniqueFd> taken_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Acceptor> acceptor_;
};

// A limit of the whole process, taken back at the end.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lower = before_;
    lower.rlim_cur = limit;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &lower) == 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST_CASE("connections are taken, and none once it has stopped") {
  Server server(false);
  CHECK_FALSE(Refused(Connect(server.path())));
  CHECK_FALSE(Refused(Connect(server.path())));
  const std::string path = server.path();
  server.Stop();
  CHECK(server.bad() == 0);
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = UnixAddress(path);
  CHECK(connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0);
}

TEST_CASE("without descriptors connections are refused, said to be, and taken again afterwards") {
  const bool keep_reserve = GENERATE(false, true);
  Server server(keep_reserve);
  const std::string path = server.path();
  const DescriptorLimit limit(120);
  std::vector<UniqueFd> clients;
  bool refused = false;
  // Where nothing is kept, this side may be the first to have none left.
  while (!refused && clients.size() < 120) {
    clients.push_back(Connect(path));
    if (!clients.back().valid()) break;
    refused = Refused(clients.back());
  }
  const int last = clients.back().get();
  const size_t count = clients.size();
  clients.clear();
  server.CloseTaken();
  CHECK(count < 120);
  if (keep_reserve) {
    CHECK(refused);
    CHECK(last < 120 - 120 / 4 + 2);
  }
  const UniqueFd again = Connect(path);
  CHECK(again.valid());
  CHECK_FALSE(Refused(again));
  if (refused) CHECK(server.refusals() > 0);
  CHECK(server.bad() == 0);
}

}  // namespace
}  // namespace hixld
