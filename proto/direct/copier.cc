#include "proto/direct/copier.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::direct {
namespace {

absl::Status Bad(const std::string& what) {
  return ParamInvalid(absl::StrCat("the gate of direct copies has ", what),
                      {.object = "gate of direct copies"});
}

absl::Status CheckHeader(const Header& header, uint64_t mapped) {
  if (header.magic != kMagic) return Bad("no magic number");
  if (header.version != kLayoutVersion) {
    return Unsupported(
        absl::StrCat("the gate of direct copies has layout ", header.version),
        {.object = "gate of direct copies", .allowed = absl::StrCat("layout ", kLayoutVersion)});
  }
  if (header.lanes != kLanes || header.lanes_offset != LanesOffset() ||
      header.regions_offset != RegionsOffset()) {
    return Bad("another order than its layout says");
  }
  if (header.regions > mapped / sizeof(Region) || TotalBytes(header.regions) != mapped ||
      header.total_bytes != mapped) {
    return Bad(absl::StrCat(header.regions, " regions in ", mapped, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Copier>> Copier::Attach(Mapping memory, UniqueFd wake) {
  if (memory.size() < RegionsOffset()) return Bad(absl::StrCat(memory.size(), " bytes only"));
  std::unique_ptr<Copier> copier(new Copier(std::move(memory), std::move(wake)));
  HIXLD_RETURN_IF_ERROR(CheckHeader(*copier->header_, copier->memory_.size()));
  HIXLD_RETURN_IF_ERROR(copier->Check());
  return copier;
}

Copier::Copier(Mapping memory, UniqueFd wake)
    : memory_(std::move(memory)),
      wake_(std::move(wake)),
      header_(reinterpret_cast<Header*>(memory_.data())),
      lanes_(reinterpret_cast<Lane*>(memory_.data() + LanesOffset())) {}

absl::Status Copier::Check() {
  // Before the table is used: what is registered later is not in it.
  generation_ = 0;
  max_bytes_ = header_->max_bytes;
  max_descriptors_ = header_->max_descriptors;
  target_pid_ = header_->target_pid;
  files_ = header_->files;
  const auto* table = reinterpret_cast<const Region*>(memory_.data() + RegionsOffset());
  regions_.assign(table, table + header_->regions);
  uint64_t end = 0;
  for (const Region& region : regions_) {
    if (region.length == 0 || region.address < end || region.length > UINT64_MAX - region.address ||
        region.length > UINT64_MAX - region.file_offset) {
      return Bad(absl::StrCat("an impossible region at ", absl::Hex(region.address)));
    }
    if (region.kind > RegionKind::kHere ||
        (region.kind == RegionKind::kFile && region.file >= files_) ||
        (region.kind == RegionKind::kProcess && target_pid_ <= 0)) {
      return Bad(absl::StrCat("a region out of reach at ", absl::Hex(region.address)));
    }
    end = region.address + region.length;
  }
  return absl::OkStatus();
}

void Copier::TellDaemon() const {
  const uint64_t one = 1;
  // A full counter wakes the daemon as well.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

}  // namespace hixld::direct
