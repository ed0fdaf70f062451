// Two engines in one process, through the public headers alone: what a first program does.
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "hixl/hixl.h"

namespace {

int failures = 0;

void Expect(bool held, const char* what) {
  if (held) return;
  std::printf("not so: %s\n", what);
  ++failures;
}

constexpr size_t kBytes = 1U << 20;

void CheckRefusals(hixl::Hixl& engine, const char* self) {
  hixl::MemHandle handle = nullptr;
  hixl::MemDesc null_memory{};
  null_memory.len = 16;
  Expect(engine.RegisterMem(null_memory, hixl::MEM_HOST, handle) == hixl::PARAM_INVALID,
         "a null address is PARAM_INVALID");
  Expect(engine.DeregisterMem(nullptr) == hixl::PARAM_INVALID, "a null handle is PARAM_INVALID");
  Expect(engine.DeregisterMem(reinterpret_cast<hixl::MemHandle>(0x100)) == hixl::SUCCESS,
         "an unknown handle is ignored");
  Expect(engine.Connect(self) == hixl::PARAM_INVALID, "a self connect is PARAM_INVALID");
  hixl::TransferStatus status = hixl::TransferStatus::WAITING;
  Expect(engine.GetTransferStatus(nullptr, status) == hixl::FAILED, "a null request is FAILED");
  Expect(engine.Initialize("ad.0.0.1:26200", {}) == hixl::PARAM_INVALID,
         "a malformed address is PARAM_INVALID even on a live engine");
}

void CheckTransfers(hixl::Hixl& here, const char* there, std::vector<char>& local,
                    std::vector<char>& remote) {
  hixl::TransferOpDesc piece{reinterpret_cast<uintptr_t>(local.data()),
                             reinterpret_cast<uintptr_t>(remote.data()), kBytes};
  Expect(here.TransferSync(there, hixl::READ, {piece}) == hixl::NOT_CONNECTED,
         "a transfer before Connect is NOT_CONNECTED");
  Expect(here.Connect(there) == hixl::SUCCESS, "Connect succeeds");
  Expect(here.Connect(there) == hixl::ALREADY_CONNECTED, "a second one is ALREADY_CONNECTED");
  Expect(here.TransferSync(there, hixl::READ, {piece}, 5000) == hixl::SUCCESS, "READ succeeds");
  Expect(std::memcmp(local.data(), remote.data(), kBytes) == 0, "READ brought the bytes");

  std::memset(local.data(), 9, kBytes);
  hixl::TransferReq request = nullptr;
  Expect(here.TransferAsync(there, hixl::WRITE, {piece}, {}, request) == hixl::SUCCESS,
         "TransferAsync is accepted");
  Expect(request != nullptr, "it gives a request");
  hixl::TransferStatus status = hixl::TransferStatus::WAITING;
  while (status == hixl::TransferStatus::WAITING &&
         here.GetTransferStatus(request, status) == hixl::SUCCESS) {
  }
  Expect(status == hixl::TransferStatus::COMPLETED, "it completes");
  Expect(remote[kBytes - 1] == 9, "WRITE put the bytes there");
  Expect(here.GetTransferStatus(request, status) == hixl::PARAM_INVALID, "its end is told once");
  Expect(here.Disconnect(there) == hixl::SUCCESS, "Disconnect succeeds");
  Expect(here.Disconnect(there) == hixl::NOT_CONNECTED, "a second one is NOT_CONNECTED");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  hixl::Hixl here;
  hixl::Hixl there;
  const std::map<hixl::AscendString, hixl::AscendString> options = {
      {hixl::OPTION_BUFFER_POOL, "0:0"}};
  Expect(here.Connect(argv[2]) == hixl::FAILED, "calls before Initialize are FAILED");
  Expect(here.Initialize(argv[1], options) == hixl::SUCCESS, "the first engine initialises");
  Expect(there.Initialize(argv[2], {}) == hixl::SUCCESS, "the second engine initialises");

  std::vector<char> local(kBytes, 0);
  std::vector<char> remote(kBytes, 5);
  hixl::MemDesc memory{};
  memory.addr = reinterpret_cast<uintptr_t>(local.data());
  memory.len = kBytes;
  hixl::MemHandle handle = nullptr;
  hixl::MemHandle again = nullptr;
  Expect(here.RegisterMem(memory, hixl::MEM_HOST, handle) == hixl::SUCCESS, "memory registers");
  Expect(here.RegisterMem(memory, hixl::MEM_HOST, again) == hixl::SUCCESS && again == handle,
         "the same range gives the same handle");
  memory.addr = reinterpret_cast<uintptr_t>(remote.data());
  Expect(there.RegisterMem(memory, hixl::MEM_HOST, again) == hixl::SUCCESS, "and the other's");

  CheckRefusals(here, argv[1]);
  CheckTransfers(here, argv[2], local, remote);
  int32_t value = -1;
  Expect(hixl::Hixl::GetCapability(hixl::AUTO_CONNECT, value) == hixl::SUCCESS && value == 1,
         "AUTO_CONNECT is a capability");
  here.Finalize();
  here.Finalize();
  std::printf("%s\n", failures == 0 ? "every check held" : "some checks failed");
  return failures;
}
