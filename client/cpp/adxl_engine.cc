// Class AdxlEngine: the same engine under its old name. It stands on the public classes of
// libcann_hixl.so alone, so that a process has one implementation and one session however many of
// the two libraries it loads.
#include "adxl/adxl_engine.h"

#include <utility>

#include "hixl/hixl.h"
#include "hixl/hixl_ext.h"

namespace adxl {
namespace {

static_assert(sizeof(MemDesc) == sizeof(hixl::MemDesc), "one layout");
static_assert(sizeof(TransferOpDesc) == sizeof(hixl::TransferOpDesc), "one layout");
static_assert(sizeof(TransferArgs) == sizeof(hixl::TransferArgs), "one layout");
static_assert(SUCCESS == hixl::SUCCESS && PARAM_INVALID == hixl::PARAM_INVALID &&
                  TIMEOUT == hixl::TIMEOUT && NOT_CONNECTED == hixl::NOT_CONNECTED &&
                  ALREADY_CONNECTED == hixl::ALREADY_CONNECTED &&
                  NOTIFY_FAILED == hixl::NOTIFY_FAILED && UNSUPPORTED == hixl::UNSUPPORTED &&
                  FAILED == hixl::FAILED && RESOURCE_EXHAUSTED == hixl::RESOURCE_EXHAUSTED,
              "one set of codes");

// The enums have the same numbers; those that are none of them must stay none of them.
hixl::MemType ToHixl(MemType type) { return static_cast<hixl::MemType>(type); }
hixl::TransferOp ToHixl(TransferOp operation) { return static_cast<hixl::TransferOp>(operation); }

std::vector<hixl::TransferOpDesc> ToHixl(const std::vector<TransferOpDesc>& descs) {
  std::vector<hixl::TransferOpDesc> same;
  same.reserve(descs.size());
  for (const TransferOpDesc& desc : descs) {
    same.push_back({desc.local_addr, desc.remote_addr, desc.len});
  }
  return same;
}

}  // namespace

class __attribute__((visibility("hidden"))) AdxlEngine::AdxlEngineImpl {
 public:
  hixl::Hixl engine;
};

AdxlEngine::AdxlEngine() : impl_(std::make_unique<AdxlEngineImpl>()) {}

AdxlEngine::~AdxlEngine() = default;

Status AdxlEngine::Initialize(const AscendString& local_engine,
                              const std::map<AscendString, AscendString>& options) {
  return impl_->engine.Initialize(local_engine, options);
}

void AdxlEngine::Finalize() { impl_->engine.Finalize(); }

Status AdxlEngine::RegisterMem(const MemDesc& mem, MemType type, MemHandle& mem_handle) {
  hixl::MemDesc same{};
  same.addr = mem.addr;
  same.len = mem.len;
  return impl_->engine.RegisterMem(same, ToHixl(type), mem_handle);
}

Status AdxlEngine::DeregisterMem(MemHandle mem_handle) {
  return impl_->engine.DeregisterMem(mem_handle);
}

Status AdxlEngine::Connect(const AscendString& remote_engine, int32_t timeout_in_millis) {
  return impl_->engine.Connect(remote_engine, timeout_in_millis);
}

Status AdxlEngine::Disconnect(const AscendString& remote_engine, int32_t timeout_in_millis) {
  return impl_->engine.Disconnect(remote_engine, timeout_in_millis);
}

Status AdxlEngine::TransferSync(const AscendString& remote_engine, TransferOp operation,
                                const std::vector<TransferOpDesc>& op_descs,
                                int32_t timeout_in_millis) {
  return impl_->engine.TransferSync(remote_engine, ToHixl(operation), ToHixl(op_descs),
                                    timeout_in_millis);
}

Status AdxlEngine::TransferAsync(const AscendString& remote_engine, TransferOp operation,
                                 const std::vector<TransferOpDesc>& op_descs,
                                 const TransferArgs& optional_args, TransferReq& req) {
  static_cast<void>(optional_args);  // has no field yet
  return impl_->engine.TransferAsync(remote_engine, ToHixl(operation), ToHixl(op_descs),
                                     hixl::TransferArgs{}, req);
}

Status AdxlEngine::GetTransferStatus(const TransferReq& req, TransferStatus& status) {
  auto same = static_cast<hixl::TransferStatus>(status);
  const Status code = impl_->engine.GetTransferStatus(req, same);
  status = static_cast<TransferStatus>(same);
  return code;
}

Status AdxlEngine::SendNotify(const AscendString& remote_engine, const NotifyDesc& notify,
                              int32_t timeout_in_millis) {
  return impl_->engine.SendNotify(remote_engine, {notify.name, notify.notify_msg},
                                  timeout_in_millis);
}

Status AdxlEngine::GetNotifies(std::vector<NotifyDesc>& notifies) {
  std::vector<hixl::NotifyDesc> arrived;
  const Status code = impl_->engine.GetNotifies(arrived);
  notifies.reserve(notifies.size() + arrived.size());
  for (hixl::NotifyDesc& notify : arrived) {
    notifies.push_back({std::move(notify.name), std::move(notify.notify_msg)});
  }
  return code;
}

Status AdxlEngine::GetCapability(FeatureType feature_type, int32_t& value) {
  return hixl::Hixl::GetCapability(static_cast<hixl::FeatureType>(feature_type), value);
}

Status AdxlEngine::MallocMem(MemType type, size_t size, void** ptr) {
  return hixl::HixlExt::MallocMem(ToHixl(type), size, ptr);
}

Status AdxlEngine::FreeMem(void* ptr) { return hixl::HixlExt::FreeMem(ptr); }

Status AdxlEngine::ExportToShareableHandle(void* ptr, ShareableHandle& shareable_handle) {
  static_cast<void>(shareable_handle);
  return hixl::HixlExt::ExportMem(ptr);
}

}  // namespace adxl
