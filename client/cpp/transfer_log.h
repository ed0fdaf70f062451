// What the library says about single transfers at level DEBUG (contract 5.2): source, target, size
// and time of every piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace hixld::client {

// One transfer, described when it starts, since its batch may be gone when it ends. Empty, and
// then silent, while DEBUG is off.
class TransferTrace {
 public:
  struct Piece {
    uint64_t source = 0;
    uint64_t target = 0;
    uint64_t length = 0;
  };

  TransferTrace() = default;
  // `op` is "READ" or "WRITE"; source and target are engines. At most 64 pieces are told one by
  // one.
  TransferTrace(absl::string_view op, absl::string_view source, absl::string_view target,
                size_t count, absl::FunctionRef<Piece(size_t)> piece);
  // `result`: "SUCCESS", or why not.
  void Ended(absl::string_view result) const;

 private:
  int64_t started_ns_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace hixld::client
