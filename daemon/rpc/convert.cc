#include "daemon/rpc/convert.h"

namespace hixld {

namespace v1 = ::hixl::v1;

v1::MemoryAccess ToProto(MemoryAccess::Kind kind) {
  switch (kind) {
    case MemoryAccess::Kind::kMapped:
      return v1::MEMORY_ACCESS_MAPPED;
    case MemoryAccess::Kind::kProcess:
      return v1::MEMORY_ACCESS_PROCESS;
    case MemoryAccess::Kind::kExecutor:
      return v1::MEMORY_ACCESS_EXECUTOR;
    case MemoryAccess::Kind::kDevice:
      return v1::MEMORY_ACCESS_DEVICE;
  }
  return v1::MEMORY_ACCESS_UNSPECIFIED;
}

v1::TransferState ToProto(TransferState state) {
  switch (state) {
    case TransferState::kWaiting:
      return v1::TRANSFER_STATE_WAITING;
    case TransferState::kCompleted:
      return v1::TRANSFER_STATE_COMPLETED;
    case TransferState::kFailed:
      return v1::TRANSFER_STATE_FAILED;
    case TransferState::kTimeout:
      return v1::TRANSFER_STATE_TIMEOUT;
  }
  return v1::TRANSFER_STATE_UNSPECIFIED;
}

}  // namespace hixld
