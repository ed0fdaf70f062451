// Offers memory: server ENGINE host|device BYTES. Prints "ADDRESS SUM", then its memory's sum for
// every line that it reads, and ends with its input.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "memory.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  hixl::Hixl engine;
  if (engine.Initialize(argv[1], {}) != hixl::SUCCESS) {
    std::fprintf(stderr, "%s\n", hixl::HixlExt::LastErrorText());
    return 1;
  }
  Memory memory;
  if (!memory.Register(engine, argv[2], std::strtoull(argv[3], nullptr, 10))) {
    std::fprintf(stderr, "%s\n", hixl::HixlExt::LastErrorText());
    return 1;
  }
  memory.Fill(1);
  std::printf("%" PRIuPTR " %" PRIu64 "\n", memory.address(), memory.Sum());
  std::fflush(stdout);
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c != '\n') continue;
    std::printf("%" PRIu64 "\n", memory.Sum());
    std::fflush(stdout);
  }
  engine.Finalize();
  return 0;
}
