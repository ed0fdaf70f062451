// What the engine room stands on, under a test's control: a data mover whose transfers end when
// the test says so, links whose channels break when it says so, sessions that only are numbers.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/engine/engine_registry.h"
#include "daemon/link/link.h"
#include "daemon/session/session.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "transports/loop/loop.h"
#include "transports/transport.h"

namespace hixld {

// Memory of this process.
class TestMemory : public MemoryAccess {
 public:
  explicit TestMemory(size_t size) : TestMemory(std::vector<std::byte>(size)) {}
  void Read(std::vector<Slice>, Done done) override { done(absl::InternalError("mapped")); }
  void Write(std::vector<Slice>, Done done) override { done(absl::InternalError("mapped")); }
  absl::string_view description() const override { return "test memory"; }
  std::byte* bytes() { return bytes_.data(); }

 private:
  explicit TestMemory(std::vector<std::byte> bytes)
      : MemoryAccess(Kind::kMapped, bytes.data(), bytes.size()), bytes_(std::move(bytes)) {}
  std::vector<std::byte> bytes_;
};

// Holds transfers until the test ends them, or copies at once.
class FakeSink : public TransferSink {
 public:
  absl::string_view transport() const override { return "local"; }

  void Submit(std::shared_ptr<TransferJob> job) override {
    {
      MutexLock lock(&mutex_);
      ++submitted_;
      if (holding_) {
        jobs_.push_back(std::move(job));
        changed_.SignalAll();
        return;
      }
    }
    Copy(*job);
    job->done(absl::OkStatus());
  }
  // Fences at once, unless told to keep what is cancelled.
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    {
      MutexLock lock(&mutex_);
      const auto found = std::find(jobs_.begin(), jobs_.end(), job);
      if (found == jobs_.end()) return;
      ++cancelled_;
      changed_.SignalAll();
      if (keep_cancelled_) return;
      jobs_.erase(found);
    }
    job->done(std::move(reason));
  }

  void Hold() {
    MutexLock lock(&mutex_);
    holding_ = true;
  }
  void KeepCancelled() {
    MutexLock lock(&mutex_);
    keep_cancelled_ = true;
  }
  // Ends the oldest held transfer.
  void EndOne(const absl::Status& status) {
    std::shared_ptr<TransferJob> job;
    {
      MutexLock lock(&mutex_);
      while (jobs_.empty()) changed_.Wait(&mutex_);
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    if (status.ok()) Copy(*job);
    job->done(status);
  }
  void WaitForCancels(int count) {
    MutexLock lock(&mutex_);
    while (cancelled_ < count) changed_.Wait(&mutex_);
  }
  void WaitForJobs(size_t count) {
    MutexLock lock(&mutex_);
    while (jobs_.size() < count) changed_.Wait(&mutex_);
  }
  size_t held() const {
    MutexLock lock(&mutex_);
    return jobs_.size();
  }
  std::shared_ptr<TransferJob> front() const {
    MutexLock lock(&mutex_);
    return jobs_.front();
  }
  int submitted() const {
    MutexLock lock(&mutex_);
    return submitted_;
  }

 private:
  static void Copy(const TransferJob& job) {
    for (const CopyPiece& piece : job.pieces) {
      if (piece.remote.access == nullptr) continue;
      std::byte* local = piece.local.access->mapped() + piece.local.offset;
      std::byte* remote = piece.remote.access->mapped() + piece.remote.offset;
      const bool read = job.direction == CopyDirection::kRead;
      memcpy(read ? local : remote, read ? remote : local, piece.length);
    }
  }

  mutable Mutex mutex_;
  CondVar changed_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  bool keep_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  int submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  int cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<TransferJob>> jobs_ ABSL_GUARDED_BY(mutex_);
};

// A peer engine in another daemon.
struct FakePeer {
  Mutex mutex;
  std::vector<std::shared_ptr<const Region>> regions ABSL_GUARDED_BY(mutex);

  void Add(uint64_t address, uint64_t length) {
    auto region = std::make_shared<Region>();
    region->address = address;
    region->length = length;
    MutexLock lock(&mutex);
    region->id = regions.size() + 1;
    regions.push_back(std::move(region));
  }
  void Clear() {
    MutexLock lock(&mutex);
    regions.clear();
  }
  std::shared_ptr<const RegionSnapshot> Snapshot() {
    MutexLock lock(&mutex);
    return std::make_shared<const RegionSnapshot>(regions, regions.size());
  }
};

class FakeChannel : public RemoteChannel {
 public:
  FakeChannel(FakePeer* peer, FakeSink* sink, absl::AnyInvocable<void(absl::Status)> on_broken)
      : peer_(peer), sink_(sink), regions_(peer->Snapshot()), on_broken_(std::move(on_broken)) {}
  absl::string_view transport() const override { return "tcp"; }
  bool open() const override { return open_; }
  std::shared_ptr<const RegionSnapshot> Regions() const override {
    MutexLock lock(&mutex_);
    return regions_;
  }
  bool RegionsOutdated() const override { return outdated_; }
  void Outdate() { outdated_ = true; }
  void RefreshRegions(int64_t deadline_ns, absl::AnyInvocable<void(absl::Status)> done) override {
    refreshes_ += 1;
    outdated_ = false;
    {
      MutexLock lock(&mutex_);
      regions_ = peer_->Snapshot();
    }
    done(absl::OkStatus());
  }
  void Submit(std::shared_ptr<TransferJob> job) override { sink_->Submit(std::move(job)); }
  void Cancel(const std::shared_ptr<TransferJob>& job, absl::Status reason) override {
    sink_->Cancel(job, std::move(reason));
  }
  void OpenRelay(std::vector<AddressRange> ranges, int64_t deadline_ns,
                 absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) override {
    uint64_t id = 0;
    absl::Status refusal;
    {
      MutexLock lock(&mutex_);
      refusal = relay_refusal_;
      if (refusal.ok()) {
        id = ++relays_;
        relayed_ = std::move(ranges);
      }
    }
    if (!refusal.ok()) return done(refusal);
    done(id);
  }
  void CloseRelay(uint64_t id) override { relays_closed_ += 1; }
  void RefuseRelay(absl::Status status) {
    MutexLock lock(&mutex_);
    relay_refusal_ = std::move(status);
  }
  // The ranges of the last relay.
  std::vector<AddressRange> relayed() const {
    MutexLock lock(&mutex_);
    return relayed_;
  }
  int relays_closed() const { return relays_closed_; }
  // Waits for AnswerNotify once notifies are held.
  void Notify(std::string name, std::string message, int64_t deadline_ns,
              absl::AnyInvocable<void(absl::Status)> done) override {
    {
      MutexLock lock(&mutex_);
      notified_.push_back(std::move(name));
      if (hold_notifies_) {
        notify_done_.push_back(std::move(done));
        return;
      }
    }
    done(absl::OkStatus());
  }
  void HoldNotifies() {
    MutexLock lock(&mutex_);
    hold_notifies_ = true;
  }
  void AnswerNotify(const absl::Status& status) {
    absl::AnyInvocable<void(absl::Status)> done;
    {
      MutexLock lock(&mutex_);
      done = std::move(notify_done_.front());
      notify_done_.pop_front();
    }
    done(status);
  }
  std::vector<std::string> notified() const {
    MutexLock lock(&mutex_);
    return notified_;
  }
  void Close() override {
    open_ = false;
    closes_ += 1;
  }
  void Break(const absl::Status& reason) {
    open_ = false;
    on_broken_(reason);
  }
  int refreshes() const { return refreshes_; }
  int closes() const { return closes_; }

 private:
  FakePeer* const peer_;
  FakeSink* const sink_;
  mutable Mutex mutex_;
  std::shared_ptr<const RegionSnapshot> regions_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void(absl::Status)> on_broken_;
  absl::Status relay_refusal_ ABSL_GUARDED_BY(mutex_);
  std::vector<AddressRange> relayed_ ABSL_GUARDED_BY(mutex_);
  uint64_t relays_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int> relays_closed_{0};
  std::vector<std::string> notified_ ABSL_GUARDED_BY(mutex_);
  bool hold_notifies_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<absl::AnyInvocable<void(absl::Status)>> notify_done_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> open_{true};
  std::atomic<bool> outdated_{false};
  std::atomic<int> refreshes_{0};
  std::atomic<int> closes_{0};
};

class FakeLinks : public LinkManager {
 public:
  explicit FakeLinks(FakeSink* sink) : sink_(sink) {}

  void OpenChannel(ChannelRequest request, ChannelDone done) override {
    std::shared_ptr<FakeChannel> channel;
    {
      MutexLock lock(&mutex_);
      ++opens_;
      if (holding_) {
        held_.emplace_back(std::move(request), std::move(done));
        changed_.SignalAll();
        return;
      }
      if (refusal_.ok()) {
        channel = std::make_shared<FakeChannel>(&peer_, sink_, std::move(request.on_broken));
        channels_.push_back(channel);
      }
    }
    if (channel == nullptr) return done(refusal());
    done(std::move(channel));
  }
  absl::StatusOr<std::unique_ptr<EngineListener>> Listen(const Endpoint& endpoint) override {
    class Listener : public EngineListener {
     public:
      explicit Listener(uint16_t port) : port_(port) {}
      uint16_t port() const override { return port_; }
      void Close(absl::AnyInvocable<void()> closed) override { closed(); }

     private:
      const uint16_t port_;
    };
    return std::make_unique<Listener>(endpoint.port != 0 ? endpoint.port : 40'000);
  }
  void List(absl::AnyInvocable<void(std::vector<LinkDescription>)> done) override { done({}); }

  // From now on connections fail with this; OkStatus: they succeed again.
  void Refuse(absl::Status status) {
    MutexLock lock(&mutex_);
    refusal_ = std::move(status);
  }
  absl::Status refusal() const {
    MutexLock lock(&mutex_);
    return refusal_;
  }
  // From now on connections wait for Answer.
  void Hold() {
    MutexLock lock(&mutex_);
    holding_ = true;
  }
  // Answers the oldest waiting connection, once there is one.
  void Answer(const absl::Status& status) {
    std::pair<ChannelRequest, ChannelDone> call;
    {
      MutexLock lock(&mutex_);
      while (held_.empty()) changed_.Wait(&mutex_);
      call = std::move(held_.front());
      held_.pop_front();
    }
    if (!status.ok()) return call.second(status);
    auto channel = std::make_shared<FakeChannel>(&peer_, sink_, std::move(call.first.on_broken));
    {
      MutexLock lock(&mutex_);
      channels_.push_back(channel);
    }
    call.second(std::move(channel));
  }
  FakePeer& peer() { return peer_; }
  int opens() const {
    MutexLock lock(&mutex_);
    return opens_;
  }
  std::shared_ptr<FakeChannel> last() const {
    MutexLock lock(&mutex_);
    return channels_.back();
  }

 private:
  FakeSink* const sink_;
  FakePeer peer_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  int opens_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<ChannelRequest, ChannelDone>> held_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<FakeChannel>> channels_ ABSL_GUARDED_BY(mutex_);
};

class FakeSession : public Session {
 public:
  explicit FakeSession(uint64_t id) : id_(id) {}
  uint64_t id() const override { return id_; }
  SessionDescription Describe() const override {
    return {.id = id_, .credentials = {.pid = getpid(), .uid = uid_, .gid = getgid()}};
  }
  // Before an engine is opened: another user's.
  void SetUid(uid_t uid) { uid_ = uid; }
  bool open() const override { return open_; }
  void End() { open_ = false; }
  absl::Status RunBlocking(std::string what, absl::AnyInvocable<void()> task) override {
    task();
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<MemoryAccess>> SharedMemoryAccess(uint64_t, uint64_t, uint64_t,
                                                                   uint64_t*) override {
    return absl::UnimplementedError("no handles");
  }
  absl::StatusOr<std::shared_ptr<MemoryAccess>> BufferAccess(uint64_t, uint64_t, uint64_t,
                                                             uint64_t*) override {
    return absl::UnimplementedError("no buffers");
  }
  // Plain memory of an engine is what the test says it is; other addresses read as zeros.
  std::shared_ptr<MemoryAccess> PlainMemoryAccess(uint64_t address, uint64_t length) override {
    MutexLock lock(&mutex_);
    auto& memory = plain_[{address, length}];
    if (memory == nullptr) memory = std::make_shared<TestMemory>(length);
    return memory;
  }
  std::shared_ptr<TestMemory> plain(uint64_t address, uint64_t length) {
    PlainMemoryAccess(address, length);
    MutexLock lock(&mutex_);
    return plain_[{address, length}];
  }
  absl::StatusOr<BufferGrant> AllocateBuffer(uint64_t, MemoryType, uint64_t, int32_t) override {
    return absl::UnimplementedError("no buffers");
  }
  absl::Status FreeBuffer(uint64_t) override { return absl::UnimplementedError("no buffers"); }

 private:
  const uint64_t id_;
  uid_t uid_ = getuid();
  Mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<TestMemory>> plain_
      ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> open_{true};
};

// Turns a callback into a value.
template <typename T>
class Answer {
 public:
  absl::AnyInvocable<void(T)> callback() {
    return [state = state_](T value) { state->set_value(std::move(value)); };
  }
  T get() { return future_.get(); }
  bool ready() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  std::shared_ptr<std::promise<T>> state_ = std::make_shared<std::promise<T>>();
  std::future<T> future_ = state_->get_future();
};

// The engine room on fakes.
class EngineRoom {
 public:
  EngineRoom() : EngineRoom(EngineLimits()) {}
  explicit EngineRoom(const EngineLimits& limits) {
    loop_ = std::move(*Loop::Start({.name = "test-control"}));
    context_.limits = limits;
    context_.local = &sink_;
    context_.links = &links_;
    context_.control = loop_.get();
    context_.log = &log_;
    registry_ = std::make_unique<EngineRegistry>(&context_);
  }
  ~EngineRoom() {
    std::promise<void> closed;
    registry_->CloseAll("the test ends", [&closed] { closed.set_value(); });
    closed.get_future().wait();
    // What was posted before refers to the registry.
    loop_.reset();
  }

  absl::StatusOr<std::shared_ptr<Engine>> TryOpen(const std::string& id, uint64_t session = 1,
                                                  std::map<std::string, std::string> options = {}) {
    return TryOpen(id, std::make_shared<FakeSession>(session), std::move(options));
  }
  absl::StatusOr<std::shared_ptr<Engine>> TryOpen(const std::string& id,
                                                  std::shared_ptr<FakeSession> session,
                                                  std::map<std::string, std::string> options = {}) {
    Answer<absl::StatusOr<std::shared_ptr<Engine>>> answer;
    {
      MutexLock lock(&mutex_);
      sessions_.push_back(session);
    }
    registry_->Open(std::move(session), {.local_engine = id, .options = std::move(options)},
                    answer.callback());
    return answer.get();
  }
  std::shared_ptr<Engine> Open(const std::string& id, uint64_t session = 1,
                               std::map<std::string, std::string> options = {}) {
    auto engine = TryOpen(id, session, std::move(options));
    REQUIRE(engine.ok());
    return *engine;
  }

  FakeSink& sink() { return sink_; }
  // The session that the last engine was opened in.
  std::shared_ptr<FakeSession> last_session() {
    MutexLock lock(&mutex_);
    return sessions_.back();
  }
  FakeLinks& links() { return links_; }
  EngineRegistry& registry() { return *registry_; }
  TransferLog& log() { return log_; }
  Loop& loop() { return *loop_; }
  DirectOptions& direct() { return context_.direct; }

 private:
  FakeSink sink_;
  FakeLinks links_{&sink_};
  TransferLog log_;
  Mutex mutex_;
  // Engines refer to them weakly.
  std::vector<std::shared_ptr<FakeSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  EngineContext context_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<EngineRegistry> registry_;
};

struct TestRegion {
  std::shared_ptr<TestMemory> memory;
  uint64_t id = 0;
  uint64_t address = 0;
};

inline TestRegion AddRegion(Engine& engine, uint64_t address, uint64_t length,
                            MemoryType type = MemoryType::kHost) {
  TestRegion region;
  region.memory = std::make_shared<TestMemory>(length);
  region.address = address;
  const auto added = engine.Register(
      {{.address = address, .length = length, .type = type, .access = region.memory}}, 0);
  REQUIRE(added.ok());
  region.id = added->front()->id;
  return region;
}

inline absl::Status Connect(Engine& engine, const std::string& remote, int64_t timeout_ms = 1000) {
  Answer<absl::StatusOr<Engine::Connected>> answer;
  engine.Connect(remote, timeout_ms, answer.callback());
  return answer.get().status();
}

inline absl::Status SendNotify(Engine& engine, const std::string& remote, std::string name,
                               std::string message = "", int64_t timeout_ms = 5000) {
  Answer<absl::Status> answer;
  engine.SendNotify(remote, {.name = std::move(name), .message = std::move(message)}, timeout_ms,
                    answer.callback());
  return answer.get();
}

inline absl::Status Disconnect(Engine& engine, const std::string& remote,
                               int64_t timeout_ms = 1000) {
  Answer<absl::Status> answer;
  engine.Disconnect(remote, timeout_ms, answer.callback());
  return answer.get();
}

// A batch that owns its arrays.
struct TestBatch {
  std::vector<uint64_t> local, remote, lengths;
  BatchView view() const { return {local, remote, lengths}; }
};

inline TransferArgs Args(const std::string& remote, CopyDirection direction,
                         const TestBatch& batch) {
  TransferArgs args;
  args.remote_engine = remote;
  args.direction = direction;
  args.batch = batch.view();
  args.timeout_ns = 20 * kNanosPerSecond;
  args.may_relay = true;
  return args;
}

inline TransferEnd Transfer(Engine& engine, const std::string& remote, CopyDirection direction,
                            const TestBatch& batch) {
  Answer<TransferEnd> answer;
  engine.TransferSync(Args(remote, direction, batch), answer.callback());
  return answer.get();
}

inline absl::StatusOr<uint64_t> Submit(Engine& engine, const std::string& remote,
                                       CopyDirection direction, const TestBatch& batch,
                                       uint64_t user_data = 0) {
  Answer<absl::StatusOr<uint64_t>> answer;
  TransferArgs args = Args(remote, direction, batch);
  args.timeout_ns = 0;
  args.may_relay = false;
  args.user_data = user_data;
  engine.TransferAsync(std::move(args), answer.callback());
  return answer.get();
}

}  // namespace hixld
