#include "client/cpp/transfer_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/log.h"
#include "proto/base/clock.h"

namespace hixld::client {
namespace {

constexpr size_t kMaxPieces = 64;

}  // namespace

TransferTrace::TransferTrace(absl::string_view op, absl::string_view source,
                             absl::string_view target, size_t count,
                             absl::FunctionRef<Piece(size_t)> piece)
    : started_ns_(MonotonicNanos()) {
  const size_t told = std::min(count, kMaxPieces);
  for (size_t i = 0; i < told; ++i) {
    const Piece p = piece(i);
    lines_.push_back(absl::StrFormat("%s %d of %d: source 0x%x of %s, target 0x%x of %s, size %d",
                                     op, i + 1, count, p.source, source, p.target, target,
                                     p.length));
  }
  if (told == count) return;
  uint64_t rest = 0;
  for (size_t i = told; i < count; ++i) rest += piece(i).length;
  lines_.push_back(absl::StrFormat("%s %d to %d of %d: source %s, target %s, size %d", op, told + 1,
                                   count, count, source, target, rest));
}

void TransferTrace::Ended(absl::string_view result) const {
  if (lines_.empty()) return;
  const int64_t micros = (MonotonicNanos() - started_ns_) / 1000;
  for (const std::string& line : lines_) {
    Log(LogLevel::kDebug, absl::StrCat(line, ", time ", micros, " us, ", result));
  }
}

}  // namespace hixld::client
