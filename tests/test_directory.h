// A directory of a test's own.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <system_error>

namespace hixld::testing {

// Removed with all that is in it.
class TestDirectory {
 public:
  TestDirectory() {
    std::string path = "/tmp/hixld-test.XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string socket() const { return path_ + "/hixld.sock"; }

 private:
  std::string path_;
};

}  // namespace hixld::testing
