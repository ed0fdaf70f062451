// Two engines of one process, each on a device of its own: one_process HERE THERE host|device
// host|device read|write. The first engine moves the bytes, once waiting and once not; what has
// arrived is compared. Prints how many bytes.
#include <cstdio>
#include <cstdlib>

#include "memory.h"

namespace {

int Fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, hixl::HixlExt::LastErrorText());
  return 1;
}

bool OnDevice(hixl::Hixl& engine, const char* name, int32_t device) {
  hixl::InitializeExtArgs args;
  args.device_id = device;
  return hixl::HixlExt::Initialize(engine, name, {}, args) == hixl::SUCCESS;
}

bool MoveLater(hixl::Hixl& engine, const char* peer, hixl::TransferOp op,
               const std::vector<hixl::TransferOpDesc>& pieces) {
  hixl::TransferReq request = nullptr;
  if (engine.TransferAsync(peer, op, pieces, {}, request) != hixl::SUCCESS) return false;
  hixl::TransferStatus status = hixl::TransferStatus::WAITING;
  while (status == hixl::TransferStatus::WAITING) {
    if (engine.GetTransferStatus(request, status) != hixl::SUCCESS) return false;
  }
  return status == hixl::TransferStatus::COMPLETED;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  constexpr size_t kBytes = (1U << 20) + 1;
  const bool read = std::strcmp(argv[5], "read") == 0;
  const hixl::TransferOp op = read ? hixl::READ : hixl::WRITE;
  hixl::Hixl here;
  hixl::Hixl there;
  if (!OnDevice(here, argv[1], 0) || !OnDevice(there, argv[2], 1)) return Fail("initialize");
  Memory ours;
  Memory theirs;
  if (!ours.Register(here, argv[3], kBytes) || !theirs.Register(there, argv[4], kBytes)) {
    return Fail("register");
  }
  if (here.Connect(argv[2], 5000) != hixl::SUCCESS) return Fail("connect");
  const Memory& source = read ? theirs : ours;
  const Memory& target = read ? ours : theirs;
  const std::vector<hixl::TransferOpDesc> pieces = {
      {ours.address(), theirs.address(), kBytes / 2},
      {ours.address() + kBytes / 2, theirs.address() + kBytes / 2, kBytes - kBytes / 2}};
  for (const bool later : {false, true}) {
    ours.Fill(later ? 1 : 2);
    theirs.Fill(later ? 3 : 4);
    if (source.Sum() == target.Sum()) return 3;
    if (later ? !MoveLater(here, argv[2], op, pieces)
              : here.TransferSync(argv[2], op, pieces, 10000) != hixl::SUCCESS) {
      return Fail("transfer");
    }
    if (source.Sum() != target.Sum()) return Fail("the bytes differ");
  }
  std::printf("%zu\n", kBytes);
  return 0;
}
