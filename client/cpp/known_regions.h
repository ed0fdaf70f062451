// Registered memory of both ends of a session's channels, as far as the daemon has told: a transfer
// within it needs no verdict before it is accepted.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/cpp/submitter.h"
#include "proto/base/mutex.h"
#include "proto/ring/layout.h"
#include "proto/ring/producer.h"

namespace hixld::client {

// Disjoint intervals, sorted; neighbours that touch are one, since a range may span them.
class Intervals {
 public:
  void Add(const ring::Extent& extent);
  // [begin, end) lies in one of them.
  bool Holds(uint64_t begin, uint64_t end) const;
  size_t size() const { return intervals_.size(); }

 private:
  std::vector<ring::Extent> intervals_;
};

// Thread-safe. `gone` is the rings' count of what was deregistered: whatever was learned under
// another one is forgotten.
class KnownRegions {
 public:
  // Every range of the batch is known to be registered.
  bool Hold(uint64_t channel, const BatchView& batch, uint32_t gone);
  void Learn(uint64_t channel, const ring::Producer::Extents& extents, uint32_t gone);

 private:
  struct Sides {
    Intervals local;
    Intervals remote;
  };
  void ForgetOld(uint32_t gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  uint32_t gone_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Sides> by_channel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld::client
