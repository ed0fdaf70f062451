// This process's tie to one daemon across sessions: opens them, starts a private daemon where none
// is, and brings engines back when a daemon was replaced. See docs/client.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/buffer_pool.h"
#include "client/cpp/daemon_address.h"
#include "client/cpp/session.h"
#include "proto/base/mutex.h"

namespace hixld::client {

// Something that has state in the daemon which a new session lacks.
class Recoverable {
 public:
  virtual ~Recoverable() = default;
  // Puts it there again; false = try again later. Called on the connection's own thread.
  virtual bool Recover() = 0;
};

// Thread-safe. Shared by the engines and buffers of one process; with the last of them the session
// ends.
class Connection {
 public:
  // The one for this daemon. Cheap: nothing is opened.
  static std::shared_ptr<Connection> Get(const DaemonAddress& address);
  ~Connection();

  enum class Start { kAllowed, kForbidden };
  // The living session, or a new one. FAILED says what is wrong when there is none. Who once was
  // served by a daemon that somebody else runs waits for that one to come back instead of starting
  // a private one in its place.
  absl::StatusOr<std::shared_ptr<Session>> Acquire(Start start);

  // Between the two, Recover is called after every loss of a session. Withdraw waits for a
  // call in progress.
  void Enroll(Recoverable* recoverable);
  void Withdraw(Recoverable* recoverable);

  const DaemonAddress& address() const { return address_; }
  BufferIndex& buffers() { return buffers_; }

 private:
  explicit Connection(DaemonAddress address);
  absl::StatusOr<std::shared_ptr<Session>> OpenSession(Start start);
  absl::StatusOr<std::shared_ptr<Session>> StartAndOpen();
  // Opens a session with a daemon that somebody else has started and that may not listen yet;
  // `reason` is what is said when it never does.
  absl::StatusOr<std::shared_ptr<Session>> AwaitOther(absl::string_view reason, int64_t deadline);
  absl::StatusOr<std::shared_ptr<Session>> TryOpen(int64_t deadline);
  std::shared_ptr<Session> Living();
  bool MayStart();
  void RecoverLoop();
  bool AwaitLoss();
  bool RecoverAll();

  // What a session that ends tells the recovery thread; outlives both.
  struct Loss {
    Mutex mutex;
    CondVar changed;
    bool lost ABSL_GUARDED_BY(mutex) = false;
    bool stopping ABSL_GUARDED_BY(mutex) = false;
  };

  const DaemonAddress address_;
  BufferIndex buffers_;
  const std::shared_ptr<Loss> loss_ = std::make_shared<Loss>();

  // One opener at a time.
  Mutex opening_mutex_;
  // Guards the current session.
  Mutex session_mutex_ ABSL_ACQUIRED_AFTER(opening_mutex_);
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(session_mutex_);
  // The last session was with a private daemon, or there was none yet.
  bool private_daemon_ ABSL_GUARDED_BY(session_mutex_) = true;

  // Guards who is to be recovered and who is being recovered now.
  Mutex enrolled_mutex_;
  CondVar recovered_;
  std::set<Recoverable*> enrolled_ ABSL_GUARDED_BY(enrolled_mutex_);
  Recoverable* recovering_ ABSL_GUARDED_BY(enrolled_mutex_) = nullptr;

  std::thread recovery_;
};

}  // namespace hixld::client
