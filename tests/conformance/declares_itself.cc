// A program that includes none of the library's headers but declares the classes itself, as some
// transfer engines do, and links by mangled names. Calls that may be missing are weak.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct aclrtMemFabricHandle {
  uint8_t data[128];
};

namespace ge {
class AscendString {
 public:
  AscendString() = default;
  ~AscendString() = default;
  AscendString(const char* name);
  AscendString(const char* name, size_t length);
  const char* GetString() const;
  size_t GetLength() const;
  size_t Find(const AscendString& name) const;
  size_t Hash() const;
  bool operator<(const AscendString& other) const;
  bool operator==(const AscendString& other) const;

 private:
  std::shared_ptr<std::string> name_;
};
}  // namespace ge

namespace adxl {
using AscendString = ge::AscendString;
using Status = uint32_t;
using MemHandle = void*;
using TransferReq = void*;
enum FeatureType : int32_t { AUTO_CONNECT = 0, CLIENT_SERVER_COMM = 1 };
enum MemType { MEM_DEVICE, MEM_HOST };
enum TransferOp { READ, WRITE };
enum class TransferStatus { WAITING, COMPLETED, TIMEOUT, FAILED };
struct MemDesc {
  uintptr_t addr;
  size_t len;
  uint8_t reserved[128] = {};
};
struct TransferOpDesc {
  uintptr_t local_addr;
  uintptr_t remote_addr;
  size_t len;
};
struct TransferArgs {
  uint8_t reserved[128] = {};
};

class AdxlEngine {
 public:
  AdxlEngine();
  ~AdxlEngine();
  Status Initialize(const AscendString& local_engine,
                    const std::map<AscendString, AscendString>& options);
  void Finalize();
  Status RegisterMem(const MemDesc& mem, MemType type, MemHandle& mem_handle);
  Status DeregisterMem(MemHandle mem_handle);
  Status Connect(const AscendString& remote_engine, int32_t timeout_in_millis = 1000);
  Status Disconnect(const AscendString& remote_engine, int32_t timeout_in_millis = 1000);
  Status TransferSync(const AscendString& remote_engine, TransferOp operation,
                      const std::vector<TransferOpDesc>& op_descs,
                      int32_t timeout_in_millis = 1000);
  __attribute__((weak)) Status TransferAsync(const AscendString& remote_engine,
                                             TransferOp operation,
                                             const std::vector<TransferOpDesc>& op_descs,
                                             const TransferArgs& optional_args, TransferReq& req);
  __attribute__((weak)) Status GetTransferStatus(const TransferReq& req, TransferStatus& status);
  __attribute__((weak)) static Status MallocMem(MemType type, size_t size, void** ptr);
  __attribute__((weak)) static Status FreeMem(void* ptr);
  __attribute__((weak)) static Status ExportToShareableHandle(void* ptr,
                                                              aclrtMemFabricHandle& handle);
  __attribute__((weak)) static Status GetCapability(FeatureType feature_type, int32_t& value);

 private:
  class AdxlEngineImpl;
  std::unique_ptr<AdxlEngineImpl> impl_;
};
}  // namespace adxl

namespace {

int failures = 0;

void Expect(bool held, const char* what) {
  if (held) return;
  std::printf("not so: %s\n", what);
  ++failures;
}

// No `== nullptr`: the compiler takes a declared member to be there, weak or not.
bool Present() {
  adxl::Status (*malloc_mem)(adxl::MemType, size_t, void**) = &adxl::AdxlEngine::MallocMem;
  adxl::Status (*capability)(adxl::FeatureType, int32_t&) = &adxl::AdxlEngine::GetCapability;
  volatile auto first = malloc_mem;
  volatile auto second = capability;
  return first && second;
}

void Move(adxl::AdxlEngine& here, const char* there, char* local, const char* remote,
          size_t bytes) {
  const adxl::TransferOpDesc piece{reinterpret_cast<uintptr_t>(local),
                                   reinterpret_cast<uintptr_t>(remote), bytes};
  Expect(here.TransferSync(there, adxl::READ, {piece}, 10000) == 0, "TransferSync");
  Expect(std::memcmp(local, remote, bytes) == 0, "the bytes are there");
  std::memset(local, 9, bytes);
  adxl::TransferReq request = nullptr;
  Expect(here.TransferAsync(there, adxl::WRITE, {piece}, adxl::TransferArgs(), request) == 0,
         "TransferAsync");
  adxl::TransferStatus status = adxl::TransferStatus::WAITING;
  while (status == adxl::TransferStatus::WAITING && here.GetTransferStatus(request, status) == 0) {
  }
  Expect(status == adxl::TransferStatus::COMPLETED, "GetTransferStatus");
  Expect(remote[bytes - 1] == 9, "the bytes are back");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  constexpr size_t kBytes = 1U << 20;
  Expect(Present(), "the optional calls are there");
  int32_t value = 0;
  Expect(adxl::AdxlEngine::GetCapability(adxl::CLIENT_SERVER_COMM, value) == 0 && value == 1,
         "GetCapability");

  void* local = nullptr;
  void* remote = nullptr;
  Expect(adxl::AdxlEngine::MallocMem(adxl::MEM_HOST, kBytes, &local) == 0, "MallocMem");
  Expect(adxl::AdxlEngine::MallocMem(adxl::MEM_HOST, kBytes, &remote) == 0, "MallocMem again");
  Expect(adxl::AdxlEngine::MallocMem(adxl::MEM_DEVICE, kBytes, &remote) == 103905,
         "no device memory");
  Expect(adxl::AdxlEngine::MallocMem(adxl::MEM_HOST, 0, &remote) == 103900, "no empty memory");
  aclrtMemFabricHandle handle;
  Expect(adxl::AdxlEngine::ExportToShareableHandle(local, handle) == 103905, "no fabric here");
  std::memset(remote, 5, kBytes);

  adxl::AdxlEngine here;
  adxl::AdxlEngine there;
  const std::map<adxl::AscendString, adxl::AscendString> options = {
      {"adxl.RdmaTrafficClass", "132"}, {"adxl.BufferPool", "0:0"}, {"AutoConnect", "0"}};
  Expect(here.Connect(argv[2]) == 503900, "FAILED before Initialize");
  Expect(here.Initialize(argv[1], options) == 0, "Initialize");
  Expect(there.Initialize(argv[2], options) == 0, "Initialize the other");
  adxl::MemDesc memory{};
  memory.len = kBytes;
  adxl::MemHandle handles[2] = {};
  memory.addr = reinterpret_cast<uintptr_t>(local);
  Expect(here.RegisterMem(memory, adxl::MEM_HOST, handles[0]) == 0, "RegisterMem");
  memory.addr = reinterpret_cast<uintptr_t>(remote);
  Expect(there.RegisterMem(memory, adxl::MEM_HOST, handles[1]) == 0, "RegisterMem the other");
  Expect(here.Connect(argv[2], 5000) == 0, "Connect");
  Expect(here.Connect(argv[2], 5000) == 103903, "ALREADY_CONNECTED");
  Move(here, argv[2], static_cast<char*>(local), static_cast<char*>(remote), kBytes);
  Expect(here.Disconnect(argv[2]) == 0, "Disconnect");
  Expect(here.DeregisterMem(handles[0]) == 0, "DeregisterMem");
  here.Finalize();
  there.Finalize();
  Expect(adxl::AdxlEngine::FreeMem(local) == 0 && adxl::AdxlEngine::FreeMem(remote) == 0,
         "FreeMem");
  Expect(adxl::AdxlEngine::FreeMem(local) == 103900, "FreeMem twice");
  std::printf("%s\n", failures == 0 ? "every check held" : "some checks failed");
  return failures;
}
