// The names under which a session's daemon knows memory files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/session.h"
#include "proto/base/mutex.h"

namespace hixld::client {

// Thread-safe. Hands every file to the daemon once, however many ranges of it are registered.
class FileHandles {
 public:
  explicit FileHandles(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  // The handle of the memfd behind `fd`; PARAM_INVALID when the daemon refuses it.
  absl::StatusOr<uint64_t> Get(int fd);
  // Forgets all: the daemon drops a handle once nothing is registered on it any more.
  void Clear();

 private:
  const std::shared_ptr<Session> session_;
  Mutex mutex_;
  // By device and inode.
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> handles_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
