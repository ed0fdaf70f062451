// All engines of the daemon: by session for their owners, by address for those who connect.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/engine/engine.h"
#include "daemon/session/session.h"
#include "proto/base/mutex.h"

namespace hixld {

struct OpenEngineArgs {
  std::string local_engine;
  std::map<std::string, std::string> options;
  EngineProfile profile;
  bool listen_on_any_port = false;
  int32_t device_id = 0;
};

class EngineRegistry : public SessionObserver, public ChannelHost, public EngineDirectory {
 public:
  // `context` outlives the registry and gets it as its directory.
  explicit EngineRegistry(EngineContext* context);
  ~EngineRegistry() override;

  // PARAM_INVALID for bad options or a bad id, FAILED when the port is taken (by whom, if it is an
  // engine of this daemon). Where the holder of the id is just closing, waits for it.
  void Open(std::shared_ptr<Session> session, OpenEngineArgs args,
            absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Engine>>)> done);
  // FAILED: unknown, or another session's.
  absl::StatusOr<std::shared_ptr<Engine>> Find(uint64_t session_id, uint64_t handle) const;
  void Close(const std::shared_ptr<Engine>& engine, absl::string_view reason,
             absl::AnyInvocable<void()> closed);
  // Closes all; `closed` runs when all have.
  void CloseAll(absl::string_view reason, absl::AnyInvocable<void()> closed);

  // The product of a device; nothing is known of a device that is not there.
  Product ProductOf(int32_t device_id) const;
  // Of the devices that are there, ascending.
  std::vector<int32_t> DeviceIds() const;

  std::vector<std::shared_ptr<Engine>> All() const;
  // Regions that the session has in engines other than `except`.
  uint64_t RegionsOfSession(uint64_t session_id, const Engine* except) const;

  void OnSessionEnd(uint64_t session_id, absl::AnyInvocable<void()> released) override;
  absl::StatusOr<std::shared_ptr<InboundChannel>> AcceptChannel(
      const InboundRequest& request, std::shared_ptr<InboundHandle> handle) override;
  std::shared_ptr<Engine> FindListening(const Endpoint& endpoint) override;

 private:
  // The engine that holds the id; it may be closing.
  std::shared_ptr<Engine> Holder(const std::string& address) const;
  absl::Status Insert(const std::shared_ptr<Engine>& engine, const std::string& address);
  void Create(const std::shared_ptr<Session>& session, OpenEngineArgs args, EngineOptions options,
              const Endpoint& endpoint,
              absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Engine>>)> done);
  void CloseThese(std::vector<std::shared_ptr<Engine>> engines, absl::string_view reason,
                  absl::AnyInvocable<void()> closed);

  EngineContext* const context_;
  std::atomic<uint64_t> next_handle_{1};
  mutable Mutex mutex_;  // guards what follows; nothing is called under it
  std::map<uint64_t, std::shared_ptr<Engine>> engines_ ABSL_GUARDED_BY(mutex_);
  // Those that listen, by their canonical address, until their port is free again.
  std::map<std::string, std::shared_ptr<Engine>> listening_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hixld
