// Between the daemon's statuses and gRPC's.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace hixld {

// Code and message as they are; the details carry hixl.v1.ErrorDetail as gRPC libraries expect it.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace hixld
