#include "client/bench/movers.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/bench/parse.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

// Blocks of one thread, cut into transfers.
class CutBlocks {
 public:
  CutBlocks(std::vector<Block> blocks, uint64_t batch) : blocks_(std::move(blocks)) {
    for (uint64_t from = 0; from < blocks_.size(); from += batch) {
      const uint64_t to = std::min<uint64_t>(from + batch, blocks_.size());
      uint64_t bytes = 0;
      for (uint64_t i = from; i < to; ++i) bytes += blocks_[i].length;
      cuts_.push_back({from, to, bytes});
    }
  }
  struct Cut {
    uint64_t from;
    uint64_t to;
    uint64_t bytes;
  };
  const std::vector<Cut>& cuts() const { return cuts_; }
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  std::vector<Block> blocks_;
  std::vector<Cut> cuts_;
};

class TransferMover : public Mover {
 public:
  TransferMover(Engine& engine, const Plan& plan, CutBlocks blocks, Places places,
                const TransferSettings& settings)
      : engine_(engine),
        plan_(plan),
        blocks_(std::move(blocks)),
        settings_(settings),
        remote_engine_(settings.remote_engine.c_str()),
        requests_(settings.depth) {
    Make(places);
  }

  uint64_t count() const override { return blocks_.cuts().size(); }
  uint64_t blocks(uint64_t index) const override {
    return blocks_.cuts()[index].to - blocks_.cuts()[index].from;
  }
  uint64_t bytes(uint64_t index) const override { return blocks_.cuts()[index].bytes; }

  absl::Status Move(uint64_t index) override {
    const hixl::Status status = TransferSync(index);
    return status == hixl::SUCCESS ? absl::OkStatus() : FromHixl(status, Describe(index));
  }

  absl::Status Submit(uint64_t index, uint64_t slot) override {
    const hixl::Status status = TransferAsync(index, requests_[slot]);
    return status == hixl::SUCCESS ? absl::OkStatus() : FromHixl(status, Describe(index));
  }

  absl::StatusOr<bool> Done(uint64_t slot) override {
    hixl::TransferStatus state = hixl::TransferStatus::WAITING;
    const hixl::Status status = engine_.hixl().GetTransferStatus(requests_[slot], state);
    if (state == hixl::TransferStatus::COMPLETED) return true;
    if (status == hixl::SUCCESS && state == hixl::TransferStatus::WAITING) return false;
    return FromHixl(status == hixl::SUCCESS ? hixl::FAILED : status,
                    "an asynchronous transfer has failed");
  }

 private:
  hixl::Status TransferSync(uint64_t index) {
    switch (settings_.form) {
      case BatchForm::kArrays:
        return hixl::HixlExt::TransferSync(engine_.hixl(), remote_engine_, Op(index), Arrays(index),
                                           settings_.timeout_ms);
      case BatchForm::kBlocks:
        return hixl::HixlExt::TransferSync(engine_.hixl(), remote_engine_, Op(index), Blocks(index),
                                           settings_.timeout_ms);
      case BatchForm::kDescriptors:
        break;
    }
    return engine_.hixl().TransferSync(remote_engine_, Op(index), descriptors_[index],
                                       settings_.timeout_ms);
  }
  hixl::Status TransferAsync(uint64_t index, hixl::TransferReq& request) {
    switch (settings_.form) {
      case BatchForm::kArrays:
        return hixl::HixlExt::TransferAsync(engine_.hixl(), remote_engine_, Op(index),
                                            Arrays(index), {}, request);
      case BatchForm::kBlocks:
        return hixl::HixlExt::TransferAsync(engine_.hixl(), remote_engine_, Op(index),
                                            Blocks(index), {}, request);
      case BatchForm::kDescriptors:
        break;
    }
    return engine_.hixl().TransferAsync(remote_engine_, Op(index), descriptors_[index], {},
                                        request);
  }
  void Make(Places places) {
    switch (settings_.form) {
      case BatchForm::kDescriptors:
        return MakeDescriptors(places);
      case BatchForm::kArrays:
        return MakeArrays(places);
      case BatchForm::kBlocks:
        return MakeBlocks(places);
    }
  }
  // One table per side covers the thread's area.
  void MakeBlocks(Places places) {
    const uint64_t stride = BlockStride(plan_);
    uint64_t local = UINT64_MAX;
    uint64_t remote = UINT64_MAX;
    for (const Block& block : blocks_.blocks()) {
      local = std::min(local, block.local);
      remote = std::min(remote, block.remote);
    }
    for (const Block& block : blocks_.blocks()) {
      local_blocks_.push_back(static_cast<uint32_t>((block.local - local) / stride));
      remote_blocks_.push_back(static_cast<uint32_t>((block.remote - remote) / stride));
    }
    const auto count = [](const std::vector<uint32_t>& indices) {
      return *std::max_element(indices.begin(), indices.end()) + 1;
    };
    local_table_ = {places.local + local, stride, plan_.block, count(local_blocks_)};
    remote_table_ = {places.remote + remote, stride, plan_.block, count(remote_blocks_)};
  }
  hixl::BlockBatch Blocks(uint64_t index) const {
    const uint64_t from = blocks_.cuts()[index].from;
    return {&local_table_,        &remote_table_,        1,
            &local_blocks_[from], &remote_blocks_[from], blocks(index)};
  }
  void MakeArrays(Places places) {
    for (const Block& block : blocks_.blocks()) {
      local_.push_back(places.local + block.local);
      remote_.push_back(places.remote + block.remote);
      lengths_.push_back(block.length);
    }
  }
  void MakeDescriptors(Places places) {
    for (const CutBlocks::Cut& cut : blocks_.cuts()) {
      std::vector<hixl::TransferOpDesc>& list = descriptors_.emplace_back();
      list.reserve(cut.to - cut.from);
      for (uint64_t i = cut.from; i < cut.to; ++i) {
        const Block& block = blocks_.blocks()[i];
        list.push_back({places.local + block.local, places.remote + block.remote, block.length});
      }
    }
  }
  hixl::TransferArrays Arrays(uint64_t index) const {
    const uint64_t from = blocks_.cuts()[index].from;
    return {&local_[from], &remote_[from], &lengths_[from], blocks(index)};
  }
  hixl::TransferOp Op(uint64_t index) const {
    return plan_.IsRead(index) ? hixl::READ : hixl::WRITE;
  }
  std::string Describe(uint64_t index) const {
    return absl::StrCat(plan_.IsRead(index) ? "read" : "write", " of ", blocks(index), " x ",
                        FormatSize(plan_.block));
  }

  Engine& engine_;
  const Plan plan_;
  const CutBlocks blocks_;
  const TransferSettings settings_;
  const hixl::AscendString remote_engine_;
  std::vector<hixl::TransferReq> requests_;
  std::vector<std::vector<hixl::TransferOpDesc>> descriptors_;
  std::vector<uint64_t> local_;
  std::vector<uint64_t> remote_;
  std::vector<uint64_t> lengths_;
  hixl::BlockTable local_table_;
  hixl::BlockTable remote_table_;
  std::vector<uint32_t> local_blocks_;
  std::vector<uint32_t> remote_blocks_;
};

class MemcpyMover : public Mover {
 public:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t length;
  };
  void Add(std::vector<Copy> copies) {
    uint64_t bytes = 0;
    for (const Copy& copy : copies) bytes += copy.length;
    bytes_.push_back(bytes);
    transfers_.push_back(std::move(copies));
  }

  uint64_t count() const override { return transfers_.size(); }
  uint64_t blocks(uint64_t index) const override { return transfers_[index].size(); }
  uint64_t bytes(uint64_t index) const override { return bytes_[index]; }
  absl::Status Move(uint64_t index) override {
    for (const Copy& copy : transfers_[index]) std::memcpy(copy.to, copy.from, copy.length);
    return absl::OkStatus();
  }

 private:
  std::vector<std::vector<Copy>> transfers_;
  std::vector<uint64_t> bytes_;
};

using Copies = std::vector<MemcpyMover::Copy>;

// Deals one transfer out to `shares` threads, so that each gets as many bytes as the others.
std::vector<Copies> Deal(const Copies& copies, uint64_t shares) {
  uint64_t total = 0;
  for (const MemcpyMover::Copy& copy : copies) total += copy.length;
  const uint64_t each = (total + shares - 1) / shares;
  std::vector<Copies> dealt(shares);
  uint64_t share = 0;
  uint64_t room = each;
  for (MemcpyMover::Copy copy : copies) {
    while (copy.length > 0) {
      const size_t piece = std::min<size_t>(copy.length, room);
      dealt[share].push_back({copy.to, copy.from, piece});
      copy = {copy.to + piece, copy.from + piece, copy.length - piece};
      room -= piece;
      if (room == 0 && share + 1 < shares) {
        ++share;
        room = each;
      }
    }
  }
  return dealt;
}

}  // namespace

std::vector<std::unique_ptr<Mover>> TransferMovers(Engine& engine, const Plan& plan, Places places,
                                                   const TransferSettings& settings) {
  std::vector<std::unique_ptr<Mover>> movers;
  for (uint64_t thread = 0; thread < plan.threads; ++thread) {
    movers.push_back(std::make_unique<TransferMover>(
        engine, plan, CutBlocks(BlocksOfThread(plan, thread), plan.batch), places, settings));
  }
  return movers;
}

std::vector<std::unique_ptr<Mover>> MemcpyMovers(const Plan& plan, std::byte* local,
                                                 std::byte* remote, uint64_t threads) {
  std::vector<std::unique_ptr<MemcpyMover>> movers;
  for (uint64_t i = 0; i < threads; ++i) movers.push_back(std::make_unique<MemcpyMover>());
  // As many threads as the plan has: each copies what its counterpart transfers. Otherwise every
  // transfer is dealt out.
  const bool one_to_one = threads == plan.threads;
  for (uint64_t thread = 0; thread < plan.threads; ++thread) {
    const CutBlocks blocks(BlocksOfThread(plan, thread), plan.batch);
    for (uint64_t index = 0; index < blocks.cuts().size(); ++index) {
      Copies copies;
      for (uint64_t i = blocks.cuts()[index].from; i < blocks.cuts()[index].to; ++i) {
        const Block& block = blocks.blocks()[i];
        std::byte* const here = local + block.local;
        std::byte* const there = remote + block.remote;
        copies.push_back(plan.IsRead(index) ? MemcpyMover::Copy{here, there, block.length}
                                            : MemcpyMover::Copy{there, here, block.length});
      }
      if (one_to_one) {
        movers[thread]->Add(std::move(copies));
        continue;
      }
      std::vector<Copies> dealt = Deal(copies, threads);
      for (uint64_t i = 0; i < threads; ++i) movers[i]->Add(std::move(dealt[i]));
    }
  }
  return {std::make_move_iterator(movers.begin()), std::make_move_iterator(movers.end())};
}

}  // namespace hixld::bench
