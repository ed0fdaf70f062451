// The deprecated ADXL API. Each call means, takes and returns what the one of that name in
// hixl/hixl.h does; what is told there holds here. Both may be used in one process.
#ifndef ADXL_ADXL_ENGINE_H_
#define ADXL_ADXL_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "adxl/adxl_types.h"

namespace adxl {

class ASCEND_FUNC_VISIBILITY AdxlEngine {
 public:
  AdxlEngine();
  // Finalises.
  ~AdxlEngine();

  Status Initialize(const AscendString& local_engine,
                    const std::map<AscendString, AscendString>& options);
  void Finalize();

  // Memory of MallocMem is mapped by the daemon, so that it is moved without a copy.
  Status RegisterMem(const MemDesc& mem, MemType type, MemHandle& mem_handle);
  Status DeregisterMem(MemHandle mem_handle);

  Status Connect(const AscendString& remote_engine, int32_t timeout_in_millis = 1000);
  Status Disconnect(const AscendString& remote_engine, int32_t timeout_in_millis = 1000);

  Status TransferSync(const AscendString& remote_engine, TransferOp operation,
                      const std::vector<TransferOpDesc>& op_descs,
                      int32_t timeout_in_millis = 1000);
  Status TransferAsync(const AscendString& remote_engine, TransferOp operation,
                       const std::vector<TransferOpDesc>& op_descs,
                       const TransferArgs& optional_args, TransferReq& req);
  Status GetTransferStatus(const TransferReq& req, TransferStatus& status);

  Status SendNotify(const AscendString& remote_engine, const NotifyDesc& notify,
                    int32_t timeout_in_millis = 1000);
  Status GetNotifies(std::vector<NotifyDesc>& notifies);

  static Status GetCapability(FeatureType feature_type, int32_t& value);

  // Memory for RegisterMem, page aligned. `*ptr` is written on SUCCESS only. PARAM_INVALID: size 0
  // or a null `ptr`. UNSUPPORTED: MEM_DEVICE, which the runtime of the device allocates. FAILED:
  // there is no memory left.
  static Status MallocMem(MemType type, size_t size, void** ptr);
  // PARAM_INVALID: not from MallocMem, or freed before. Deregister it first.
  static Status FreeMem(void* ptr);
  // UNSUPPORTED: this needs fabric memory of an A3 node.
  static Status ExportToShareableHandle(void* ptr, ShareableHandle& shareable_handle);

 private:
  class AdxlEngineImpl;
  std::unique_ptr<AdxlEngineImpl> impl_;
};

}  // namespace adxl

#endif  // ADXL_ADXL_ENGINE_H_
