// A client in a process of its own, that the tests can kill.
//   client_process SOCKET BYTES [no-probe] [serve]
// Says hello, passes a memfd of BYTES whose pages it has written, prints
//   SESSION_TOKEN_HEX HANDLE ADDRESS READABLE
// where ADDRESS is plain memory of BYTES, all 'p', and lives until it is killed or the daemon
// closes the channel. With `serve` it does what CopyCommands ask.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/daemon/session/test_client.h"

namespace hixld::testing {
namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "client_process: %s\n", std::string(status.message()).c_str());
  _exit(1);
}

class Server {
 public:
  Server(TestClient* client, std::byte* memory, uint64_t size)
      : client_(client), memory_(memory), size_(size) {}

  void Run() {
    while (true) {
      absl::StatusOr<FdPacket> packet = client_->Receive();
      if (!packet.ok() || packet->message.has_goodbye()) return;
      if (packet->message.has_copy_command()) Serve(packet->message);
    }
  }

 private:
  void Serve(const FdMessage& message) {
    const auto& command = message.copy_command();
    auto [arena, added] = arenas_.try_emplace(command.arena_id());
    if (added) {
      absl::StatusOr<Mapping> mapping = client_->MapArena(command.arena_id());
      Check(mapping.status());
      arena->second = *std::move(mapping);
    }
    FdMessage answer;
    answer.set_request_id(message.request_id());
    auto* done = answer.mutable_copy_done();
    for (const auto& slice : command.slices()) {
      const uint64_t offset = slice.client_address() - reinterpret_cast<uint64_t>(memory_);
      if (offset > size_ || slice.length() > size_ - offset) {
        done->set_error_number(EFAULT);
        done->set_failed_address(slice.client_address());
        break;
      }
      std::byte* shared = arena->second.data() + slice.arena_offset();
      if (command.to_arena()) {
        memcpy(shared, memory_ + offset, slice.length());
      } else {
        memcpy(memory_ + offset, shared, slice.length());
      }
    }
    Check(client_->Send(answer));
  }

  TestClient* const client_;
  std::byte* const memory_;
  const uint64_t size_;
  std::map<uint64_t, Mapping> arenas_;
};

int Main(int argc, char** argv) {
  if (argc < 3) return 2;
  const uint64_t bytes = strtoull(argv[2], nullptr, 10);
  TestClient::Options options;
  for (int i = 3; i < argc; ++i) {
    if (strcmp(argv[i], "no-probe") == 0) options.probe = false;
    if (strcmp(argv[i], "serve") == 0) options.serves_copy_commands = true;
  }
  absl::StatusOr<TestClient> client = TestClient::Open(argv[1], options);
  Check(client.status());
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd("client", bytes);
  Check(fd.status());
  absl::StatusOr<Mapping> mapping = MapShared(fd->get(), 0, bytes);
  Check(mapping.status());
  memset(mapping->data(), 's', bytes);
  absl::StatusOr<uint64_t> handle = client->PutMemory(fd->get(), bytes);
  Check(handle.status());
  void* plain = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(plain, 'p', bytes);
  const std::string line = absl::StrCat(absl::BytesToHexString(client->token()), " ", *handle, " ",
                                        reinterpret_cast<uint64_t>(plain), " ",
                                        client->welcome().process_memory_readable() ? 1 : 0, "\n");
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
  if (options.serves_copy_commands) {
    Server(&*client, static_cast<std::byte*>(plain), bytes).Run();
  } else {
    while (client->Receive().ok()) {
    }
  }
  return 0;
}

}  // namespace
}  // namespace hixld::testing

int main(int argc, char** argv) { return hixld::testing::Main(argc, argv); }
