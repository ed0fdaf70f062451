// A daemon inside the test's process: both sockets, real gRPC, bytes moved by memcpy. It offers no
// rings.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/fd.h"
#include "proto/base/mutex.h"
#include "proto/fdchannel/channel.h"
#include "proto/hixl/v1/engine.pb.h"

namespace hixld::testing {

namespace v1 = hixl::v1;

// A directory that is removed with what is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class FakeDaemon {
 public:
  // Serves at `socket` and `socket`.fd until destroyed, which looks like a crash to clients.
  explicit FakeDaemon(const std::string& socket);
  ~FakeDaemon();

  // Called before a call is answered; a status that is not OK is the answer.
  using Hook = std::function<absl::Status(const google::protobuf::Message& request)>;
  void SetHook(Hook hook);

  // How often each request type came, by short name ("ConnectRequest").
  int Count(const std::string& request) const;
  size_t sessions() const;
  size_t engines() const;
  size_t regions() const;
  size_t channels() const;
  size_t buffers() const;
  std::vector<v1::MemoryRegistration> registrations() const;
  v1::OpenEngineRequest last_open() const;

  // Sends a copy command for the arena to the newest session and waits for its answer.
  hixl::fdchannel::v1::CopyDone Copy(bool to_arena, uint64_t client_address, uint64_t arena_offset,
                                     uint64_t length);
  std::byte* arena() const { return arena_.data(); }
  uint64_t probed_sessions() const;

 private:
  struct Session {
    UniqueFd fd;
    std::string token;
    std::thread thread;
  };
  struct Engine {
    std::string id;
    std::string token;
    std::map<uint64_t, v1::MemoryRegistration> regions;
    std::set<std::string> channels;
    std::vector<v1::ReceivedNotify> notifies;
  };
  class Service;

  absl::Status Begin(const google::protobuf::Message& request, const std::string& token);
  void Accept();
  void Serve(Session* session);
  void Answer(Session* session, FdPacket packet);
  void EndSession(const std::string& token);
  Engine* FindEngine(uint64_t handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Move(uint64_t engine_handle, const std::string& remote, v1::TransferOp op,
                    const v1::TransferBatch& batch);

  const std::string socket_;
  UniqueFd arena_fd_;
  Mapping arena_;
  UniqueFd listener_;
  mutable Mutex mutex_;
  CondVar copied_;
  bool stopping_ = false;
  Hook hook_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> tokens_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Engine> engines_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::pair<v1::TransferState, std::string>> transfers_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> buffers_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, hixl::fdchannel::v1::CopyDone> copies_ ABSL_GUARDED_BY(mutex_);
  v1::OpenEngineRequest last_open_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 100;
  uint64_t probed_sessions_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Service> service_;
  std::thread acceptor_;
};

}  // namespace hixld::testing
