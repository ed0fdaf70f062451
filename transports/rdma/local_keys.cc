#include "transports/rdma/local_keys.h"

#include <algorithm>
#include <utility>

#include "proto/base/status.h"

namespace hixld::rdma {

// Lives in the memory; tells the cache when it goes.
class LocalKeys::Tie {
 public:
  Tie(std::weak_ptr<LocalKeys> keys, const MemoryAccess* access)
      : keys_(std::move(keys)), access_(access) {}
  ~Tie() {
    if (auto keys = keys_.lock()) keys->Forget(access_);
  }

 private:
  const std::weak_ptr<LocalKeys> keys_;
  const MemoryAccess* const access_;
};

LocalKeys::LocalKeys(VerbsDomain* domain, std::shared_ptr<RegistrationCounters> counters,
                     Loop* registrar, uint64_t piece_bytes)
    : domain_(domain),
      counters_(std::move(counters)),
      registrar_(registrar),
      piece_bytes_(std::max<uint64_t>(piece_bytes, 4096)) {}

LocalKeys::~LocalKeys() { Clear(); }

std::optional<KeyRange> LocalKeys::Find(const MemoryAccess& access, uint64_t offset) const {
  MutexLock lock(&mutex_);
  const auto memory = memory_.find(&access);
  if (memory == memory_.end()) return std::nullopt;
  const uint64_t index = offset / piece_bytes_;
  const auto piece = memory->second.find(index);
  if (piece == memory->second.end() || piece->second.region == nullptr) return std::nullopt;
  const KeyRange range{index * piece_bytes_, piece->second.length, piece->second.address,
                       piece->second.region->local_key()};
  return range.Holds(offset) ? std::make_optional(range) : std::nullopt;
}

void LocalKeys::Register(MemoryAccess* access, uint64_t offset, std::shared_ptr<const void> pin,
                         Done done) {
  const uint64_t index = offset / piece_bytes_;
  bool known = false;
  {
    MutexLock lock(&mutex_);
    const auto [memory, first] = memory_.try_emplace(access);
    known = !first;
    const auto [piece, fresh] = memory->second.try_emplace(index);
    if (!fresh && piece->second.region == nullptr) {
      // It is being made: the one who started it answers all.
      piece->second.waiters.push_back(std::move(done));
      return;
    }
    if (fresh) piece->second.waiters.push_back(std::move(done));
  }
  if (done != nullptr) return done(absl::OkStatus());
  if (!known) access->Attach(std::make_shared<Tie>(weak_from_this(), access));
  registrar_->Post([self = shared_from_this(), access, index, pin = std::move(pin)] {
    self->Make(access, index);
  });
}

void LocalKeys::Make(MemoryAccess* access, uint64_t index) {
  const uint64_t offset = index * piece_bytes_;
  const uint64_t length = std::min(piece_bytes_, access->length() - offset);
  uint64_t address = 0;
  auto region =
      RegisterPart(domain_, counters_, *access, offset, length, IBV_ACCESS_LOCAL_WRITE, &address);
  std::vector<Done> waiters;
  {
    MutexLock lock(&mutex_);
    Pieces& pieces = memory_[access];
    Piece& piece = pieces[index];
    waiters = std::exchange(piece.waiters, {});
    if (region.ok()) {
      piece.region = *std::move(region);
      piece.address = address;
      piece.length = length;
    } else {
      // The next one to ask tries again.
      pieces.erase(index);
    }
  }
  for (Done& done : waiters) done(region.ok() ? absl::OkStatus() : region.status());
}

void LocalKeys::Forget(const MemoryAccess* access) {
  Pieces gone;
  MutexLock lock(&mutex_);
  const auto memory = memory_.find(access);
  if (memory == memory_.end()) return;
  gone = std::move(memory->second);
  memory_.erase(memory);
  // `gone` was declared first, so that the registrations end after the lock is free.
}

void LocalKeys::Clear() {
  std::unordered_map<const MemoryAccess*, Pieces> gone;
  MutexLock lock(&mutex_);
  gone.swap(memory_);
}

}  // namespace hixld::rdma
