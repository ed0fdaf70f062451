#include "transports/rdma/remote_keys.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::rdma {

absl::Status RemoteKeys::Add(const hixl::wire::v1::RdmaKey& key) {
  if (key.length() == 0 || key.address() > UINT64_MAX - key.length() ||
      key.remote_address() > UINT64_MAX - key.length()) {
    return Failed(absl::StrCat("the peer sent a key for an impossible range, 0x",
                               absl::Hex(key.address()), "+", key.length()));
  }
  const uint64_t end = key.address() + key.length();
  auto at = keys_.upper_bound(key.address());
  if (at != keys_.begin()) {
    auto before = std::prev(at);
    if (before->first + before->second.length > key.address()) at = before;
  }
  while (at != keys_.end() && at->first < end) at = keys_.erase(at);
  keys_[key.address()] = {key.length(), key.remote_address(), key.key()};
  return absl::OkStatus();
}

}  // namespace hixld::rdma
