// The tools' way to a daemon: typed calls of hixl.v1.AdminService and the health service.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/hixl/v1/admin.pb.h"

namespace hixld::hixlctl {

// Every error is one line for the user. Its code says what to make of it:
//   UNAVAILABLE        no daemon there; the message says what to do
//   PERMISSION_DENIED  there is one, but this user may not use it
//   DEADLINE_EXCEEDED  there is one, but it did not answer in time
//   anything else      what the daemon answered
class AdminClient {
 public:
  // `timeout` holds for each call.
  AdminClient(std::string socket_path, std::chrono::milliseconds timeout);
  ~AdminClient();

  absl::StatusOr<hixl::v1::GetStatusResponse> GetStatus();
  absl::StatusOr<hixl::v1::ListSessionsResponse> ListSessions();
  absl::StatusOr<hixl::v1::ListEnginesResponse> ListEngines();
  // Empty: those of all engines.
  absl::StatusOr<hixl::v1::ListRegionsResponse> ListRegions(const std::string& engine_id);
  absl::StatusOr<hixl::v1::ListLinksResponse> ListLinks();
  absl::StatusOr<hixl::v1::ListTransfersResponse> ListTransfers();
  absl::StatusOr<hixl::v1::ListDevicesResponse> ListDevices();
  absl::StatusOr<hixl::v1::ListPoolsResponse> ListPools();
  // "serving", "not serving" or "unknown".
  absl::StatusOr<std::string> Health();

  const std::string& socket_path() const { return socket_path_; }

 private:
  struct Stubs;
  // Connects on first use; tells a missing daemon from a forbidden one.
  absl::StatusOr<Stubs*> Connect();

  const std::string socket_path_;
  const std::chrono::milliseconds timeout_;
  std::unique_ptr<Stubs> stubs_;
};

}  // namespace hixld::hixlctl
