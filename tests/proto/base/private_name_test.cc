#include "proto/base/private_name.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "proto/base/fd.h"
#include "tests/test_directory.h"

namespace hixld {
namespace {

namespace fs = std::filesystem;

using testing::TestDirectory;

size_t Entries(const TestDirectory& directory) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()));
}

void MakeFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
  REQUIRE(fd.valid());
}

void MakeSocket(const std::string& path) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
}

TEST_CASE("somebody's file is never replaced") {
  const TestDirectory directory;
  const std::string path = directory.path() + "/data";
  SECTION("that was there before") {
    MakeFile(path);
    CHECK_THAT(std::string(PrivateName::Beside(path).status().message()), Catch::Contains(path));
  }
  SECTION("that comes later") {
    auto temporary = PrivateName::Beside(path);
    REQUIRE(temporary.ok());
    MakeSocket(temporary->name());
    MakeFile(path);
    CHECK_FALSE(temporary->Publish(0640, static_cast<gid_t>(-1)).ok());
  }
  SECTION("that is behind a link") {
    MakeFile(directory.path() + "/other");
    REQUIRE(symlink((directory.path() + "/other").c_str(), path.c_str()) == 0);
    CHECK_FALSE(PrivateName::Beside(path).ok());
  }
  CHECK(fs::exists(path));
}

TEST_CASE("a published file has its mode and replaces a socket that was there") {
  const TestDirectory directory;
  const std::string path = directory.path() + "/socket";
  MakeSocket(path);
  {
    auto temporary = PrivateName::Beside(path);
    REQUIRE(temporary.ok());
    struct stat parent {};
    REQUIRE(stat(fs::path(temporary->name()).parent_path().c_str(), &parent) == 0);
    CHECK((parent.st_mode & 0777) == 0700);
    MakeFile(temporary->name());
    REQUIRE(temporary->Publish(0640, static_cast<gid_t>(-1)).ok());
  }
  struct stat published {};
  REQUIRE(stat(path.c_str(), &published) == 0);
  CHECK((published.st_mode & 0777) == 0640);
  CHECK(Entries(directory) == 1);
}

TEST_CASE("what is not published leaves nothing") {
  const TestDirectory directory;
  {
    auto temporary = PrivateName::Beside(directory.path() + "/socket");
    REQUIRE(temporary.ok());
    MakeFile(temporary->name());
    const PrivateName moved = *std::move(temporary);
    CHECK(fs::exists(moved.name()));
  }
  CHECK(Entries(directory) == 0);
}

TEST_CASE("a missing directory and a missing file are named") {
  const TestDirectory directory;
  const std::string nowhere = directory.path() + "/none/socket";
  const auto none = PrivateName::Beside(nowhere);
  REQUIRE_FALSE(none.ok());
  CHECK_THAT(std::string(none.status().message()), Catch::Contains(nowhere));

  const std::string path = directory.path() + "/socket";
  auto empty = PrivateName::Beside(path);
  REQUIRE(empty.ok());
  const absl::Status status = empty->Publish(0600, static_cast<gid_t>(-1));
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), Catch::Contains(path));
  CHECK_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace hixld
