#include "daemon/device/device_manager.h"

#include <catch2/catch.hpp>

#include "proto/base/status.h"

namespace hixld {
namespace {

TEST_CASE("accelerators take their ids before the host does") {
  DeviceOptions options;
  options.host.count = 4;
  options.sim.count = 2;
  auto manager = DeviceManager::Create(options);
  REQUIRE(manager.ok());
  for (int32_t id = 0; id < 4; ++id) {
    auto backend = (*manager)->Find(id);
    REQUIRE(backend.ok());
    CHECK((*backend)->name() == (id < 2 ? "sim" : "host"));
  }
  CHECK((*manager)->List().size() == 6);
  CHECK((*manager)->CapabilitiesOf(0).allocate);
  CHECK(!(*manager)->CapabilitiesOf(3).allocate);
  CHECK(!(*manager)->CapabilitiesOf(17).allocate);
}

TEST_CASE("unknown devices and backends are named with what there is") {
  DeviceOptions options;
  options.backends = {"host"};
  options.host.count = 2;
  auto manager = DeviceManager::Create(options);
  REQUIRE(manager.ok());
  for (const int32_t id : {-1, 2}) {
    const auto backend = (*manager)->Find(id);
    CHECK(ApiCodeOf(backend.status()) == ApiCode::kParamInvalid);
    CHECK(ErrorInfoOf(backend.status()).allowed == "0, 1");
  }
  options.backends = {"host", "gpu"};
  const auto unknown = DeviceManager::Create(options);
  CHECK(ApiCodeOf(unknown.status()) == ApiCode::kParamInvalid);
  CHECK(ErrorInfoOf(unknown.status()).allowed == "sim, host");
  CHECK(ErrorInfoOf(unknown.status()).option == "devices.backends");
}

TEST_CASE("host devices have no memory of their own") {
  auto backend = CreateHostBackend({.count = 1});
  const auto memory = backend->Allocate(1, 0, 4096, 0);
  CHECK(ApiCodeOf(memory.status()) == ApiCode::kUnsupported);
  CHECK(ErrorInfoOf(memory.status()).object == "device 0");
}

}  // namespace
}  // namespace hixld
