#include "daemon/memory/mapped_access.h"

#include <catch2/catch.hpp>
#include <cstring>

namespace hixld {
namespace {

TEST_CASE("mapped memory is copied on the caller's thread") {
  auto memory = std::make_shared<std::vector<std::byte>>(64);
  MappedAccess access(memory->data(), memory->size(), memory, "test memory");
  CHECK(access.kind() == MemoryAccess::Kind::kMapped);
  CHECK(access.mapped() == memory->data());
  CHECK(access.description() == "test memory");

  std::byte in[8];
  memset(in, 7, sizeof(in));
  bool written = false;
  access.Write({{.offset = 0, .host = in, .length = 4}, {.offset = 60, .host = in, .length = 4}},
               [&written](absl::Status status) { written = status.ok(); });
  CHECK(written);
  CHECK((*memory)[3] == std::byte{7});
  CHECK((*memory)[4] == std::byte{0});
  CHECK((*memory)[63] == std::byte{7});

  std::byte out[4] = {};
  bool read = false;
  access.Read({{.offset = 58, .host = out, .length = 4}},
              [&read](absl::Status status) { read = status.ok(); });
  CHECK(read);
  CHECK(out[1] == std::byte{0});
  CHECK(out[2] == std::byte{7});
}

TEST_CASE("the access keeps its owner") {
  auto owner = std::make_shared<std::byte>();
  std::weak_ptr<std::byte> watch = owner;
  auto access = std::make_unique<MappedAccess>(owner.get(), 1, owner, "one byte");
  owner.reset();
  CHECK(!watch.expired());
  access.reset();
  CHECK(watch.expired());
}

}  // namespace
}  // namespace hixld
