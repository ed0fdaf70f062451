#include "transports/rdma/target_keys.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::rdma {
namespace {

using hixl::wire::v1::RdmaKeyReply;
using hixl::wire::v1::RdmaKeyRequest;

constexpr int kMaxRanges = 1024;
constexpr int kAttempts = 8;
constexpr int kRemoteAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

// The fence came between looking up and registering.
bool IsOvertaken(const absl::Status& status) { return absl::IsAborted(status); }

}  // namespace

TargetKeys::TargetKeys(TargetResolver* resolver, DomainOf domain_of,
                       std::shared_ptr<RegistrationCounters> counters, uint64_t piece_bytes)
    : resolver_(resolver),
      domain_of_(std::move(domain_of)),
      counters_(std::move(counters)),
      piece_bytes_(std::max<uint64_t>(piece_bytes, 4096)) {}

void TargetKeys::Answer(const RdmaKeyRequest& request,
                        const std::function<void(const RdmaKeyReply&)>& send) {
  RdmaKeyReply reply;
  absl::Status status = absl::AbortedError("");
  for (int attempt = 0; IsOvertaken(status) && attempt < kAttempts; ++attempt) {
    reply.Clear();
    {
      MutexLock lock(&mutex_);
      ++channels_[request.channel()].users;
    }
    status = Collect(request, &reply);
    Release(request.channel());
  }
  reply.set_request(request.request());
  if (!status.ok()) {
    reply.clear_keys();
    reply.set_error(std::string(status.message()));
    reply.set_error_detail(SerializeErrorDetail(status));
    // What the resolver refuses is refused for every transport.
    const ApiCode code = ApiCodeOf(status);
    reply.set_try_elsewhere(code != ApiCode::kParamInvalid && code != ApiCode::kNotConnected);
  }
  send(reply);
}

absl::Status TargetKeys::Collect(const RdmaKeyRequest& request, RdmaKeyReply* reply) {
  if (request.ranges_size() == 0 || request.ranges_size() > kMaxRanges) {
    return ParamInvalid(absl::StrCat("a request for keys has ", request.ranges_size(), " ranges"),
                        {.allowed = absl::StrCat("1..", kMaxRanges)});
  }
  for (const auto& range : request.ranges()) {
    HIXLD_RETURN_IF_ERROR(AddRange(request, range.address(), range.length(), reply));
  }
  return absl::OkStatus();
}

absl::Status TargetKeys::AddRange(const RdmaKeyRequest& request, uint64_t address, uint64_t length,
                                  RdmaKeyReply* reply) {
  // Read before the look-up: whatever a later fence takes away is noticed.
  const uint64_t epoch = EpochOf(request.channel());
  std::vector<TargetResolver::Part> parts;
  HIXLD_RETURN_IF_ERROR(resolver_->Resolve(request.channel(), address, length, &parts));
  for (const TargetResolver::Part& part : parts) {
    HIXLD_RETURN_IF_ERROR(AddPart(request, part, address, epoch, reply));
    address += part.length;
  }
  return absl::OkStatus();
}

absl::Status TargetKeys::AddPart(const RdmaKeyRequest& request, const TargetResolver::Part& part,
                                 uint64_t address, uint64_t epoch, RdmaKeyReply* reply) {
  if (!Registrable(*part.memory.access)) {
    return Unsupported(
        absl::StrCat("the network card cannot reach ", part.memory.access->description()));
  }
  // The region is registered in pieces that start at its first byte, those that are needed.
  const uint64_t region_address = address - part.before;
  const uint64_t region_length = part.before + part.length + part.after;
  for (uint64_t piece = part.before / piece_bytes_ * piece_bytes_;
       piece < part.before + part.length; piece += piece_bytes_) {
    const GrantKey key(request.device(), region_address + piece);
    const uint64_t length = std::min(piece_bytes_, region_length - piece);
    {
      MutexLock lock(&mutex_);
      const Channel& channel = channels_[request.channel()];
      if (channel.epoch != epoch) return absl::AbortedError("");
      const auto grant = channel.grants.find(key);
      if (grant != channel.grants.end() && grant->second.length == length) {
        auto* out = reply->add_keys();
        out->set_address(grant->second.address);
        out->set_length(length);
        out->set_remote_address(grant->second.remote_address);
        out->set_key(grant->second.region->remote_key());
        continue;
      }
    }
    HIXLD_ASSIGN_OR_RETURN(Grant made,
                           Make(request.device(), part, region_address + piece, length, piece));
    MutexLock lock(&mutex_);
    if (closed_) return NotConnected("the link is closed");
    Channel& channel = channels_[request.channel()];
    if (channel.epoch != epoch) return absl::AbortedError("");
    auto* out = reply->add_keys();
    out->set_address(made.address);
    out->set_length(length);
    out->set_remote_address(made.remote_address);
    out->set_key(made.region->remote_key());
    channel.grants.insert_or_assign(key, std::move(made));
  }
  return absl::OkStatus();
}

absl::StatusOr<TargetKeys::Grant> TargetKeys::Make(uint32_t device,
                                                   const TargetResolver::Part& part,
                                                   uint64_t address, uint64_t length,
                                                   uint64_t region_offset) const {
  Grant grant;
  grant.domain = domain_of_(device);
  if (grant.domain == nullptr) {
    return Failed(
        absl::StrCat("keys were asked for device ", device, ", which has no lane of this link"));
  }
  grant.address = address;
  grant.length = length;
  grant.pin = part.pin;
  grant.memory = {part.memory.access, part.memory.offset - part.before + region_offset};
  HIXLD_ASSIGN_OR_RETURN(grant.region, RegisterPart(grant.domain.get(), counters_,
                                                    *grant.memory.access, grant.memory.offset,
                                                    length, kRemoteAccess, &grant.remote_address));
  return grant;
}

bool TargetKeys::StillGranted(uint64_t channel, const Grant& grant) const {
  std::vector<TargetResolver::Part> parts;
  if (!resolver_->Resolve(channel, grant.address, grant.length, &parts).ok()) return false;
  return parts.size() == 1 && parts[0].memory.access == grant.memory.access &&
         parts[0].memory.offset == grant.memory.offset;
}

bool TargetKeys::Fence(uint64_t channel) {
  // Ends after the lock is free: ending registrations takes time.
  std::vector<Grant> gone;
  MutexLock lock(&mutex_);
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return false;
  ++at->second.epoch;
  auto& grants = at->second.grants;
  for (auto grant = grants.begin(); grant != grants.end();) {
    if (StillGranted(channel, grant->second)) {
      ++grant;
      continue;
    }
    gone.push_back(std::move(grant->second));
    grant = grants.erase(grant);
  }
  if (grants.empty() && at->second.users == 0) channels_.erase(at);
  return !gone.empty();
}

void TargetKeys::Close() {
  std::map<uint64_t, Channel> gone;
  MutexLock lock(&mutex_);
  closed_ = true;
  gone.swap(channels_);
}

uint64_t TargetKeys::EpochOf(uint64_t channel) {
  MutexLock lock(&mutex_);
  return channels_[channel].epoch;
}

void TargetKeys::Release(uint64_t channel) {
  MutexLock lock(&mutex_);
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return;
  --at->second.users;
  if (at->second.users == 0 && at->second.grants.empty()) channels_.erase(at);
}

}  // namespace hixld::rdma
