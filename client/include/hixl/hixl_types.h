// Types and constants of the HIXL API. Addresses are virtual addresses in the process that
// registered them, lengths are bytes, times are milliseconds.
#ifndef HIXL_HIXL_TYPES_H_
#define HIXL_HIXL_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "external/ge_common/api_error_codes.h"

#ifndef ASCEND_FUNC_VISIBILITY
#ifdef FUNC_VISIBILITY
#define ASCEND_FUNC_VISIBILITY __attribute__((visibility("default")))
#else
#define ASCEND_FUNC_VISIBILITY
#endif
#endif

namespace hixl {

using Status = uint32_t;
using AscendString = ge::AscendString;
// An outstanding asynchronous transfer; never null.
using TransferReq = void*;
// A registration; never null.
using MemHandle = void*;

// Keys of Hixl::Initialize's options.
constexpr const char OPTION_ENABLE_USE_FABRIC_MEM[] = "EnableUseFabricMem";
constexpr const char OPTION_RDMA_TRAFFIC_CLASS[] = "RdmaTrafficClass";
constexpr const char OPTION_RDMA_SERVICE_LEVEL[] = "RdmaServiceLevel";
constexpr const char OPTION_BUFFER_POOL[] = "BufferPool";
constexpr const char OPTION_GLOBAL_RESOURCE_CONFIG[] = "GlobalResourceConfig";
constexpr const char OPTION_AUTO_CONNECT[] = "AutoConnect";
constexpr const char OPTION_LOCAL_COMM_RES[] = "LocalCommRes";

// Results of the calls.
constexpr Status SUCCESS = 0U;
constexpr Status PARAM_INVALID = 103900U;       // a bad argument
constexpr Status TIMEOUT = 103901U;             // the deadline passed
constexpr Status NOT_CONNECTED = 103902U;       // no link to that peer
constexpr Status ALREADY_CONNECTED = 103903U;   // the link exists already
constexpr Status NOTIFY_FAILED = 103904U;       // reserved, never returned
constexpr Status UNSUPPORTED = 103905U;         // not available for this engine
constexpr Status FAILED = 503900U;              // any other failure
constexpr Status RESOURCE_EXHAUSTED = 203900U;  // a queue, slot or limit is used up

// Features that GetCapability knows; only ever appended to.
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

enum class AsyncConnectStatus {
  NOT_CONNECT = 0,
  CONNECT_PENDING = 1,
  CONNECTING = 2,
  CONNECTED = 3,
  CONNECT_FAILED = 4,
  DISCONNECT_PENDING = 5,
  DISCONNECTING = 6
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
  // Returned by GetTransferStatus(args, results); never looked at.
  const void* user_data = nullptr;
  uint8_t reserved[120] = {};
};

struct GetTransferStatusArgs {
  // How many results at most.
  uint32_t max_query_count = UINT32_MAX;
  // Leave out transfers that still wait.
  bool skip_waiting = false;
  uint8_t reserved[123] = {};
};

struct TransferResult {
  TransferReq req = nullptr;
  const void* user_data = nullptr;
  TransferStatus status = TransferStatus::WAITING;
  uint8_t reserved[108] = {};
};

// A short message to a peer; each part has at most 1024 bytes.
struct NotifyDesc {
  AscendString name;
  AscendString notify_msg;
};

}  // namespace hixl

#endif  // HIXL_HIXL_TYPES_H_
