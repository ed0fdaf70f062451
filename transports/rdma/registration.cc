#include "transports/rdma/registration.h"

#include <utility>

#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

class CountedRegion final : public VerbsRegion {
 public:
  CountedRegion(std::unique_ptr<VerbsRegion> region, uint64_t length,
                std::shared_ptr<RegistrationCounters> counters)
      : region_(std::move(region)), length_(length), counters_(std::move(counters)) {
    counters_->made.fetch_add(1, std::memory_order_relaxed);
    counters_->regions.fetch_add(1, std::memory_order_relaxed);
    counters_->bytes.fetch_add(length_, std::memory_order_relaxed);
  }
  ~CountedRegion() override {
    region_.reset();
    counters_->regions.fetch_sub(1, std::memory_order_relaxed);
    counters_->bytes.fetch_sub(length_, std::memory_order_relaxed);
  }
  uint32_t local_key() const override { return region_->local_key(); }
  uint32_t remote_key() const override { return region_->remote_key(); }

 private:
  std::unique_ptr<VerbsRegion> region_;
  const uint64_t length_;
  const std::shared_ptr<RegistrationCounters> counters_;
};

}  // namespace

bool Registrable(const MemoryAccess& access) {
  return access.mapped() != nullptr || access.dma_buf().has_value();
}

absl::StatusOr<std::unique_ptr<VerbsRegion>> RegisterPart(
    VerbsDomain* domain, const std::shared_ptr<RegistrationCounters>& counters,
    const MemoryAccess& access, uint64_t offset, uint64_t length, int access_flags,
    uint64_t* address) {
  absl::StatusOr<std::unique_ptr<VerbsRegion>> region;
  if (access.mapped() != nullptr) {
    std::byte* const first = access.mapped() + offset;
    *address = reinterpret_cast<uint64_t>(first);
    region = domain->Register(first, length, access_flags);
  } else if (const auto buffer = access.dma_buf()) {
    *address = buffer->offset + offset;
    region = domain->RegisterDmaBuf(buffer->fd, *address, length, *address, access_flags);
  } else {
    region = Unsupported("the network card cannot reach memory that is not mapped");
  }
  if (region.ok()) {
    return std::make_unique<CountedRegion>(*std::move(region), length, counters);
  }
  counters->failed.fetch_add(1, std::memory_order_relaxed);
  return Annotate(region.status(), access.description());
}

}  // namespace hixld::rdma
