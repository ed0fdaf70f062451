// Class HixlExt and class Buffer.
#include "hixl/hixl_ext.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/hixl_impl.h"
#include "client/cpp/last_error.h"
#include "client/cpp/log.h"
#include "client/cpp/prepared_blocks.h"
#include "client/cpp/shared_memory.h"
#include "proto/base/status.h"
#include "proto/base/version.h"

namespace hixl {
namespace {

using hixld::client::BatchView;
using hixld::client::Engine;
using hixld::client::LastErrorRecord;
using hixld::client::MemoryKind;
using hixld::client::MemoryRange;
using hixld::client::PoolBuffer;
using hixld::client::PreparedBlocks;
using hixld::client::RecordError;
using hixld::client::SharedMemory;

std::string ToString(const AscendString& text) {
  return std::string(text.GetString(), text.GetLength());
}

AscendString ToPublic(const std::string& text) { return AscendString(text.data(), text.size()); }

BatchView ViewOf(const TransferArrays& arrays) {
  return {.local_addresses = arrays.local_addresses,
          .remote_addresses = arrays.remote_addresses,
          .lengths = arrays.lengths,
          .count = arrays.count};
}

absl::Status CheckArrays(const TransferArrays& arrays) {
  if (arrays.count == 0 || (arrays.local_addresses != nullptr &&
                            arrays.remote_addresses != nullptr && arrays.lengths != nullptr)) {
    return absl::OkStatus();
  }
  return hixld::ParamInvalid("an array of the batch is null", {.object = "batch"});
}

template <typename Impl, typename Call>
Status WithEngine(const Impl& impl, Call call) {
  const auto engine = impl.Live();
  return RecordError(engine.ok() ? call(**engine) : engine.status());
}

// A batch in one of its public forms, checked and ready for the engine as long as this object.
class ReadyArrays {
 public:
  absl::Status Prepare(const TransferArrays& arrays) {
    arrays_ = arrays;
    return CheckArrays(arrays);
  }
  BatchView view() const { return ViewOf(arrays_); }

 private:
  TransferArrays arrays_;
};

template <typename Ready, typename Impl, typename Batch>
Status Transfer(const Impl& impl, const AscendString& remote, TransferOp operation,
                const Batch& batch, int32_t timeout_in_millis) {
  return WithEngine(impl, [&](Engine& live) -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckOp(operation));
    Ready ready;
    HIXLD_RETURN_IF_ERROR(ready.Prepare(batch));
    return live.Transfer(ToString(remote), DirectionOf(operation), ready.view(), timeout_in_millis);
  });
}

template <typename Ready, typename Impl, typename Batch>
Status Submit(const Impl& impl, const AscendString& remote, TransferOp operation,
              const Batch& batch, const TransferArgs& args, TransferReq& req) {
  return WithEngine(impl, [&](Engine& live) -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckOp(operation));
    Ready ready;
    HIXLD_RETURN_IF_ERROR(ready.Prepare(batch));
    HIXLD_ASSIGN_OR_RETURN(
        const uint64_t request,
        live.Submit(ToString(remote), DirectionOf(operation), ready.view(), args.user_data));
    req = reinterpret_cast<TransferReq>(request);
    return absl::OkStatus();
  });
}

}  // namespace

class __attribute__((visibility("hidden"))) Buffer::State {
 public:
  explicit State(std::unique_ptr<PoolBuffer> buffer) : buffer_(std::move(buffer)) {}
  const PoolBuffer& buffer() const { return *buffer_; }

 private:
  const std::unique_ptr<PoolBuffer> buffer_;
};

Buffer::Buffer() = default;
Buffer::~Buffer() = default;
Buffer::Buffer(Buffer&& other) noexcept = default;
Buffer& Buffer::operator=(Buffer&& other) noexcept = default;

bool Buffer::valid() const { return state_ != nullptr; }
uintptr_t Buffer::address() const { return valid() ? state_->buffer().address() : 0; }
void* Buffer::data() const {
  return valid() && state_->buffer().mapped() ? reinterpret_cast<void*>(address()) : nullptr;
}
size_t Buffer::size() const { return valid() ? state_->buffer().length() : 0; }
MemType Buffer::type() const {
  return valid() && state_->buffer().kind() == MemoryKind::kDevice ? MEM_DEVICE : MEM_HOST;
}
void Buffer::Free() { state_.reset(); }

Status HixlExt::Initialize(Hixl& engine, const AscendString& local_engine,
                           const std::map<AscendString, AscendString>& options,
                           const InitializeExtArgs& args) {
  // A forked child starts afresh with the object that it inherited.
  if (engine.impl_->inherited()) engine.Finalize();
  const absl::Status status = engine.impl_->Initialize(local_engine, options, args);
  const Status code = RecordError(status);
  // Said aloud, since a program that cannot start may not ask for more than the code.
  if (!status.ok()) {
    hixld::client::Log(
        hixld::client::LogLevel::kError,
        absl::StrCat("initialize ", local_engine.GetString(), ": ", LastErrorText()));
  }
  return code;
}

bool HixlExt::IsInitialized(const Hixl& engine) { return engine.impl_->Live().ok(); }

Status HixlExt::EngineId(Hixl& engine, AscendString& engine_id) {
  return WithEngine(*engine.impl_, [&](Engine& live) {
    engine_id = ToPublic(live.id());
    return absl::OkStatus();
  });
}

Status HixlExt::AllocateBuffer(Hixl& engine, size_t length, MemType type, Buffer& buffer) {
  return WithEngine(*engine.impl_, [&](Engine& live) -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckType(type));
    HIXLD_ASSIGN_OR_RETURN(auto allocated, live.Allocate(length, KindOf(type)));
    buffer.state_ = std::make_unique<Buffer::State>(std::move(allocated));
    return absl::OkStatus();
  });
}

Status HixlExt::RegisterMemBatch(Hixl& engine, const std::vector<MemDesc>& ranges, MemType type,
                                 std::vector<MemHandle>& handles) {
  return WithEngine(*engine.impl_, [&](Engine& live) -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckType(type));
    std::vector<MemoryRange> wanted;
    wanted.reserve(ranges.size());
    for (const MemDesc& range : ranges) wanted.push_back({range.addr, range.len, KindOf(type)});
    std::vector<uint64_t> numbers;
    HIXLD_RETURN_IF_ERROR(live.Register(wanted, &numbers));
    handles.clear();
    for (const uint64_t number : numbers) handles.push_back(reinterpret_cast<MemHandle>(number));
    return absl::OkStatus();
  });
}

Status HixlExt::DeregisterMemBatch(Hixl& engine, const std::vector<MemHandle>& handles) {
  return WithEngine(*engine.impl_, [&](Engine& live) -> absl::Status {
    std::vector<uint64_t> numbers;
    for (const MemHandle handle : handles) {
      if (handle == nullptr) {
        return hixld::ParamInvalid("a memory handle is null", {.object = "memory handle"});
      }
      numbers.push_back(reinterpret_cast<uint64_t>(handle));
    }
    return live.Deregister(numbers);
  });
}

Status HixlExt::RegisterMemfd(Hixl& engine, const MemDesc& mem, MemType type, int memfd,
                              uint64_t offset, MemHandle& handle) {
  return WithEngine(*engine.impl_, [&](Engine& live) -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckType(type));
    uint64_t number = 0;
    HIXLD_RETURN_IF_ERROR(
        live.RegisterMemfd({mem.addr, mem.len, KindOf(type)}, memfd, offset, &number));
    handle = reinterpret_cast<MemHandle>(number);
    return absl::OkStatus();
  });
}

Status HixlExt::MallocMem(MemType type, size_t length, void** memory) {
  const auto allocate = [&]() -> absl::Status {
    HIXLD_RETURN_IF_ERROR(CheckType(type));
    if (memory == nullptr) {
      return hixld::ParamInvalid("the place for the address is null", {.object = "memory"});
    }
    if (type == MEM_DEVICE) {
      return hixld::Unsupported(
          "device memory is not allocated without an engine",
          {.object = "memory type", .allowed = "MEM_HOST; AllocateBuffer for device memory"});
    }
    HIXLD_ASSIGN_OR_RETURN(const uint64_t address, SharedMemory::Instance().Allocate(length));
    *memory = reinterpret_cast<void*>(address);
    return absl::OkStatus();
  };
  return RecordError(allocate());
}

Status HixlExt::FreeMem(void* memory) {
  return RecordError(SharedMemory::Instance().Free(reinterpret_cast<uint64_t>(memory)));
}

Status HixlExt::ExportMem(const void* memory) {
  if (!SharedMemory::Instance().Contains(reinterpret_cast<uint64_t>(memory))) {
    return RecordError(hixld::ParamInvalid("the address is no memory of MallocMem",
                                           {.object = "memory", .allowed = "memory of MallocMem"}));
  }
  return RecordError(hixld::Unsupported(
      "there is no fabric memory here from which a shareable handle could be made",
      {.object = "memory", .allowed = "A3 nodes with fabric memory"}));
}

Status HixlExt::TransferSync(Hixl& engine, const AscendString& remote_engine, TransferOp operation,
                             const TransferArrays& arrays, int32_t timeout_in_millis) {
  return Transfer<ReadyArrays>(*engine.impl_, remote_engine, operation, arrays, timeout_in_millis);
}

Status HixlExt::TransferAsync(Hixl& engine, const AscendString& remote_engine, TransferOp operation,
                              const TransferArrays& arrays, const TransferArgs& optional_args,
                              TransferReq& req) {
  return Submit<ReadyArrays>(*engine.impl_, remote_engine, operation, arrays, optional_args, req);
}

Status HixlExt::TransferSync(Hixl& engine, const AscendString& remote_engine, TransferOp operation,
                             const BlockBatch& blocks, int32_t timeout_in_millis) {
  return Transfer<PreparedBlocks>(*engine.impl_, remote_engine, operation, blocks,
                                  timeout_in_millis);
}

Status HixlExt::TransferAsync(Hixl& engine, const AscendString& remote_engine, TransferOp operation,
                              const BlockBatch& blocks, const TransferArgs& optional_args,
                              TransferReq& req) {
  return Submit<PreparedBlocks>(*engine.impl_, remote_engine, operation, blocks, optional_args,
                                req);
}

ErrorInfo HixlExt::LastError() {
  const LastErrorRecord& record = hixld::client::LastErrorOfThread();
  ErrorInfo error;
  error.code = record.code;
  error.message = ToPublic(record.message);
  error.object = ToPublic(record.info.object);
  error.limit = ToPublic(record.info.limit);
  error.option = ToPublic(record.info.option);
  error.allowed = ToPublic(record.info.allowed);
  error.text_code = ToPublic(record.info.text_code);
  return error;
}

const char* HixlExt::LastErrorText() { return hixld::client::LastErrorOfThread().text.c_str(); }

Status HixlExt::SetLogLevel(const AscendString& level) {
  hixld::client::LogLevel parsed;
  if (!hixld::client::ParseLogLevel(level.GetString(), &parsed)) {
    return RecordError(
        hixld::ParamInvalid(absl::StrCat("log level \"", level.GetString(), "\""),
                            {.object = "log level", .allowed = "DEBUG, INFO, WARN, ERROR"}));
  }
  hixld::client::SetLogLevel(parsed);
  return SUCCESS;
}

const char* HixlExt::Version() { return hixld::kVersion; }

}  // namespace hixl
