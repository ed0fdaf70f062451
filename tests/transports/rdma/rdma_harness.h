// Two nodes in one process: an initiator's and a target's end joined by a control connection.
#pragma once

#include <catch2/catch.hpp>
#include <condition_variable>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/base/status.h"
#include "proto/wire/rdma.pb.h"
#include "tests/transports/test_memory.h"
#include "transports/loop/loop.h"
#include "transports/rdma/rdma_transport.h"
#include "transports/rdma/verbs.h"

namespace hixld::rdma::testing {

using hixld::testing::MappedMemory;
using hixld::testing::TestTransfer;

// Registered memory of the target's engine; channels see all of it or nothing.
class TestResolver : public TargetResolver {
 public:
  void AddRegion(uint64_t address, std::shared_ptr<MemoryAccess> memory, uint64_t offset,
                 uint64_t length) {
    MutexLock lock(&mutex_);
    regions_[address] = {std::move(memory), offset, length};
  }
  void RemoveRegion(uint64_t address) {
    MutexLock lock(&mutex_);
    regions_.erase(address);
  }
  void OpenChannel(uint64_t channel) {
    MutexLock lock(&mutex_);
    channels_[channel] = true;
  }
  void CloseChannel(uint64_t channel) {
    MutexLock lock(&mutex_);
    channels_.erase(channel);
  }
  absl::Status Resolve(uint64_t channel, uint64_t address, uint64_t length,
                       std::vector<Part>* parts) override {
    MutexLock lock(&mutex_);
    if (channels_.count(channel) == 0) return NotConnected("no such channel");
    while (length > 0) {
      auto at = regions_.upper_bound(address);
      if (at == regions_.begin()) return ParamInvalid("not registered");
      --at;
      const auto& [start, region] = *at;
      if (address >= start + region.length) return ParamInvalid("not registered");
      Part part;
      part.before = address - start;
      part.length = std::min(length, region.length - part.before);
      part.after = region.length - part.before - part.length;
      part.memory = {region.memory.get(), region.offset + part.before};
      part.pin = region.memory;
      parts->push_back(part);
      address += part.length;
      length -= part.length;
    }
    return absl::OkStatus();
  }

 private:
  struct Region {
    std::shared_ptr<MemoryAccess> memory;
    uint64_t offset = 0;
    uint64_t length = 0;
  };
  Mutex mutex_;
  std::map<uint64_t, Region> regions_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, bool> channels_ ABSL_GUARDED_BY(mutex_);
};

// Hands payloads to a function; can be cut. What is sent before there is a function waits for it:
// an answer may come before the one who asked has the link in its hands.
class TestPath : public ControlPath {
 public:
  using Deliver = std::function<void(const std::string&)>;
  void Connect(Deliver deliver) {
    MutexLock lock(&mutex_);
    deliver_ = std::move(deliver);
    for (const std::string& payload : std::exchange(early_, {})) deliver_(payload);
    connected_ = true;
  }
  // What is sent from now on is lost.
  void Cut() { Connect(nullptr); }
  void SendToPeer(std::string payload) override {
    Deliver deliver;
    {
      MutexLock lock(&mutex_);
      if (!connected_) return early_.push_back(std::move(payload));
      deliver = deliver_;
    }
    if (deliver) deliver(payload);
  }

 private:
  Mutex mutex_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> early_ ABSL_GUARDED_BY(mutex_);
  Deliver deliver_ ABSL_GUARDED_BY(mutex_);
};

class EventLog {
 public:
  void Add(const RdmaEvent& event) {
    MutexLock lock(&mutex_);
    texts_.push_back(event.device + ": " + event.text);
    changed_.SignalAll();
  }
  // Blocks until an event with this text has come `count` times.
  void WaitFor(const std::string& text, size_t count = 1) {
    MutexLock lock(&mutex_);
    while (Count(text) < count) changed_.Wait(&mutex_);
  }
  size_t CountOf(const std::string& text) {
    MutexLock lock(&mutex_);
    return Count(text);
  }
  bool Has(const std::string& text) { return CountOf(text) > 0; }

 private:
  size_t Count(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_t found = 0;
    for (const std::string& known : texts_) found += known.find(text) != std::string::npos ? 1 : 0;
    return found;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
};

constexpr uint64_t kChannel = 7;
constexpr uint64_t kRemoteBase = 0x7f0000001000;

// A link between two nodes with `size` bytes each.
class Pair {
 public:
  Pair(std::unique_ptr<Verbs> here, std::unique_ptr<Verbs> there, size_t size, RdmaOptions options,
       std::shared_ptr<TransferSink> fallback = nullptr)
      : local(std::make_shared<MappedMemory>(size)), remote(std::make_shared<MappedMemory>(size)) {
    workers_ = std::move(*WorkerSet::Start(2, 0));
    options.on_event = [this](const RdmaEvent& event) { events.Add(event); };
    resolver.OpenChannel(kChannel);
    resolver.AddRegion(kRemoteBase, remote, 0, size);
    auto target_options = options;
    target_options.on_event = nullptr;
    there_ = std::move(*RdmaTransport::Create(workers_.get(), target_options, std::move(there)));
    here_ = std::move(*RdmaTransport::Create(workers_.get(), options, std::move(here)));
    target = there_->Serve(&resolver, &to_initiator);
    to_target.Connect([this](const std::string& payload) { target->OnControlMessage(payload); });
    link =
        here_->Connect(*ParseEndpoint("127.0.0.1:1"), RdmaClass{}, std::move(fallback), &to_target);
    to_initiator.Connect([this](const std::string& payload) { link->OnControlMessage(payload); });
  }

  ~Pair() {
    link->Close(NotConnected("test over"), MonotonicNanos());
    CloseTarget();
    to_target.Cut();
    to_initiator.Cut();
    link.reset();
    target.reset();
    here_.reset();
    there_.reset();
  }

  void CloseTarget() {
    std::promise<void> closed;
    target->Close(NotConnected("test over"), [&] { closed.set_value(); });
    closed.get_future().wait();
  }
  void Fence(uint64_t channel) {
    std::promise<void> fenced;
    target->FenceChannel(channel, [&] { fenced.set_value(); });
    fenced.get_future().wait();
  }

  CopyPiece Piece(uint64_t local_offset, uint64_t remote_offset, uint64_t length) {
    CopyPiece piece;
    piece.local = {local.get(), local_offset};
    piece.remote_address = kRemoteBase + remote_offset;
    piece.length = length;
    return piece;
  }

  std::shared_ptr<MappedMemory> local;
  std::shared_ptr<MappedMemory> remote;
  TestResolver resolver;
  EventLog events;
  TestPath to_target;
  TestPath to_initiator;
  std::unique_ptr<TargetLink> target;
  std::unique_ptr<RdmaInitiatorLink> link;
  RdmaTransport& here() { return *here_; }

 private:
  std::unique_ptr<WorkerSet> workers_;
  std::unique_ptr<RdmaTransport> there_;
  std::unique_ptr<RdmaTransport> here_;
};

}  // namespace hixld::rdma::testing
