// Memory files handed to the daemon for the time of one registration.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "client/cpp/session.h"

namespace hixld::client {

// Hands every file over once, however many ranges of it are registered, and drops the handles
// when destroyed: registered regions keep the memory by themselves. Not thread-safe.
class FileHandles {
 public:
  explicit FileHandles(Session* session) : session_(session) {}
  ~FileHandles();
  FileHandles(const FileHandles&) = delete;
  FileHandles& operator=(const FileHandles&) = delete;

  // The handle of the memfd behind `fd`; PARAM_INVALID when the daemon refuses it.
  absl::StatusOr<uint64_t> Get(int fd);

 private:
  Session* const session_;
  // By device and inode.
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> handles_;
};

}  // namespace hixld::client
