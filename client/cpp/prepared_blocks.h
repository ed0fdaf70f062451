// Batches of blocks (HixlExt::BlockBatch), checked once and told to the daemon as indices.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "client/cpp/submitter.h"
#include "hixl/hixl_ext.h"
#include "proto/ring/layout.h"

namespace hixld::client {

// Refers to the batch's index arrays, which must outlive it.
class PreparedBlocks {
 public:
  PreparedBlocks() = default;
  PreparedBlocks(const PreparedBlocks&) = delete;
  PreparedBlocks& operator=(const PreparedBlocks&) = delete;

  // PARAM_INVALID names the table, or the index, that does not fit.
  absl::Status Prepare(const hixl::BlockBatch& batch);
  // Valid after Prepare, as long as this object.
  BatchView view() const { return {.count = count_, .blocks = &blocks_}; }

 private:
  std::vector<ring::BlockTables> tables_;
  BlockView blocks_;
  size_t count_ = 0;
};

}  // namespace hixld::client
