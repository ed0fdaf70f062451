#include "proto/base/socket_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "proto/base/status.h"

namespace hixld {
namespace {

TEST_CASE("the private socket is in the user's runtime directory") {
  const std::string directory = std::getenv("TEST_TMPDIR");
  setenv("XDG_RUNTIME_DIR", directory.c_str(), 1);
  CHECK(PrivateSocketPath() == directory + "/hixld.sock");
  const std::string fallback = "/tmp/hixld-" + std::to_string(geteuid()) + "/hixld.sock";
  for (const char* unusable : {"", "/nonexistent/user/7"}) {
    setenv("XDG_RUNTIME_DIR", unusable, 1);
    CHECK(PrivateSocketPath() == fallback);
  }
  unsetenv("XDG_RUNTIME_DIR");
  CHECK(PrivateSocketPath() == fallback);
}

TEST_CASE("a named socket goes before all others") {
  setenv("HIXLD_SOCKET", "/x/h.sock", 1);
  CHECK(DefaultSocketPath() == "/x/h.sock");
  setenv("HIXLD_SOCKET", "", 1);
  CHECK((DefaultSocketPath() == kSystemSocketPath || DefaultSocketPath() == PrivateSocketPath()));
  unsetenv("HIXLD_SOCKET");
}

TEST_CASE("a socket takes no place but a free one or another socket's") {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/place.sock";
  CHECK(CheckSocketPlace(path).ok());
  std::ofstream(path) << "mine";
  const absl::Status taken = CheckSocketPlace(path);
  CHECK(ApiCodeOf(taken) == ApiCode::kParamInvalid);
  CHECK(ErrorInfoOf(taken).object == path);
  REQUIRE(unlink(path.c_str()) == 0);
  REQUIRE(symlink("/nonexistent", path.c_str()) == 0);
  CHECK_FALSE(CheckSocketPlace(path).ok());
  REQUIRE(unlink(path.c_str()) == 0);
  REQUIRE(mknod(path.c_str(), S_IFSOCK | 0600, 0) == 0);
  CHECK(CheckSocketPlace(path).ok());
}

TEST_CASE("the files beside a socket") {
  CHECK(FdSocketPath("/x/h.sock") == "/x/h.sock.fd");
  CHECK(LockFilePath("/x/h.sock") == "/x/h.sock.lock");
}

}  // namespace
}  // namespace hixld
