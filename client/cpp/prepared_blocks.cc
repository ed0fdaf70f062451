#include "client/cpp/prepared_blocks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status.h"

namespace hixld::client {
namespace {

using hixl::BlockBatch;
using hixl::BlockTable;

constexpr size_t kMaxTables = 65536;

absl::Status BadTable(const std::string& name, absl::string_view field, uint64_t value,
                      const std::string& allowed) {
  return ParamInvalid(absl::StrCat(name, ": ", field, " is ", value, "; allowed: ", allowed),
                      {.object = name, .allowed = allowed});
}

absl::Status CheckTable(const std::string& name, const BlockTable& table) {
  if (table.base == 0) return BadTable(name, "base", 0, "an address above 0");
  if (table.block_bytes == 0) return BadTable(name, "block_bytes", 0, "1 and more");
  if (table.count == 0) return BadTable(name, "count", 0, "1 and more");
  if (table.stride < table.block_bytes) {
    return BadTable(name, "stride", table.stride,
                    absl::StrCat("block_bytes (", table.block_bytes, ") and more"));
  }
  const uint64_t last = table.count - 1;
  const uint64_t room = UINT64_MAX - table.base;
  if (table.block_bytes > room || (last != 0 && table.stride > (room - table.block_bytes) / last)) {
    return BadTable(name, "count", table.count, "blocks that end below 2^64");
  }
  return absl::OkStatus();
}

// The highest index decides whether all fit; which one does not is only asked after.
absl::Status CheckIndices(const std::string& name, absl::Span<const uint32_t> blocks,
                          uint32_t count) {
  uint32_t highest = 0;
  for (const uint32_t block : blocks) highest = std::max(highest, block);
  if (highest < count) return absl::OkStatus();
  const auto bad = std::find_if(blocks.begin(), blocks.end(),
                                [count](uint32_t block) { return block >= count; });
  const std::string object = absl::StrCat(name, "[", bad - blocks.begin(), "]");
  const std::string allowed = absl::StrCat("0..", count - 1);
  return ParamInvalid(absl::StrCat(object, " is ", *bad, "; allowed: ", allowed),
                      {.object = object, .allowed = allowed});
}

absl::Status CheckShape(const BlockBatch& batch) {
  if (batch.table_count == 0 || batch.table_count > kMaxTables) {
    return BadTable("the batch of blocks", "table_count", batch.table_count,
                    absl::StrCat("1..", kMaxTables));
  }
  if (batch.local_tables == nullptr || batch.remote_tables == nullptr) {
    return ParamInvalid("the tables of the batch of blocks are null", {.object = "batch"});
  }
  if (batch.block_count > 0 && (batch.local_blocks == nullptr || batch.remote_blocks == nullptr)) {
    return ParamInvalid("the indices of the batch of blocks are null", {.object = "batch"});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PreparedBlocks::Prepare(const BlockBatch& batch) {
  HIXLD_RETURN_IF_ERROR(CheckShape(batch));
  uint32_t local_count = UINT32_MAX;
  uint32_t remote_count = UINT32_MAX;
  tables_.clear();
  tables_.reserve(batch.table_count);
  for (size_t i = 0; i < batch.table_count; ++i) {
    const BlockTable& local = batch.local_tables[i];
    const BlockTable& remote = batch.remote_tables[i];
    HIXLD_RETURN_IF_ERROR(CheckTable(absl::StrCat("local table ", i), local));
    HIXLD_RETURN_IF_ERROR(CheckTable(absl::StrCat("remote table ", i), remote));
    if (local.block_bytes != remote.block_bytes) {
      return BadTable(absl::StrCat("remote table ", i), "block_bytes", remote.block_bytes,
                      absl::StrCat("that of the local table, ", local.block_bytes));
    }
    local_count = std::min(local_count, local.count);
    remote_count = std::min(remote_count, remote.count);
    tables_.push_back({.local_base = local.base,
                       .local_stride = local.stride,
                       .remote_base = remote.base,
                       .remote_stride = remote.stride,
                       .block_bytes = local.block_bytes});
  }
  blocks_.tables = tables_;
  blocks_.local_blocks = {batch.local_blocks, batch.block_count};
  blocks_.remote_blocks = {batch.remote_blocks, batch.block_count};
  HIXLD_RETURN_IF_ERROR(CheckIndices("local_blocks", blocks_.local_blocks, local_count));
  HIXLD_RETURN_IF_ERROR(CheckIndices("remote_blocks", blocks_.remote_blocks, remote_count));
  count_ = batch.table_count * batch.block_count;
  return absl::OkStatus();
}

}  // namespace hixld::client
