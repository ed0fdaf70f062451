#include "client/cpp/direct_path.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/log.h"
#include "client/cpp/mapped_range.h"
#include "client/cpp/snapshot_cell.h"
#include "proto/base/copy_bytes.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

// Blocks of plain memory that one system call copies.
constexpr size_t kMaxParts = 64;

std::byte* Pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

bool Overlap(const iovec& a, const iovec& b) {
  const auto from = [](const iovec& part) { return reinterpret_cast<uintptr_t>(part.iov_base); };
  return from(a) < from(b) + b.iov_len && from(b) < from(a) + a.iov_len;
}

bool AnyOverlap(const iovec* local, const iovec* remote, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (Overlap(local[i], remote[i])) return true;
  }
  return false;
}

// Within one process. The kernel copies page by page, which is wrong for places that overlap.
bool CopyWithin(pid_t pid, const iovec& target, const iovec& source) {
  if (!Overlap(target, source)) {
    return process_vm_readv(pid, &target, 1, &source, 1, 0) == static_cast<ssize_t>(target.iov_len);
  }
  std::vector<std::byte> between(source.iov_len);
  const iovec middle = {.iov_base = between.data(), .iov_len = between.size()};
  const auto length = static_cast<ssize_t>(between.size());
  return process_vm_readv(pid, &middle, 1, &source, 1, 0) == length &&
         process_vm_writev(pid, &middle, 1, &target, 1, 0) == length;
}

}  // namespace

absl::StatusOr<std::shared_ptr<DirectPath>> DirectPath::Make(std::shared_ptr<Session> session,
                                                             uint64_t channel_id,
                                                             Session::DirectGrant grant) {
  HIXLD_ASSIGN_OR_RETURN(auto gate,
                         direct::Copier::Attach(std::move(grant.gate), std::move(grant.wake)));
  return std::shared_ptr<DirectPath>(
      new DirectPath(std::move(session), channel_id, std::move(grant), std::move(gate)));
}

DirectPath::DirectPath(std::shared_ptr<Session> session, uint64_t channel_id,
                       Session::DirectGrant grant, std::unique_ptr<direct::Copier> gate)
    : session_(std::move(session)),
      channel_id_(channel_id),
      grant_id_(grant.id),
      target_pidfd_(std::move(grant.target_pidfd)),
      gate_(std::move(gate)),
      places_([this] {
        std::vector<Place> places;
        places.reserve(gate_->regions().size());
        for (const direct::Region& region : gate_->regions()) {
          if (region.kind == direct::RegionKind::kHere &&
              !IsMapped(region.address, region.address + region.length)) {
            continue;
          }
          places.push_back({.begin = region.address,
                            .end = region.address + region.length,
                            .file_offset = region.file_offset,
                            .file = region.file,
                            .kind = region.kind});
        }
        return places;
      }()),
      files_(gate_->files()),
      pid_(gate_->target_pid() > 0 ? gate_->target_pid() : getpid()) {
  MutexLock lock(&mutex_);
  mappings_.resize(gate_->files());
}

DirectPath::Way DirectPath::WayBetween(const LocalRange& local, const Place& place) const {
  switch (place.kind) {
    case direct::RegionKind::kFile:
      if (files_[place.file].load(std::memory_order_acquire) == nullptr) return Way::kNone;
      return local.ours ? Way::kMemory : Way::kFile;
    case direct::RegionKind::kHere:
    case direct::RegionKind::kProcess:
      return process_denied_.load(std::memory_order_relaxed) ? Way::kNone : Way::kProcess;
  }
  return Way::kNone;
}

std::byte* DirectPath::Base(const Place& place) const {
  return files_[place.file].load(std::memory_order_acquire)->data() + place.file_offset;
}

// All of a batch is checked before anything moves, as the daemon does it.
DirectPath::Checked DirectPath::Check(const LocalRanges& local, const BatchView& batch) const {
  if (batch.count == 0 || batch.count > gate_->max_descriptors()) return {};
  Checked checked;
  const LocalRange* range = nullptr;
  const Place* place = nullptr;
  for (size_t i = 0; i < batch.count; ++i) {
    const uint64_t length = batch.length(i);
    if (length == 0 || length > gate_->max_bytes() - checked.bytes) return {};
    checked.bytes += length;
    const LocalRange* const here = local.Find(batch.local(i), length, range);
    if (here == nullptr) return {};
    const Place* const there = places_.Find(batch.remote(i), length, place);
    if (there == nullptr) return {};
    if (here == range && there == place) continue;
    range = here;
    place = there;
    const Way way = WayBetween(*range, *place);
    if (way == Way::kNone) return {};
    if (i > 0 && way != checked.way) {
      // One way for all: the kernel copies between mapped memory and files as well.
      if (way == Way::kProcess || checked.way == Way::kProcess) return {};
      checked.way = Way::kFile;
    } else {
      checked.way = way;
    }
  }
  return checked;
}

bool DirectPath::Copy(const LocalRanges& local, TransferDirection direction,
                      const BatchView& batch) {
  if (!usable()) return false;
  const Checked checked = Check(local, batch);
  if (checked.way == Way::kNone) return false;
  const uint32_t lane = ThreadLane();
  if (!gate_->Enter(lane)) return false;
  const bool read = direction == TransferDirection::kRead;
  bool copied = true;
  if (checked.way == Way::kMemory) {
    CopyMemory(batch, read);
  } else {
    copied = checked.way == Way::kFile ? CopyFile(batch, read) : CopyProcess(batch, read);
  }
  if (copied) gate_->Count(lane, read, checked.bytes, batch.count);
  gate_->Leave(lane);
  return copied;
}

// Neighbours on both sides are one copy, as in the daemon.
void DirectPath::CopyMemory(const BatchView& batch, bool read) const {
  const Place* place = nullptr;
  std::byte* base = nullptr;  // of the place
  Block block = {};
  for (size_t i = 0; i < batch.count; ++i) {
    const uint64_t length = batch.length(i);
    const Place* const there = places_.Find(batch.remote(i), length, place);
    if (there != place) {
      place = there;
      base = Base(*place);
    }
    std::byte* const remote = base + (batch.remote(i) - place->begin);
    std::byte* const local = Pointer(batch.local(i));
    std::byte* const target = read ? local : remote;
    const std::byte* const source = read ? remote : local;
    if (target == block.target + block.length && source == block.source + block.length) {
      block.length += length;
      continue;
    }
    if (block.length > 0) {
      PrefetchBlock(target, source, length);
      CopyBytes(block.target, block.source, block.length, /*streaming=*/false);
    }
    block = {.target = target, .source = source, .length = length};
  }
  CopyBytes(block.target, block.source, block.length, /*streaming=*/false);
}

// A page that is not there is an error here, where a copy would end the process.
bool DirectPath::CopyFile(const BatchView& batch, bool read) const {
  const Place* place = nullptr;
  for (size_t i = 0; i < batch.count; ++i) {
    place = places_.Find(batch.remote(i), batch.length(i), place);
    const int fd = files_[place->file].load(std::memory_order_acquire)->fd();
    const auto at = static_cast<off_t>(place->file_offset + (batch.remote(i) - place->begin));
    std::byte* const local = Pointer(batch.local(i));
    const uint64_t length = batch.length(i);
    const ssize_t moved = read ? pread(fd, local, length, at) : pwrite(fd, local, length, at);
    if (moved < 0 || static_cast<uint64_t>(moved) != length) return false;
  }
  return true;
}

// The pid is the target's as long as its pidfd says that it lives: nobody can have been given it
// before. It is looked at for every call; the kernel checks the rights.
bool DirectPath::CopyProcess(const BatchView& batch, bool read) {
  for (size_t first = 0; first < batch.count; first += kMaxParts) {
    iovec local[kMaxParts];
    iovec remote[kMaxParts];
    const size_t count = std::min(batch.count - first, kMaxParts);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t length = batch.length(first + i);
      local[i] = {.iov_base = Pointer(batch.local(first + i)), .iov_len = length};
      remote[i] = {.iov_base = Pointer(batch.remote(first + i)), .iov_len = length};
      bytes += length;
    }
    if (!target_pidfd_.valid() && AnyOverlap(local, remote, count)) {
      for (size_t i = 0; i < count; ++i) {
        if (!CopyWithin(pid_, read ? local[i] : remote[i], read ? remote[i] : local[i]))
          return false;
      }
      continue;
    }
    pollfd ended = {.fd = target_pidfd_.get(), .events = POLLIN, .revents = 0};
    if (target_pidfd_.valid() && poll(&ended, 1, 0) != 0) return false;
    const ssize_t moved = read ? process_vm_readv(pid_, local, count, remote, count, 0)
                               : process_vm_writev(pid_, local, count, remote, count, 0);
    if (moved < 0 && errno == EPERM) process_denied_.store(true, std::memory_order_relaxed);
    if (moved < 0 || static_cast<uint64_t>(moved) != bytes) return false;
  }
  return true;
}

bool DirectPath::MapFor(const BatchView& batch, PeerFiles* files, int64_t deadline) {
  bool mapped = false;
  const Place* place = nullptr;
  for (size_t i = 0; i < batch.count; ++i) {
    const uint64_t length = batch.length(i);
    const Place* const found = length == 0 ? nullptr : places_.Find(batch.remote(i), length, place);
    if (found == nullptr) return false;
    if (found == place) continue;
    place = found;
    if (place->kind != direct::RegionKind::kFile ||
        files_[place->file].load(std::memory_order_acquire) != nullptr) {
      continue;
    }
    const absl::Status status = MapFile(place->file, files, deadline);
    if (!status.ok()) {
      Log(LogLevel::kInfo, absl::StrCat("a peer's memory is not mapped: ", status.message()));
      return false;
    }
    mapped = true;
  }
  return mapped;
}

absl::Status DirectPath::MapFile(uint32_t file, PeerFiles* files, int64_t deadline) {
  HIXLD_ASSIGN_OR_RETURN(std::shared_ptr<const PeerFile> mapped,
                         session_->GetDirectFile(grant_id_, file, files, deadline));
  for (const direct::Region& region : gate_->regions()) {
    if (region.kind == direct::RegionKind::kFile && region.file == file &&
        region.file_offset + region.length > mapped->size()) {
      return Failed("hixld grants memory beyond the end of its file", {.object = "hixld"});
    }
  }
  MutexLock lock(&mutex_);
  const PeerFile* const raw = mapped.get();
  mappings_[file] = std::move(mapped);
  files_[file].store(raw, std::memory_order_release);
  return absl::OkStatus();
}

}  // namespace hixld::client
