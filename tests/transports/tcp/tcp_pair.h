// Two daemons' ends of one link in one process, over loopback, with a control connection whose
// messages the test can hold back, and a proxy that can stop and cut the lanes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/endpoint.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "tests/transports/test_memory.h"
#include "transports/tcp/tcp_transport.h"

namespace hixld::testing {

inline std::unique_ptr<WorkerSet> StartWorkers(uint32_t count) {
  auto workers = WorkerSet::Start(count, 0);
  REQUIRE(workers.ok());
  return std::move(*workers);
}

inline UniqueFd ListenOnLoopback(Endpoint* endpoint, bool ipv6 = false) {
  UniqueFd fd(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto any = ParseEndpoint(ipv6 ? "[::1]:0" : "127.0.0.1:0");
  REQUIRE(any.ok());
  REQUIRE(bind(fd.get(), any->sockaddr_ptr(), any->address_len) == 0);
  REQUIRE(listen(fd.get(), 512) == 0);
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) == 0);
  *endpoint = EndpointFromSockaddr(bound, length);
  return fd;
}

// Accepts connections on a thread of its own until destroyed.
class Acceptor {
 public:
  explicit Acceptor(absl::AnyInvocable<void(UniqueFd)> take, bool ipv6 = false)
      : take_(std::move(take)) {
    listener_ = ListenOnLoopback(&endpoint_, ipv6);
    thread_ = std::thread([this] {
      for (;;) {
        UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd.valid()) return;
        take_(std::move(fd));
      }
    });
  }
  ~Acceptor() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  absl::AnyInvocable<void(UniqueFd)> take_;
  UniqueFd listener_;
  Endpoint endpoint_;
  std::thread thread_;
};

// One direction of a control connection.
class TestControl : public ControlPath {
 public:
  explicit TestControl(Loop* loop) : loop_(loop) {}
  // Where messages go; set before the first one.
  void Connect(absl::AnyInvocable<void(const std::string&)> deliver) {
    MutexLock lock(&mutex_);
    deliver_ = std::move(deliver);
  }
  void Disconnect() {
    MutexLock lock(&mutex_);
    deliver_ = nullptr;
  }
  void SendToPeer(std::string payload) override {
    MutexLock lock(&mutex_);
    ++sent_;
    changed_.SignalAll();
    queue_.push_back(std::move(payload));
    if (!held_) loop_->Post([this] { DeliverAll(); });
  }
  void Hold() {
    MutexLock lock(&mutex_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(&mutex_);
    held_ = false;
    loop_->Post([this] { DeliverAll(); });
  }
  void WaitForMessages(int count) {
    MutexLock lock(&mutex_);
    while (sent_ < count) changed_.Wait(&mutex_);
  }
  int sent() {
    MutexLock lock(&mutex_);
    return sent_;
  }

 private:
  void DeliverAll() {
    MutexLock lock(&mutex_);
    while (!held_ && !queue_.empty()) {
      if (deliver_) deliver_(queue_.front());
      queue_.pop_front();
    }
  }

  Loop* const loop_;
  Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void(const std::string&)> deliver_ ABSL_GUARDED_BY(mutex_);
};

// Memory that channels may touch: ranges of "remote addresses".
class TestResolver : public TargetResolver {
 public:
  void Add(uint64_t channel, uint64_t address, std::shared_ptr<MemoryAccess> access) {
    MutexLock lock(&mutex_);
    ranges_[channel][address] = std::move(access);
  }
  void Clear() {
    MutexLock lock(&mutex_);
    ranges_.clear();
  }
  void Remove(uint64_t channel) {
    MutexLock lock(&mutex_);
    ranges_.erase(channel);
  }
  absl::Status Resolve(uint64_t channel, uint64_t address, uint64_t length,
                       std::vector<Part>* parts) override {
    MutexLock lock(&mutex_);
    const auto found = ranges_.find(channel);
    if (found == ranges_.end()) {
      return NotConnected(absl::StrCat("channel ", channel, " is not open"));
    }
    const uint64_t start = address;
    for (uint64_t left = length; left > 0;) {
      auto range = found->second.upper_bound(address);
      if (range == found->second.begin()) return OutOfRange(start, length);
      --range;
      const uint64_t offset = address - range->first;
      if (offset >= range->second->length()) return OutOfRange(start, length);
      const uint64_t step = std::min(left, range->second->length() - offset);
      parts->push_back(
          {.memory = {range->second.get(), offset}, .length = step, .pin = range->second});
      left -= step;
      address += step;
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status OutOfRange(uint64_t address, uint64_t length) {
    return ParamInvalid(absl::StrCat("range ", address, "+", length, " is not registered"),
                        {.object = absl::StrCat("range ", address, "+", length)});
  }
  Mutex mutex_;
  std::map<uint64_t, std::map<uint64_t, std::shared_ptr<MemoryAccess>>> ranges_
      ABSL_GUARDED_BY(mutex_);
};

// Forwards lanes to their real target. It can stop reading, and cut every connection.
class Proxy {
 public:
  explicit Proxy(const Endpoint& target)
      : target_(target), acceptor_([this](UniqueFd fd) { Take(std::move(fd)); }) {}
  ~Proxy() {
    Resume();
    Refuse(true);
    Cut();
    std::vector<std::thread> threads;
    {
      MutexLock lock(&mutex_);
      threads = std::move(threads_);
    }
    for (auto& thread : threads) thread.join();
  }
  const Endpoint& endpoint() const { return acceptor_.endpoint(); }

  // From now on nothing is forwarded in either direction.
  void Pause() {
    MutexLock lock(&mutex_);
    paused_ = true;
  }
  // Forwards this many bytes more, of both directions together, and stops then.
  void PauseAfter(uint64_t bytes) {
    MutexLock lock(&mutex_);
    budget_ = bytes;
  }
  void WaitUntilPaused() {
    MutexLock lock(&mutex_);
    while (!paused_) changed_.Wait(&mutex_);
  }
  void Resume() {
    MutexLock lock(&mutex_);
    paused_ = false;
    budget_ = UINT64_MAX;
    changed_.SignalAll();
  }
  // Connections that come are closed at once.
  void Refuse(bool refuse) {
    MutexLock lock(&mutex_);
    refuse_ = refuse;
  }
  // Cuts what is connected now; of `only` (when >= 0) just the connection with this number.
  void Cut(int only = -1) {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      if (only >= 0 && static_cast<size_t>(only) != i) continue;
      pairs_[i]->cut.store(true);
      shutdown(pairs_[i]->client.get(), SHUT_RDWR);
      shutdown(pairs_[i]->server.get(), SHUT_RDWR);
    }
    changed_.SignalAll();
  }
  size_t connections() {
    MutexLock lock(&mutex_);
    return pairs_.size();
  }

 private:
  struct Pair {
    UniqueFd client;
    UniqueFd server;
    std::atomic<bool> cut{false};
  };

  void Take(UniqueFd client) {
    auto pair = std::make_shared<Pair>();
    SetSmallBuffers(client.get());
    pair->client = std::move(client);
    MutexLock lock(&mutex_);
    if (refuse_) return;
    pair->server.reset(socket(target_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SetSmallBuffers(pair->server.get());
    if (connect(pair->server.get(), target_.sockaddr_ptr(), target_.address_len) != 0) return;
    pairs_.push_back(pair);
    threads_.emplace_back([this, pair] { Pump(pair, pair->client.get(), pair->server.get()); });
    threads_.emplace_back([this, pair] { Pump(pair, pair->server.get(), pair->client.get()); });
  }
  static void SetSmallBuffers(int fd) {
    const int bytes = 64 << 10;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  }
  void WaitWhilePaused(const Pair& pair) {
    MutexLock lock(&mutex_);
    while (paused_ && !pair.cut.load()) changed_.Wait(&mutex_);
  }
  void Spend(uint64_t bytes) {
    MutexLock lock(&mutex_);
    budget_ -= std::min(budget_, bytes);
    if (budget_ > 0) return;
    paused_ = true;
    changed_.SignalAll();
  }
  void Pump(std::shared_ptr<Pair> pair, int from, int to) {
    std::vector<char> buffer(64 << 10);
    while (!pair->cut.load()) {
      pollfd in = {.fd = from, .events = POLLIN, .revents = 0};
      poll(&in, 1, -1);
      WaitWhilePaused(*pair);
      const ssize_t got = recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) break;
      Spend(static_cast<uint64_t>(got));
      for (ssize_t at = 0; at < got;) {
        pollfd out = {.fd = to, .events = POLLOUT, .revents = 0};
        poll(&out, 1, -1);
        const ssize_t put = send(to, buffer.data() + at, got - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno != EAGAIN && errno != EINTR) {
          at = got;
        } else if (put > 0) {
          at += put;
        }
      }
    }
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }

  const Endpoint target_;
  Mutex mutex_;
  CondVar changed_;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t budget_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  bool refuse_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Pair>> pairs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  Acceptor acceptor_;
};

struct PairOptions {
  TcpOptions tcp;
  uint32_t workers = 2;
  bool proxy = false;
  bool ipv6 = false;
  std::string initiator_secret = std::string(32, 's');
};

// Settings under which short tests reach every path.
inline TcpOptions SmallTcp() {
  TcpOptions options;
  options.stripe_bytes = 64 << 10;
  options.window_stripes = 4;
  options.reconnect_min_ns = 2 * kNanosPerMilli;
  options.reconnect_max_ns = 20 * kNanosPerMilli;
  options.staging_bytes = 1 << 20;
  return options;
}

class TcpPair {
 public:
  explicit TcpPair(PairOptions options = {})
      : options_(std::move(options)),
        initiator_workers(StartWorkers(options_.workers)),
        target_workers(StartWorkers(options_.workers)),
        control_loop_(StartControlLoop()),
        to_target(control_loop_.get()),
        to_initiator(control_loop_.get()) {
    target_transport = TcpTransport::Create(target_workers.get(), options_.tcp);
    initiator_transport = TcpTransport::Create(initiator_workers.get(), options_.tcp);
    target = target_transport->Serve({.link_id = 7, .secret = std::string(32, 's')}, &resolver,
                                     &to_initiator);
    acceptor = std::make_unique<Acceptor>(
        [this](UniqueFd fd) { target_transport->AcceptLane(std::move(fd)); }, options_.ipv6);
    Endpoint peer = acceptor->endpoint();
    if (options_.proxy) {
      proxy = std::make_unique<Proxy>(peer);
      peer = proxy->endpoint();
    }
    to_target.Connect([this](const std::string& m) { target->OnControlMessage(m); });
    initiator = initiator_transport->Connect(
        peer, {.link_id = 7, .secret = options_.initiator_secret}, &to_target);
    to_initiator.Connect([this](const std::string& m) { initiator->OnControlMessage(m); });
  }

  ~TcpPair() {
    if (initiator != nullptr) initiator->Close(NotConnected("the test is over"), 0);
    to_initiator.Disconnect();
    to_target.Disconnect();
    initiator.reset();
    CloseTarget();
    proxy.reset();
    acceptor.reset();
    initiator_transport.reset();
    target_transport.reset();
    // Whatever posts to the workers goes before them.
    resolver.Clear();
    initiator_workers.reset();
    target_workers.reset();
    control_loop_.reset();
  }

  void CloseTarget() {
    if (target == nullptr) return;
    std::promise<void> closed;
    target->Close(NotConnected("the test is over"), [&] { closed.set_value(); });
    closed.get_future().get();
    to_target.Disconnect();
    target.reset();
  }

  absl::Status Run(TestTransfer& transfer) {
    initiator->Submit(transfer.job());
    return transfer.Wait();
  }
  void WaitUntilUp(size_t lanes) {
    while (CountUp() != lanes) std::this_thread::yield();
  }
  size_t CountUp() {
    size_t up = 0;
    for (const LaneStats& lane : initiator->Lanes()) up += lane.state == "up" ? 1 : 0;
    return up;
  }

 private:
  static std::unique_ptr<Loop> StartControlLoop() {
    auto loop = Loop::Start({.name = "control"});
    REQUIRE(loop.ok());
    return std::move(*loop);
  }
  const PairOptions options_;

 public:
  std::unique_ptr<WorkerSet> initiator_workers;
  std::unique_ptr<WorkerSet> target_workers;

 private:
  std::unique_ptr<Loop> control_loop_;

 public:
  TestControl to_target;
  TestControl to_initiator;
  TestResolver resolver;
  std::unique_ptr<TcpTransport> initiator_transport;
  std::unique_ptr<TcpTransport> target_transport;
  std::unique_ptr<TargetLink> target;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Proxy> proxy;
  std::unique_ptr<InitiatorLink> initiator;
};

}  // namespace hixld::testing
