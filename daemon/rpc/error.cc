#include "daemon/rpc/error.h"

#include <string>

#include "proto/base/status.h"

namespace hixld {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both enumerations have the same canonical values.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      SerializeErrorDetail(status));
}

}  // namespace hixld
