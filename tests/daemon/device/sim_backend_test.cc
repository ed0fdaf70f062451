#include "daemon/device/sim_backend.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <set>

#include "proto/base/clock.h"
#include "proto/base/memfd.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

using Slice = MemoryAccess::Slice;

constexpr uint64_t kMiB = 1 << 20;

// A `done`, and what it will be called with.
struct Result {
  std::shared_ptr<std::promise<absl::Status>> promise =
      std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> future = promise->get_future();
  MemoryAccess::Done Done() {
    return [p = promise](absl::Status status) { p->set_value(std::move(status)); };
  }
};

absl::Status Write(MemoryAccess* access, std::vector<Slice> slices) {
  Result result;
  access->Write(std::move(slices), result.Done());
  return result.future.get();
}

absl::Status Read(MemoryAccess* access, std::vector<Slice> slices) {
  Result result;
  access->Read(std::move(slices), result.Done());
  return result.future.get();
}

std::vector<std::byte> Pattern(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = std::byte((i * seed) >> 3);
  return bytes;
}

TEST_CASE("device memory is reached through the copy engine only") {
  auto backend = CreateSimBackend({.count = 1, .memory_bytes = 64 * kMiB});
  auto memory = backend->Allocate(1, 0, 3 * kMiB + 5, 0);
  REQUIRE(memory.ok());
  const auto access = (*memory)->access();
  CHECK(access->kind() == MemoryAccess::Kind::kDevice);
  CHECK(access->mapped() == nullptr);
  CHECK((*memory)->size() >= 3 * kMiB + 5);

  auto in = Pattern(3 * kMiB + 5, 31);
  REQUIRE(Write(access.get(), {{.offset = 0, .host = in.data(), .length = in.size()}}).ok());
  std::vector<std::byte> out(in.size());
  std::vector<Slice> slices;
  for (uint64_t at = 0; at < out.size(); at += 100'000) {
    slices.push_back({.offset = at,
                      .host = out.data() + at,
                      .length = std::min<uint64_t>(100'000, out.size() - at)});
  }
  REQUIRE(Read(access.get(), slices).ok());
  CHECK(in == out);
  CHECK(Read(access.get(), {}).ok());
}

TEST_CASE("device addresses are no addresses of this process and differ between devices") {
  auto backend = CreateSimBackend({.count = 2, .memory_bytes = 64 * kMiB});
  std::set<uint64_t> addresses;
  std::vector<std::unique_ptr<DeviceAllocation>> held;
  for (const int32_t device : {0, 1}) {
    for (int i = 0; i < 3; ++i) {
      auto memory = backend->Allocate(1, device, 4096, 0);
      REQUIRE(memory.ok());
      CHECK((*memory)->device_address() >> 47 != 0);
      addresses.insert((*memory)->device_address());
      held.push_back(*std::move(memory));
    }
  }
  CHECK(addresses.size() == 6);
}

TEST_CASE("another process can map an allocation and sees the device's bytes") {
  auto backend = CreateSimBackend({.count = 1, .memory_bytes = 64 * kMiB});
  auto memory = backend->Allocate(1, 0, 8192, 0);
  REQUIRE(memory.ok());
  auto fd = (*memory)->ExportFd();
  REQUIRE(fd.ok());
  CHECK(CheckSharedMemfd(fd->get(), 8192).ok());
  auto view = MapShared(fd->get(), (*memory)->arena_offset(), 8192);
  REQUIRE(view.ok());
  auto in = Pattern(8192, 7);
  REQUIRE(
      Write((*memory)->access().get(), {{.offset = 0, .host = in.data(), .length = 8192}}).ok());
  CHECK(memcmp(view->data(), in.data(), 8192) == 0);
}

TEST_CASE("owners share no arena") {
  auto backend = CreateSimBackend({.count = 1, .memory_bytes = 64 * kMiB});
  auto a = backend->Allocate(1, 0, 4096, 0);
  auto b = backend->Allocate(2, 0, 4096, 0);
  REQUIRE((a.ok() && b.ok()));
  CHECK((*a)->arena() != (*b)->arena());
}

TEST_CASE("a full device and an unknown one say so") {
  auto backend = CreateSimBackend({.count = 2, .memory_bytes = 16 * kMiB});
  auto most = backend->Allocate(1, 1, 16 * kMiB, 0);
  REQUIRE(most.ok());
  CHECK(backend->Devices()[1].memory_used == 16 * kMiB);
  const auto more = backend->Allocate(1, 1, 1, 0);
  CHECK(ApiCodeOf(more.status()) == ApiCode::kResourceExhausted);
  CHECK(ErrorInfoOf(more.status()).option == "devices.sim.memory_bytes");
  CHECK(backend->Allocate(1, 0, 1, 0).ok());
  const auto unknown = backend->Allocate(1, 2, 1, 0);
  CHECK(ApiCodeOf(unknown.status()) == ApiCode::kParamInvalid);
  CHECK(ErrorInfoOf(unknown.status()).allowed == "0..1");
  (*most).reset();
  CHECK(backend->Devices()[1].memory_used == 0);
}

TEST_CASE("devices copy to each other") {
  auto backend = CreateSimBackend({.count = 2, .memory_bytes = 16 * kMiB});
  auto from = backend->Allocate(1, 0, 2 * kMiB, 0);
  auto to = backend->Allocate(2, 1, 2 * kMiB, 0);
  REQUIRE((from.ok() && to.ok()));
  auto in = Pattern(2 * kMiB, 13);
  REQUIRE(
      Write((*from)->access().get(), {{.offset = 0, .host = in.data(), .length = in.size()}}).ok());
  Result result;
  backend->CopyDeviceToDevice((*from)->access().get(), 4096, (*to)->access().get(), 100, 1'500'000,
                              result.Done());
  REQUIRE(result.future.get().ok());
  std::vector<std::byte> out(1'500'000);
  REQUIRE(Read((*to)->access().get(), {{.offset = 100, .host = out.data(), .length = out.size()}})
              .ok());
  CHECK(memcmp(out.data(), in.data() + 4096, out.size()) == 0);

  class Other : public MemoryAccess {
   public:
    Other() : MemoryAccess(Kind::kDevice, nullptr, 1) {}
    void Read(std::vector<Slice>, Done) override {}
    void Write(std::vector<Slice>, Done) override {}
    absl::string_view description() const override { return "other"; }
  } other;
  Result refused;
  backend->CopyDeviceToDevice((*from)->access().get(), 0, &other, 0, 1, refused.Done());
  CHECK(ApiCodeOf(refused.future.get()) == ApiCode::kUnsupported);
}

TEST_CASE("copies of one stream end in order") {
  auto backend = CreateSimBackend({.count = 1, .memory_bytes = 16 * kMiB});
  auto memory = backend->Allocate(1, 0, kMiB, 0);
  REQUIRE(memory.ok());
  std::vector<std::byte> host(kMiB);
  std::vector<int> order;
  std::promise<void> all;
  for (int i = 0; i < 50; ++i) {
    (*memory)->access()->Write({{.offset = 0, .host = host.data(), .length = host.size()}},
                               [&, i](absl::Status) {
                                 order.push_back(i);
                                 if (i == 49) all.set_value();
                               });
  }
  all.get_future().wait();
  REQUIRE(order.size() == 50);
  for (int i = 0; i < 50; ++i) CHECK(order[i] == i);
}

TEST_CASE("the engine is no faster than its bandwidth") {
  auto backend =
      CreateSimBackend({.count = 1, .memory_bytes = 16 * kMiB, .copy_bandwidth = 100 * kMiB});
  auto memory = backend->Allocate(1, 0, 4 * kMiB, 0);
  REQUIRE(memory.ok());
  std::vector<std::byte> host(4 * kMiB);
  const int64_t start = MonotonicNanos();
  REQUIRE(
      Write((*memory)->access().get(), {{.offset = 0, .host = host.data(), .length = host.size()}})
          .ok());
  CHECK(MonotonicNanos() - start >= kNanosPerSecond / 25);
}

TEST_CASE("the memory of an access outlives allocation and backend") {
  auto backend = CreateSimBackend({.count = 1, .memory_bytes = 16 * kMiB});
  auto memory = backend->Allocate(1, 0, 4096, 0);
  REQUIRE(memory.ok());
  auto access = (*memory)->access();
  (*memory).reset();
  CHECK(backend->Devices()[0].memory_used == 4096);
  backend.reset();
  std::vector<std::byte> host(4096, std::byte{1});
  CHECK(Write(access.get(), {{.offset = 0, .host = host.data(), .length = 4096}}).ok());
}

TEST_CASE("the place where copies run is configuration") {
  auto backend = CreateSimBackend({.count = 1, .place = ExecutionPlace::kClient});
  const DeviceCapabilities capabilities = backend->Devices()[0].capabilities;
  CHECK(capabilities.place == ExecutionPlace::kClient);
  const auto names = CapabilityNames(capabilities);
  CHECK(std::find(names.begin(), names.end(), "executed_by_client") != names.end());
}

}  // namespace
}  // namespace hixld
