// Reads or writes a server's memory: client PEER ADDRESS BYTES host|device read|write. In 64
// pieces, and once more with TransferAsync. Prints its memory's sum.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "memory.h"

namespace {

int Fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, hixl::HixlExt::LastErrorText());
  return 1;
}

bool Wait(hixl::Hixl& engine, const hixl::TransferReq& request) {
  hixl::TransferStatus status = hixl::TransferStatus::WAITING;
  while (status == hixl::TransferStatus::WAITING) {
    if (engine.GetTransferStatus(request, status) != hixl::SUCCESS) return false;
  }
  return status == hixl::TransferStatus::COMPLETED;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const char* peer = argv[1];
  const uintptr_t remote = std::strtoull(argv[2], nullptr, 10);
  const size_t bytes = std::strtoull(argv[3], nullptr, 10);
  const hixl::TransferOp op = std::strcmp(argv[5], "read") == 0 ? hixl::READ : hixl::WRITE;
  hixl::Hixl engine;
  if (engine.Initialize("127.0.0.1", {}) != hixl::SUCCESS) return Fail("initialize");
  Memory memory;
  if (!memory.Register(engine, argv[4], bytes)) return Fail("register");
  memory.Fill(2);
  if (engine.Connect(peer, 5000) != hixl::SUCCESS) return Fail("connect");
  std::vector<hixl::TransferOpDesc> pieces;
  const size_t piece = (bytes + 63) / 64;
  for (size_t at = 0; at < bytes; at += piece) {
    pieces.push_back({memory.address() + at, remote + at, piece < bytes - at ? piece : bytes - at});
  }
  if (engine.TransferSync(peer, op, pieces, 10000) != hixl::SUCCESS) return Fail("transfer");
  hixl::TransferReq request = nullptr;
  if (engine.TransferAsync(peer, op, pieces, {}, request) != hixl::SUCCESS) return Fail("submit");
  if (!Wait(engine, request)) return Fail("wait");
  std::printf("%" PRIu64 "\n", memory.Sum());
  if (engine.Disconnect(peer) != hixl::SUCCESS) return Fail("disconnect");
  engine.Finalize();
  return 0;
}
