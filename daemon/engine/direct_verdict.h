// Whether every client has left memory that it was copying to; answers of several gates, in one.
#pragma once

#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace hixld {

// Thread-safe.
class DirectVerdict {
 public:
  // The first client that did not leave stands for all.
  void Note(const absl::Status& left) {
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = left;
  }
  absl::Status status() const {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hixld
