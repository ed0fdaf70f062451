// Types and constants of the deprecated ADXL API; they equal those of hixl/hixl_types.h in value
// and layout. Addresses are virtual addresses in the process that registered them, lengths are
// bytes, times are milliseconds.
#ifndef ADXL_ADXL_TYPES_H_
#define ADXL_ADXL_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "external/ge_common/api_error_codes.h"

// A CANN toolkit's own runtime header, where there is one, declares the fabric handle.
#ifdef __has_include
#if __has_include("acl/acl_rt.h")
#include "acl/acl_rt.h"
#define HIXLD_ADXL_HAS_ACL_RT
#endif
#endif
#if !defined(HIXLD_ADXL_HAS_ACL_RT) && !defined(INC_EXTERNAL_ACL_ACL_RT_H_)
extern "C" {
typedef struct aclrtMemFabricHandle {
  uint8_t data[128];
} aclrtMemFabricHandle;
}
#endif

#ifndef ASCEND_FUNC_VISIBILITY
#ifdef FUNC_VISIBILITY
#define ASCEND_FUNC_VISIBILITY __attribute__((visibility("default")))
#else
#define ASCEND_FUNC_VISIBILITY
#endif
#endif

namespace adxl {

using Status = uint32_t;
using AscendString = ge::AscendString;
// An outstanding asynchronous transfer; never null.
using TransferReq = void*;
// A registration; never null.
using MemHandle = void*;
// Memory as another process can import it.
using ShareableHandle = aclrtMemFabricHandle;

// Keys of AdxlEngine::Initialize's options.
constexpr const char OPTION_RDMA_TRAFFIC_CLASS[] = "adxl.RdmaTrafficClass";
constexpr const char OPTION_RDMA_SERVICE_LEVEL[] = "adxl.RdmaServiceLevel";
constexpr const char OPTION_BUFFER_POOL[] = "adxl.BufferPool";
constexpr const char OPTION_LOCAL_COMM_RES[] = "adxl.LocalCommRes";
constexpr const char OPTION_AUTO_CONNECT[] = "AutoConnect";
constexpr const char OPTION_ENABLE_USE_FABRIC_MEM[] = "EnableUseFabricMem";
constexpr const char OPTION_GLOBAL_RESOURCE_CONFIG[] = "GlobalResourceConfig";

// Results of the calls.
constexpr Status SUCCESS = 0U;
constexpr Status PARAM_INVALID = 103900U;
constexpr Status TIMEOUT = 103901U;
constexpr Status NOT_CONNECTED = 103902U;
constexpr Status ALREADY_CONNECTED = 103903U;
constexpr Status NOTIFY_FAILED = 103904U;
constexpr Status UNSUPPORTED = 103905U;
constexpr Status FAILED = 503900U;
constexpr Status RESOURCE_EXHAUSTED = 203900U;

enum FeatureType : int32_t { AUTO_CONNECT = 0, CLIENT_SERVER_COMM = 1 };
constexpr int32_t FEATURE_SUPPORTED = 1;
constexpr int32_t FEATURE_NOT_SUPPORTED = 0;

enum MemType { MEM_DEVICE = 0, MEM_HOST = 1 };

// READ copies from the peer's memory to ours, WRITE from ours to the peer's.
enum TransferOp { READ = 0, WRITE = 1 };

enum class TransferStatus {
  WAITING = 0,
  COMPLETED = 1,
  TIMEOUT = 2,  // never produced
  FAILED = 3
};

// A range to register.
struct MemDesc {
  uintptr_t addr;
  size_t len;
  uint8_t reserved[128] = {};
};

// One piece of a transfer.
struct TransferOpDesc {
  uintptr_t local_addr;
  uintptr_t remote_addr;
  size_t len;
};

struct TransferArgs {
  uint8_t reserved[128] = {};
};

// A short message to a peer; each part has at most 1024 bytes.
struct NotifyDesc {
  AscendString name;
  AscendString notify_msg;
};

}  // namespace adxl

#endif  // ADXL_ADXL_TYPES_H_
