#include "client/bench/engine.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/bench/parse.h"
#include "proto/base/endpoint.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld::bench {

absl::Status FromHixl(hixl::Status status, absl::string_view what) {
  if (status == hixl::SUCCESS) return absl::OkStatus();
  // The text begins with the name of its code.
  const absl::string_view text = absl::NullSafeStringView(hixl::HixlExt::LastErrorText());
  const auto code = static_cast<ApiCode>(status);
  return MakeError(code, absl::StrCat(what, ": ", text.empty() ? ApiCodeName(code) : text));
}

void UseSocket(const std::string& path) {
  if (!path.empty()) ::setenv("HIXLD_SOCKET", path.c_str(), 1);
}

void UsePath(std::optional<Path> path) {
  if (path) ::setenv("HIXLD_DIRECT", *path == Path::kDirect ? "on" : "off", 1);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, bool listen) {
  auto engine = std::make_unique<Engine>();
  HIXLD_ASSIGN_OR_RETURN(const Endpoint address, ParseEndpoint(options.engine));
  std::map<hixl::AscendString, hixl::AscendString> settings;
  for (const auto& [key, value] : options.settings) settings[key.c_str()] = value.c_str();
  hixl::InitializeExtArgs args;
  args.listen_on_any_port = listen && !address.listens();
  args.device_id = options.device;
  HIXLD_RETURN_IF_ERROR(
      FromHixl(hixl::HixlExt::Initialize(engine->hixl_, options.engine.c_str(), settings, args),
               absl::StrCat("engine ", options.engine)));
  hixl::AscendString id;
  HIXLD_RETURN_IF_ERROR(FromHixl(hixl::HixlExt::EngineId(engine->hixl_, id), "engine id"));
  engine->id_ = id.GetString();
  return engine;
}

absl::StatusOr<std::unique_ptr<Memory>> Memory::Create(Engine& engine, MemoryKind kind,
                                                       size_t size) {
  std::unique_ptr<Memory> memory(new Memory(engine, kind, size));
  HIXLD_RETURN_IF_ERROR(memory->Allocate());
  if (memory->data_ != nullptr) std::memset(memory->data_, 0, size);
  return memory;
}

absl::Status Memory::Allocate() {
  if (kind_ == MemoryKind::kPool || kind_ == MemoryKind::kDevice) {
    const hixl::MemType type = kind_ == MemoryKind::kPool ? hixl::MEM_HOST : hixl::MEM_DEVICE;
    HIXLD_RETURN_IF_ERROR(
        FromHixl(hixl::HixlExt::AllocateBuffer(engine_.hixl(), size_, type, buffer_),
                 absl::StrCat("buffer of ", size_, " bytes")));
    address_ = buffer_.address();
    data_ = static_cast<std::byte*>(buffer_.data());
    return absl::OkStatus();
  }
  if (kind_ == MemoryKind::kMemfd) {
    HIXLD_ASSIGN_OR_RETURN(memfd_, CreateSealedMemfd("hixl-bench", size_));
    HIXLD_ASSIGN_OR_RETURN(mapping_, MapShared(memfd_.get(), 0, size_));
  } else {
    void* const data =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return ErrnoError(errno, absl::StrCat("mmap of ", size_, " bytes"));
    mapping_ = Mapping(data, size_);
  }
  data_ = mapping_.data();
  address_ = reinterpret_cast<uintptr_t>(data_);
  return absl::OkStatus();
}

absl::Status Memory::Register() {
  hixl::MemDesc range{};
  range.addr = address_;
  range.len = size_;
  const std::string what =
      absl::StrCat("register ", MemoryNames()[static_cast<size_t>(kind_)], " memory");
  if (kind_ == MemoryKind::kMemfd) {
    return FromHixl(hixl::HixlExt::RegisterMemfd(engine_.hixl(), range, hixl::MEM_HOST,
                                                 memfd_.get(), 0, handle_),
                    what);
  }
  const hixl::MemType type = kind_ == MemoryKind::kDevice ? hixl::MEM_DEVICE : hixl::MEM_HOST;
  return FromHixl(engine_.hixl().RegisterMem(range, type, handle_), what);
}

Memory::~Memory() {
  if (handle_ != nullptr) engine_.hixl().DeregisterMem(handle_);
}

}  // namespace hixld::bench
