// The socket baseline: bytes through plain TCP connections, a thread per stream and direction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/bench/side_channel.h"
#include "proto/base/fd.h"

namespace hixld::bench {

struct PumpOrder {
  uint64_t streams = 1;
  // From the target to the initiator, as a read moves bytes.
  bool towards_initiator = false;
  // The sender hands pages over (sendfile from a memfd) instead of copying them.
  bool zero_copy = false;
  int64_t duration = 0;

  // "pump streams=2 ...", and back.
  std::string ToText() const;
  static absl::StatusOr<PumpOrder> FromText(absl::string_view text);
};

// Sends on all streams for `duration`, closes them for writing and waits until the other side has
// read everything and closed. Returns the bytes sent.
absl::StatusOr<uint64_t> PumpOut(const std::vector<UniqueFd>& streams, const PumpOrder& order);
// Receives until all senders are through. Returns the bytes received.
absl::StatusOr<uint64_t> PumpIn(const std::vector<UniqueFd>& streams);

// The target's part of an order: listens on the address by which the initiator reached it, answers
// with the port, pumps, and answers again.
absl::Status ServePump(LineSocket& initiator, const PumpOrder& order);
// The initiator's part. Returns gigabytes (10^9) per second.
absl::StatusOr<double> RunPump(LineSocket& target, const PumpOrder& order);

}  // namespace hixld::bench
