#include "daemon/memory/process_memory.h"

#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <numeric>

#include "proto/base/status.h"

namespace hixld {
namespace {

// Somewhat more than one step of a copy.
constexpr size_t kPages = 1100;
constexpr size_t kBytes = kPages * 4096;

// A forked child with a private copy of `memory`, which lives until the object dies.
class Child {
 public:
  // `prepare` runs in the child before it announces itself.
  explicit Child(void (*prepare)() = [] {}) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prepare();
      if (write(ready[1], "x", 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    REQUIRE(pidfd_ >= 0);
  }
  ~Child() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }
  std::shared_ptr<ProcessTarget> Target(uid_t uid = getuid(), gid_t gid = getgid()) {
    return std::make_shared<ProcessTarget>(pid_, uid, gid, UniqueFd(std::exchange(pidfd_, -1)));
  }

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
};

Mapping PrivatePages() {
  void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(data != MAP_FAILED);
  return Mapping(data, kBytes);
}

absl::Status Run(MemoryAccess* access, bool read, std::vector<MemoryAccess::Slice> slices) {
  std::promise<absl::Status> promise;
  auto done = [&promise](absl::Status status) { promise.set_value(std::move(status)); };
  if (read) {
    access->Read(std::move(slices), done);
  } else {
    access->Write(std::move(slices), done);
  }
  return promise.get_future().get();
}

uint64_t AddressOf(const Mapping& mapping) { return reinterpret_cast<uint64_t>(mapping.data()); }

TEST_CASE("plain memory of another process is read and written") {
  Mapping pages = PrivatePages();
  for (size_t i = 0; i < kBytes; ++i) pages.data()[i] = static_cast<std::byte>(i * 31 >> 3);
  Child child;
  Executor executor(Executor::Options{});
  ProcessAccess access(child.Target(), &executor, 1, AddressOf(pages), kBytes);
  CHECK(access.mapped() == nullptr);
  CHECK(access.kind() == MemoryAccess::Kind::kProcess);

  // More slices than one system call takes, of odd sizes, one of them larger than a step.
  std::vector<std::byte> host(kBytes);
  std::vector<MemoryAccess::Slice> slices;
  uint64_t at = 0;
  for (size_t i = 0; i < 3 * IOV_MAX; ++i) {
    const uint64_t length = i % 7;
    slices.push_back({.offset = at, .host = host.data() + at, .length = length});
    at += length;
  }
  slices.push_back({.offset = at, .host = host.data() + at, .length = kBytes - at});
  REQUIRE(Run(&access, true, slices).ok());
  CHECK(memcmp(host.data(), pages.data(), kBytes) == 0);

  std::vector<std::byte> other(kBytes);
  for (size_t i = 0; i < kBytes; ++i) other[i] = static_cast<std::byte>(i * 7 >> 2);
  for (auto& slice : slices) slice.host = other.data() + slice.offset;
  REQUIRE(Run(&access, false, slices).ok());
  REQUIRE(Run(&access, true, {{.offset = 0, .host = host.data(), .length = kBytes}}).ok());
  CHECK(host == other);
  CHECK(Run(&access, true, {}).ok());
}

TEST_CASE("memory that is not there fails with pid and address") {
  Mapping pages = PrivatePages();
  // The second half is taken away in the child only.
  static std::byte* half;
  half = pages.data() + kBytes / 2;
  Child child([] { munmap(half, kBytes / 2); });
  Executor executor(Executor::Options{});
  ProcessAccess access(child.Target(), &executor, 1, AddressOf(pages), kBytes);
  std::vector<std::byte> host(kBytes);
  for (const bool read : {true, false}) {
    const absl::Status status =
        Run(&access, read, {{.offset = 0, .host = host.data(), .length = kBytes}});
    CHECK(ApiCodeOf(status) == ApiCode::kFailed);
    CHECK_THAT(
        std::string(status.message()),
        Catch::Contains("pid " + std::to_string(child.pid())) && Catch::Contains("no such memory"));
  }
  ProcessAccess low(child.Target(), &executor, 1, 1234, 10);
  CHECK(!Run(&low, true, {{.offset = 0, .host = host.data(), .length = 10}}).ok());
}

TEST_CASE("a process that has ended is out of reach") {
  Mapping pages = PrivatePages();
  Child child;
  auto target = child.Target();
  CHECK(target->alive());
  child.Kill();
  CHECK(!target->alive());
  Executor executor(Executor::Options{});
  ProcessAccess access(target, &executor, 1, AddressOf(pages), kBytes);
  std::byte byte;
  const absl::Status status = Run(&access, true, {{.offset = 0, .host = &byte, .length = 1}});
  CHECK_THAT(std::string(status.message()), Catch::Contains("has ended"));
}

TEST_CASE("a process that guards its memory is out of reach, whatever rights the daemon has") {
  if (getuid() != 0) return;
  Mapping pages = PrivatePages();
  constexpr uid_t kNobody = 65534;
  const auto become_nobody = [] {
    if (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0) {
      _exit(1);
    }
  };
  Executor executor(Executor::Options{});
  std::byte byte;
  const std::vector<MemoryAccess::Slice> slices = {{.offset = 0, .host = &byte, .length = 1}};
  {
    Child child([] {
      if (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0) {
        _exit(1);
      }
      prctl(PR_SET_DUMPABLE, 1);
    });
    ProcessAccess access(child.Target(kNobody, kNobody), &executor, 1, AddressOf(pages), kBytes);
    CHECK(Run(&access, true, slices).ok());
  }
  {
    // As after the exec of a program with more rights.
    Child child(+become_nobody);
    prctl(PR_SET_DUMPABLE, 1);
    ProcessAccess access(child.Target(kNobody, kNobody), &executor, 1, AddressOf(pages), kBytes);
    const absl::Status status = Run(&access, true, slices);
    CHECK_THAT(std::string(status.message()), Catch::Contains("not permitted"));
  }
  {
    // The process has turned into another user's.
    Child child;
    ProcessAccess access(child.Target(kNobody, kNobody), &executor, 1, AddressOf(pages), kBytes);
    CHECK(!Run(&access, true, slices).ok());
  }
  // The copy thread is root again.
  Child child;
  ProcessAccess access(child.Target(), &executor, 1, AddressOf(pages), kBytes);
  CHECK(Run(&access, true, slices).ok());
}

}  // namespace
}  // namespace hixld
