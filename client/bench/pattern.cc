#include "client/bench/pattern.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

constexpr size_t kPiece = 4096;

// The eight bytes of the pattern at offset 8 * index.
uint64_t Word(uint64_t seed, uint64_t index) {
  uint64_t z = (seed + index) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 32)) * 0xBF58476D1CE4E5B9u;
  return z ^ (z >> 29);
}

// Writes the pattern's bytes from `offset` (a multiple of 8) on; `size` may be any.
void Generate(uint64_t seed, uint64_t offset, std::byte* data, size_t size) {
  const uint64_t first = offset / 8;
  const size_t words = size / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = Word(seed, first + i);
    std::memcpy(data + 8 * i, &word, 8);
  }
  if (size % 8 != 0) {
    const uint64_t word = Word(seed, first + words);
    std::memcpy(data + 8 * words, &word, size % 8);
  }
}

std::byte ByteAt(uint64_t seed, uint64_t offset) {
  const uint64_t word = Word(seed, offset / 8);
  std::byte bytes[8];
  std::memcpy(bytes, &word, 8);
  return bytes[offset % 8];
}

// A block as the receiving side sees it.
struct Arrival {
  uint64_t to;
  uint64_t from;
  uint64_t length;
  uint64_t thread;
  uint64_t index;
};

// Blocks that land on `side`, in the order of their addresses.
std::vector<Arrival> ArrivalsOf(const Plan& plan, Side side) {
  std::vector<Arrival> arrivals;
  for (uint64_t thread = 0; thread < plan.threads; ++thread) {
    const std::vector<Block> blocks = BlocksOfThread(plan, thread);
    for (uint64_t i = 0; i < blocks.size(); ++i) {
      const bool lands_here = plan.IsRead(i / plan.batch) == (side == Side::kLocal);
      if (!lands_here) continue;
      const Block& block = blocks[i];
      const bool local = side == Side::kLocal;
      arrivals.push_back({local ? block.local : block.remote, local ? block.remote : block.local,
                          block.length, thread, i});
    }
  }
  std::sort(arrivals.begin(), arrivals.end(),
            [](const Arrival& a, const Arrival& b) { return a.to < b.to; });
  return arrivals;
}

absl::Status WrongByte(const std::string& where, const std::byte* data, uint64_t at,
                       std::byte expected) {
  return Failed(absl::StrFormat("check: %s, byte %d of the region is 0x%02x instead of 0x%02x",
                                where, at, static_cast<int>(data[at]), static_cast<int>(expected)));
}

class Verifier {
 public:
  Verifier(const Plan& plan, Side side, uint64_t own_seed, uint64_t other_seed,
           const std::byte* data)
      : plan_(plan), side_(side), own_seed_(own_seed), other_seed_(other_seed), data_(data) {}

  absl::Status Run() const {
    uint64_t position = 0;
    for (const Arrival& arrival : ArrivalsOf(plan_, side_)) {
      HIXLD_RETURN_IF_ERROR(Untouched(position, arrival.to));
      HIXLD_RETURN_IF_ERROR(Arrived(arrival));
      position = arrival.to + arrival.length;
    }
    return Untouched(position, plan_.RegionBytes());
  }

 private:
  absl::Status Untouched(uint64_t from, uint64_t to) const {
    const size_t wrong = FirstMismatch(own_seed_, from, data_ + from, to - from);
    if (wrong == to - from) return absl::OkStatus();
    return WrongByte("outside the blocks that moved here", data_, from + wrong,
                     ByteAt(own_seed_, from + wrong));
  }

  absl::Status Arrived(const Arrival& block) const {
    const size_t wrong = FirstMismatch(other_seed_, block.from, data_ + block.to, block.length);
    if (wrong == block.length) return absl::OkStatus();
    return WrongByte(
        absl::StrFormat("block %d of thread %d, offset %d", block.index, block.thread, wrong),
        data_, block.to + wrong, ByteAt(other_seed_, block.from + wrong));
  }

  const Plan& plan_;
  const Side side_;
  const uint64_t own_seed_;
  const uint64_t other_seed_;
  const std::byte* const data_;
};

}  // namespace

void FillPattern(uint64_t seed, std::byte* data, size_t size) { Generate(seed, 0, data, size); }

size_t FirstMismatch(uint64_t seed, uint64_t offset, const std::byte* data, size_t size) {
  std::byte expected[kPiece + 8];
  size_t done = 0;
  while (done < size) {
    const uint64_t begin = offset + done;
    const size_t skew = begin % 8;
    const size_t piece = std::min(kPiece, size - done);
    Generate(seed, begin - skew, expected, skew + piece);
    if (std::memcmp(expected + skew, data + done, piece) != 0) {
      size_t i = 0;
      while (data[done + i] == expected[skew + i]) ++i;
      return done + i;
    }
    done += piece;
  }
  return size;
}

absl::Status VerifyRegion(const Plan& plan, Side side, uint64_t local_seed, uint64_t remote_seed,
                          const std::byte* data) {
  const bool local = side == Side::kLocal;
  return Verifier(plan, side, local ? local_seed : remote_seed, local ? remote_seed : local_seed,
                  data)
      .Run();
}

}  // namespace hixld::bench
