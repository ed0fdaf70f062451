// hixl.v1.EngineService.
#pragma once

#include <cstdint>
#include <memory>

namespace grpc {
class Service;
}

namespace hixld {

class EngineRegistry;
class SessionRegistry;

struct EngineServiceLimits {
  uint64_t max_regions_per_call = 16'384;
  uint64_t max_regions_per_session = 262'144;
};

// Both outlive the service.
std::unique_ptr<grpc::Service> MakeEngineService(SessionRegistry* sessions, EngineRegistry* engines,
                                                 EngineServiceLimits limits);

}  // namespace hixld
