#include "proto/base/rpc_status.h"

#include "proto/base/status.h"
#include "proto/hixl/v1/error.pb.h"
#include "proto/hixl/v1/rpc_status.pb.h"

namespace hixld {

std::string SerializeRpcDetails(const absl::Status& status) {
  hixl::v1::RpcStatus rpc;
  rpc.set_code(static_cast<int>(status.code()));
  rpc.set_message(std::string(status.message()));
  hixl::v1::ErrorDetail detail;
  detail.ParseFromString(SerializeErrorDetail(status));
  rpc.add_details()->PackFrom(detail);
  return rpc.SerializeAsString();
}

absl::Status StatusFromRpcDetails(absl::string_view message, absl::string_view serialized_details,
                                  absl::StatusCode fallback) {
  hixl::v1::RpcStatus rpc;
  if (rpc.ParseFromArray(serialized_details.data(), static_cast<int>(serialized_details.size()))) {
    for (const auto& any : rpc.details()) {
      hixl::v1::ErrorDetail detail;
      if (any.UnpackTo(&detail)) {
        return StatusFromErrorDetail(message, detail.SerializeAsString(), fallback);
      }
    }
  }
  return absl::Status(fallback, message);
}

}  // namespace hixld
