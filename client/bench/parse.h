// Numbers, sizes and times as people write them on a command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hixld::bench {

// The values that an option takes; both ends included.
struct Bounds {
  uint64_t low;
  uint64_t high;
};

// Errors are PARAM_INVALID and name `option`, the value and what is allowed.

// "4096", "16K", "16KiB", "1MB" (all powers of 1024), up to 'T'.
absl::StatusOr<uint64_t> ParseSize(absl::string_view option, absl::string_view text, Bounds bounds);
// A plain decimal number.
absl::StatusOr<uint64_t> ParseCount(absl::string_view option, absl::string_view text,
                                    Bounds bounds);
// "500us", "20ms", "1.5s", "2min"; nanoseconds. `bounds` are nanoseconds too.
absl::StatusOr<int64_t> ParseDuration(absl::string_view option, absl::string_view text,
                                      Bounds bounds);

using NumberParser = absl::StatusOr<uint64_t> (*)(absl::string_view option, absl::string_view text,
                                                  Bounds bounds);
// "4K,64K,1M", where an element "4K..64K" stands for every doubling from 4K to 64K. At most 1024
// values, at least one.
absl::StatusOr<std::vector<uint64_t>> ParseList(absl::string_view option, absl::string_view text,
                                                Bounds bounds, NumberParser parse);

// One of `allowed`, as its index.
absl::StatusOr<size_t> ParseChoice(absl::string_view option, absl::string_view text,
                                   const std::vector<std::string>& allowed);
// Several of `allowed`, as indices, in the order given, each at most once.
absl::StatusOr<std::vector<size_t>> ParseChoices(absl::string_view option, absl::string_view text,
                                                 const std::vector<std::string>& allowed);

// "4096" -> "4K", "1536" -> "1536", "1M"; the shortest exact form.
std::string FormatSize(uint64_t bytes);
// "1.5 s", "20 ms", "800 us".
std::string FormatDuration(int64_t nanos);
// Three significant digits with the unit's letter: "1.02M", "345k", "12.3".
std::string FormatRate(double value);

}  // namespace hixld::bench
