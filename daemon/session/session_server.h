// The door of the daemon: accepts fd channels and keeps the sessions that they tie.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/lock_file.h"
#include "daemon/session/session.h"
#include "daemon/session/session_options.h"

namespace hixld {

// How a session lives and ends: docs/design/session-life.md. Thread-safe.
class SessionServer : public SessionRegistry {
 public:
  // Takes the lock PATH.lock. kAlreadyExists, "already running, pid N", when another daemon has it.
  static absl::StatusOr<std::unique_ptr<SessionServer>> Create(SessionServerOptions options,
                                                               SessionResources resources);
  // Shuts down, if Shutdown was not called, and gives up the lock.
  ~SessionServer() override;

  // Before Listen. The observer outlives the server.
  void AddObserver(SessionObserver* observer);
  // Starts to accept at PATH.fd; a stale socket there is replaced.
  absl::Status Listen();
  // Accepts no more, ends every session and waits until all are released or `deadline_ns`
  // (CLOCK_MONOTONIC) has passed; returns whether all are. Pool memory keeps its contents, so that
  // clients can go on with their mappings. Not from the loop or a control thread.
  bool Shutdown(const std::string& reason, int64_t deadline_ns);

  absl::StatusOr<std::shared_ptr<Session>> Find(absl::string_view token) override;
  std::vector<SessionDescription> List() const override;
  size_t size() const override;
  // The bytes that Welcome calls incarnation.
  const std::string& incarnation() const;

 private:
  class Core;
  SessionServer(LockFile lock, std::shared_ptr<Core> core);
  // Given up last.
  const LockFile lock_;
  const std::shared_ptr<Core> core_;
};

}  // namespace hixld
