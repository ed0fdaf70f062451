// How an error with its detail travels in a gRPC status.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hixld {

// What goes into grpc::Status::error_details: a google.rpc.Status with one hixl.v1.ErrorDetail.
std::string SerializeRpcDetails(const absl::Status& status);

// The error that a gRPC status stands for. Details that are missing or foreign leave the code
// `fallback` and the message.
absl::Status StatusFromRpcDetails(absl::string_view message, absl::string_view serialized_details,
                                  absl::StatusCode fallback);

}  // namespace hixld
