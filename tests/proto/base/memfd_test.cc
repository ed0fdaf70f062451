#include "proto/base/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "proto/base/status.h"

namespace hixld {
namespace {

void CheckRefused(int fd, const char* reason, size_t size = 4096) {
  const auto status = CheckSharedMemfd(fd, size).status();
  CHECK(ApiCodeOf(status) == ApiCode::kParamInvalid);
  CAPTURE(std::string(status.message()));
  CHECK(std::string(status.message()).find(reason) != std::string::npos);
}

UniqueFd PlainMemfd(unsigned seals) {
  UniqueFd fd(memfd_create("t", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), 4096) == 0);
  if (seals != 0) REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

}  // namespace

TEST_CASE("a sealed memfd is shared, cannot change its size and passes the check") {
  auto fd = CreateSealedMemfd("t", 8192);
  REQUIRE(fd.ok());
  CHECK(ftruncate(fd->get(), 4096) != 0);
  CHECK(ftruncate(fd->get(), 16384) != 0);
  CHECK(*CheckSharedMemfd(fd->get(), 8192) == 8192);
  auto one = MapShared(fd->get(), 0, 8192);
  auto two = MapShared(fd->get(), 4096, 4096, /*writable=*/false);
  REQUIRE(one.ok());
  REQUIRE(two.ok());
  memcpy(one->data() + 4096, "seen", 5);
  CHECK(memcmp(two->data(), "seen", 5) == 0);
}

TEST_CASE("descriptors that could hurt later are refused by name") {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const UniqueFd reader(pipes[0]);
  const UniqueFd writer(pipes[1]);
  CheckRefused(reader.get(), "a pipe");
  const UniqueFd directory(open("/", O_RDONLY | O_DIRECTORY));
  CheckRefused(directory.get(), "a directory");
  const UniqueFd null(open("/dev/null", O_RDWR));
  CheckRefused(null.get(), "a character device");
  const UniqueFd sock(socket(AF_UNIX, SOCK_STREAM, 0));
  CheckRefused(sock.get(), "a socket");
  const UniqueFd file(open("/proc/self/exe", O_RDONLY));
  CheckRefused(file.get(), "a file, not a memfd");
  CheckRefused(PlainMemfd(0).get(), "not sealed against shrinking");
  CheckRefused(PlainMemfd(F_SEAL_SHRINK).get(), "8192 were stated", 8192);
  CheckRefused(PlainMemfd(F_SEAL_SHRINK | F_SEAL_WRITE).get(), "sealed against writing");
  const UniqueFd memfd = PlainMemfd(F_SEAL_SHRINK);
  const UniqueFd read_only(
      open(("/proc/self/fd/" + std::to_string(memfd.get())).c_str(), O_RDONLY));
  REQUIRE(read_only.valid());
  CheckRefused(read_only.get(), "not open for writing");
}

}  // namespace hixld
