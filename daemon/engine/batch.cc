#include "daemon/engine/batch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld {
namespace {

absl::string_view SideName(BatchSide side) {
  return side == BatchSide::kLocal ? "local" : "remote";
}

// Answers "which region?" for one side; descriptors of a batch mostly stay in one region, so the
// last answer is tried first.
class SideResolver {
 public:
  SideResolver(const RegionSnapshot& snapshot, BatchSide side) : snapshot_(snapshot), side_(side) {}

  // The one region that holds the range, or nullptr.
  const Region* Find(uint64_t address, uint64_t length) {
    if (last_ != nullptr && address >= last_->address && length <= last_->length &&
        address - last_->address <= last_->length - length) {
      return last_;
    }
    const Region* found = snapshot_.Find(address, length);
    if (found != nullptr) last_ = found;
    return found;
  }

  absl::Status Parts(size_t index, uint64_t address, uint64_t length,
                     std::vector<RegionPart>* parts) const {
    parts->clear();
    absl::Status status = snapshot_.Resolve(address, length, parts);
    if (status.ok()) return status;
    return Annotate(status, absl::StrCat("descriptor ", index, ", ", SideName(side_), " side"));
  }

 private:
  const RegionSnapshot& snapshot_;
  const BatchSide side_;
  const Region* last_ = nullptr;
};

// Appends pieces and joins each with the one before it where both sides go on without a gap.
class PieceBuilder {
 public:
  PieceBuilder(bool remote_here, BatchPlan* plan) : remote_here_(remote_here), plan_(plan) {}

  void Add(const Region* local, uint64_t local_offset, const Region* remote,
           uint64_t remote_address, uint64_t length) {
    if (local == last_local_ && remote == last_remote_) {
      CopyPiece& last = plan_->pieces.back();
      if (last.local.offset + last.length == local_offset &&
          last.remote_address + last.length == remote_address) {
        last.length += length;
        return;
      }
    }
    CopyPiece piece;
    piece.local = {.access = local->access.get(), .offset = local_offset};
    piece.remote_address = remote_address;
    piece.length = length;
    if (remote_here_) {
      piece.remote = {.access = remote->access.get(),
                      .offset = remote->access_offset + (remote_address - remote->address)};
      // Unregistered memory has no id.
      if (remote != last_remote_ && remote->id != 0) NoteRemote(remote->id);
    }
    plan_->pieces.push_back(piece);
    last_local_ = local;
    last_remote_ = remote;
  }

 private:
  void NoteRemote(uint64_t id) {
    auto& ids = plan_->remote_regions;
    const auto at = std::lower_bound(ids.begin(), ids.end(), id);
    if (at == ids.end() || *at != id) ids.insert(at, id);
  }

  const bool remote_here_;
  BatchPlan* const plan_;
  const Region* last_local_ = nullptr;
  const Region* last_remote_ = nullptr;
};

// A descriptor whose range spans several regions on either side.
void AddSplit(const std::vector<RegionPart>& local, const std::vector<RegionPart>& remote,
              uint64_t remote_address, PieceBuilder* builder) {
  size_t l = 0;
  size_t r = 0;
  uint64_t local_done = 0;
  uint64_t remote_done = 0;
  while (l < local.size() && r < remote.size()) {
    const uint64_t length = std::min(local[l].length - local_done, remote[r].length - remote_done);
    builder->Add(local[l].region.get(), local[l].offset + local_done, remote[r].region.get(),
                 remote_address, length);
    remote_address += length;
    local_done += length;
    remote_done += length;
    if (local_done == local[l].length) ++l, local_done = 0;
    if (remote_done == remote[r].length) ++r, remote_done = 0;
  }
}

absl::Status CheckParts(const LinkRule& rule, size_t index, const std::vector<RegionPart>& local,
                        const std::vector<RegionPart>& remote) {
  for (const RegionPart& l : local) {
    for (const RegionPart& r : remote) {
      HIXLD_RETURN_IF_ERROR(rule.Check(index, l.region->type, r.region->type));
    }
  }
  return absl::OkStatus();
}

}  // namespace

OwnedBatch::OwnedBatch(const BatchView& view)
    : local_(view.local.begin(), view.local.end()),
      remote_(view.remote.begin(), view.remote.end()),
      lengths_(view.lengths.begin(), view.lengths.end()) {}

OwnedBatch::OwnedBatch(Words local, Words remote, Words lengths)
    : local_(std::move(local)), remote_(std::move(remote)), lengths_(std::move(lengths)) {}

absl::Status CheckBatch(const BatchView& batch, uint64_t max_descriptors) {
  if (batch.local.size() != batch.lengths.size() || batch.remote.size() != batch.lengths.size()) {
    return ParamInvalid(absl::StrCat("batch has ", batch.local.size(), " local addresses, ",
                                     batch.remote.size(), " remote addresses and ",
                                     batch.lengths.size(), " lengths; allowed: as many of each"),
                        {.object = "batch", .allowed = "three arrays of one length"});
  }
  if (batch.size() > max_descriptors) {
    return ResourceExhausted(
        absl::StrCat("batch has ", batch.size(), " descriptors; limit ", max_descriptors,
                     " (limits.max_descriptors_per_transfer)"),
        {.object = "batch",
         .limit = absl::StrCat(max_descriptors, " descriptors"),
         .option = "limits.max_descriptors_per_transfer"});
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch.local[i] != 0 && batch.remote[i] != 0) continue;
    const absl::string_view side = batch.local[i] == 0 ? "local" : "remote";
    return ParamInvalid(absl::StrCat("descriptor ", i, ": the ", side, " address is null"),
                        {.object = absl::StrCat("descriptor ", i)});
  }
  return absl::OkStatus();
}

std::vector<AddressRange> RangesOf(absl::Span<const uint64_t> addresses,
                                   absl::Span<const uint64_t> lengths) {
  std::vector<AddressRange> ranges;
  ranges.reserve(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i] + lengths[i] > addresses[i]) ranges.push_back({addresses[i], lengths[i]});
  }
  return ranges;
}

absl::Status CheckOneKind(const BatchView& batch, const RegionSnapshot& local,
                          const RegionSnapshot& remote, const OneKindRule& rule) {
  // Unregistered memory counts as host memory.
  const auto type_at = [](const RegionSnapshot& regions, uint64_t address) {
    const Region* region = RegionAt(regions, address);
    return region == nullptr ? MemoryType::kHost : region->type;
  };
  if (batch.size() == 0) return absl::OkStatus();
  const MemoryType first_here = type_at(local, batch.local[0]);
  const MemoryType first_there = type_at(remote, batch.remote[0]);
  for (size_t i = 1; i < batch.size(); ++i) {
    const MemoryType here = type_at(local, batch.local[i]);
    const MemoryType there = type_at(remote, batch.remote[i]);
    if (here == first_here && there == first_there) continue;
    return ParamInvalid(
        absl::StrCat("descriptor ", i, " is between ", MemoryTypeName(here), " and remote ",
                     MemoryTypeName(there), " memory, descriptor 0 between ",
                     MemoryTypeName(first_here), " and remote ", MemoryTypeName(first_there), "; ",
                     rule.what, " is of one kind"),
        {.object = absl::StrCat("descriptor ", i),
         .option = rule.option,
         .allowed = absl::StrCat(MemoryTypeName(first_here), " and remote ",
                                 MemoryTypeName(first_there), " memory")});
  }
  return absl::OkStatus();
}

absl::Status PlanBatch(const BatchView& batch, const RegionSnapshot& local,
                       const RegionSnapshot& remote, bool remote_here, BatchPlan* plan,
                       const LinkRule* rule) {
  SideResolver local_side(local, BatchSide::kLocal);
  SideResolver remote_side(remote, BatchSide::kRemote);
  PieceBuilder builder(remote_here, plan);
  std::vector<RegionPart> local_parts;
  std::vector<RegionPart> remote_parts;
  for (size_t i = 0; i < batch.size(); ++i) {
    const uint64_t length = batch.lengths[i];
    // A length of 0 has no region, so that the slow path names what is wrong with it.
    const Region* l = length == 0 ? nullptr : local_side.Find(batch.local[i], length);
    const Region* r = length == 0 ? nullptr : remote_side.Find(batch.remote[i], length);
    if (l != nullptr && r != nullptr) {
      if (rule != nullptr) HIXLD_RETURN_IF_ERROR(rule->Check(i, l->type, r->type));
      builder.Add(l, l->access_offset + (batch.local[i] - l->address), r, batch.remote[i], length);
    } else {
      plan->refused = BatchSide::kLocal;
      plan->unregistered = length != 0 && batch.local[i] + length > batch.local[i] &&
                           batch.remote[i] + length > batch.remote[i];
      HIXLD_RETURN_IF_ERROR(local_side.Parts(i, batch.local[i], length, &local_parts));
      plan->refused = BatchSide::kRemote;
      HIXLD_RETURN_IF_ERROR(remote_side.Parts(i, batch.remote[i], length, &remote_parts));
      plan->unregistered = false;
      plan->refused = BatchSide::kLocal;
      if (rule != nullptr) HIXLD_RETURN_IF_ERROR(CheckParts(*rule, i, local_parts, remote_parts));
      AddSplit(local_parts, remote_parts, batch.remote[i], &builder);
    }
    if (plan->bytes + length < plan->bytes) {
      return ParamInvalid(absl::StrCat("the batch sums to more than 2^64 bytes at descriptor ", i),
                          {.object = "batch"});
    }
    plan->bytes += length;
  }
  return absl::OkStatus();
}

}  // namespace hixld
