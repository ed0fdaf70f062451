// A daemon that only answers the admin and health services, with what a test gives it.
#pragma once

#include <memory>
#include <string>

#include "proto/hixl/v1/admin.pb.h"

namespace hixld::testing {

class FakeDaemon {
 public:
  struct Answers {
    hixl::v1::GetStatusResponse status;
    hixl::v1::ListSessionsResponse sessions;
    hixl::v1::ListEnginesResponse engines;
    hixl::v1::ListRegionsResponse regions;
    hixl::v1::ListLinksResponse links;
    hixl::v1::ListTransfersResponse transfers;
    hixl::v1::ListDevicesResponse devices;
    hixl::v1::ListPoolsResponse pools;
    // Not empty: ListRegions fails with it, code INVALID_ARGUMENT.
    std::string regions_error;
    // ListPools waits until the daemon is destroyed or the caller gives up.
    bool pools_hang = false;
  };

  // Serves on a unix socket in a directory of its own until destroyed.
  explicit FakeDaemon(Answers answers);
  ~FakeDaemon();

  const std::string& directory() const { return directory_; }
  const std::string& socket() const { return socket_; }
  void SetServing(bool serving);
  // The engine_id of the last ListRegions.
  std::string last_region_engine() const;

 private:
  class Service;
  struct Server;
  const std::string directory_;
  const std::string socket_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Server> server_;
};

}  // namespace hixld::testing
