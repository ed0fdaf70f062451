#include "proto/base/memfd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  return "an anonymous inode";
}

absl::Status BadMemoryFd(absl::string_view reason) {
  return ParamInvalid(absl::StrCat("memory descriptor refused: ", reason),
                      {.object = "memory descriptor",
                       .allowed = "a memfd with F_SEAL_SHRINK, at least as long as stated"});
}

}  // namespace

absl::StatusOr<UniqueFd> CreateSealedMemfd(absl::string_view name, size_t size, bool huge_pages) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0U);
  UniqueFd fd(memfd_create(std::string(name).c_str(), flags));
  if (!fd.valid()) return ErrnoError(errno, absl::StrCat("memfd_create ", name));
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return ErrnoError(errno, absl::StrCat("resize memfd ", name, " to ", size, " bytes"));
  }
  // Pages are reserved now, so that a shortage is an error here and never a SIGBUS later.
  if (huge_pages && fallocate(fd.get(), 0, 0, static_cast<off_t>(size)) != 0) {
    return ResourceExhausted(absl::StrCat("no ", size, " bytes of free huge pages for ", name),
                             {.object = std::string(name), .option = "vm.nr_hugepages"});
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoError(errno, absl::StrCat("seal memfd ", name));
  }
  return fd;
}

absl::StatusOr<size_t> CheckSharedMemfd(int fd, size_t min_size) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoError(errno, "fstat of a memory descriptor");
  if (!S_ISREG(st.st_mode)) return BadMemoryFd(absl::StrCat("it is ", KindOf(st.st_mode)));
  struct statfs fs;
  if (fstatfs(fd, &fs) != 0) return ErrnoError(errno, "fstatfs of a memory descriptor");
  if (fs.f_type == HUGETLBFS_MAGIC) return BadMemoryFd("it is backed by huge pages");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return BadMemoryFd("it is a file, not a memfd");
  if ((seals & F_SEAL_SHRINK) == 0) return BadMemoryFd("it is not sealed against shrinking");
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
    return BadMemoryFd("it is sealed against writing");
  }
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) return BadMemoryFd("it is not open for writing");
  const size_t size = static_cast<size_t>(st.st_size);
  if (size < min_size) {
    return BadMemoryFd(absl::StrCat("it has ", size, " bytes, ", min_size, " were stated"));
  }
  return size;
}

absl::StatusOr<Mapping> MapShared(int fd, size_t offset, size_t size, bool writable) {
  void* data = mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd,
                    static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    return ErrnoError(errno, absl::StrCat("map ", size, " bytes of a memory descriptor"));
  }
  return Mapping(data, size);
}

}  // namespace hixld
