#include "daemon/session/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/base/socket_path.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

// The holder removes the file when it ends, maybe between our open and our flock: then the lock is
// on a file that nobody else will find.
bool StillAt(const std::string& path, int fd) {
  struct stat by_path, by_fd;
  return stat(path.c_str(), &by_path) == 0 && fstat(fd, &by_fd) == 0 &&
         by_path.st_dev == by_fd.st_dev && by_path.st_ino == by_fd.st_ino;
}

absl::Status AlreadyRunning(const std::string& path, int fd) {
  char text[32] = {};
  const ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
  const long pid = size > 0 ? strtol(text, nullptr, 10) : 0;
  // The holder writes its pid right after it has the lock; in between the file is empty.
  return absl::AlreadyExistsError(absl::StrCat(kAlreadyRunning, ", pid ",
                                               pid > 0 ? absl::StrCat(pid) : std::string("unknown"),
                                               " (it holds ", path, ")"));
}

// What is no pid in a line, or nothing, was not left by a daemon.
absl::Status CheckOurs(const std::string& path, int fd) {
  char text[32];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  if (size < 0) return ErrnoError(errno, absl::StrCat("read ", path), {.object = path});
  const absl::string_view content(text, static_cast<size_t>(size));
  const bool ours = content.empty() ||
                    (content.size() < sizeof(text) && content.back() == '\n' &&
                     absl::c_all_of(content.substr(0, content.size() - 1), absl::ascii_isdigit));
  if (ours) return absl::OkStatus();
  return ParamInvalid(
      absl::StrCat(path, " exists and is no lock file of hixld; it is left as it is"),
      {.object = path, .option = "socket.path", .allowed = "a path that is free"});
}

absl::Status WritePid(const std::string& path, int fd) {
  const std::string text = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return ErrnoError(errno, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LockFile> LockFile::Acquire(const std::string& path) {
  while (true) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) {
      return ErrnoError(errno, absl::StrCat("open ", path), {.object = path});
    }
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) return AlreadyRunning(path, fd.get());
      return ErrnoError(errno, absl::StrCat("lock ", path), {.object = path});
    }
    if (!StillAt(path, fd.get())) continue;
    HIXLD_RETURN_IF_ERROR(CheckOurs(path, fd.get()));
    HIXLD_RETURN_IF_ERROR(WritePid(path, fd.get()));
    return LockFile(path, std::move(fd));
  }
}

LockFile::~LockFile() {
  if (fd_.valid()) unlink(path_.c_str());
}

}  // namespace hixld
