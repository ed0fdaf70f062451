// Old and new names in one process: one implementation and one session behind both.
#include <cstdio>
#include <cstring>
#include <vector>

#include "adxl/adxl_engine.h"
#include "hixl/hixl.h"
#include "hixl/hixl_ext.h"

namespace {

int failures = 0;

void Expect(bool held, const char* what) {
  if (held) return;
  std::printf("not so: %s\n", what);
  ++failures;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  adxl::AdxlEngine older;
  hixl::Hixl newer;
  Expect(older.Initialize(argv[1], {}) == adxl::SUCCESS, "the adxl engine initialises");
  Expect(newer.Initialize(argv[2], {}) == hixl::SUCCESS, "the hixl engine initialises");
  std::vector<char> local(4096, 0);
  std::vector<char> remote(4096, 3);
  adxl::MemDesc mine{};
  mine.addr = reinterpret_cast<uintptr_t>(local.data());
  mine.len = local.size();
  adxl::MemHandle handle = nullptr;
  Expect(older.RegisterMem(mine, adxl::MEM_HOST, handle) == adxl::SUCCESS, "it registers");
  hixl::MemDesc theirs{};
  theirs.addr = reinterpret_cast<uintptr_t>(remote.data());
  theirs.len = remote.size();
  hixl::MemHandle other = nullptr;
  Expect(newer.RegisterMem(theirs, hixl::MEM_HOST, other) == hixl::SUCCESS, "so does the other");
  Expect(older.Connect(argv[2]) == adxl::SUCCESS, "they link");
  Expect(older.TransferSync(argv[2], adxl::READ, {{mine.addr, theirs.addr, 4096}}) == adxl::SUCCESS,
         "they transfer");
  Expect(std::memcmp(local.data(), remote.data(), 4096) == 0, "the bytes are there");
  // The error of a call through one library is told by the other.
  Expect(older.Connect(argv[2], -1) == adxl::PARAM_INVALID, "a bad timeout");
  Expect(hixl::HixlExt::LastError().code == hixl::PARAM_INVALID, "is this thread's last error");
  // A handle of one engine means nothing to the other.
  Expect(newer.DeregisterMem(handle) == hixl::SUCCESS, "an unknown handle is ignored");
  Expect(older.DeregisterMem(handle) == adxl::SUCCESS, "its own engine knows it");
  std::printf("%s\n", failures == 0 ? "every check held" : "some checks failed");
  std::fflush(stdout);
  std::getchar();  // until whoever started this has looked
  return failures;
}
