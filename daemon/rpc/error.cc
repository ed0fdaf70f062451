#include "daemon/rpc/error.h"

#include <string>

#include "proto/base/rpc_status.h"

namespace hixld {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both enumerations have the same canonical values.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      SerializeRpcDetails(status));
}

}  // namespace hixld
