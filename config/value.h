// The text forms of configuration values: "64MiB", "500ms", "0660". Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace hixld {

// Decimal digits only: no sign, no blanks, no overflow. nullopt = malformed.
std::optional<uint64_t> ParseCount(absl::string_view text);

// Bytes: a whole number with an optional unit B, KiB, MiB, GiB or TiB.
std::optional<uint64_t> ParseSize(absl::string_view text);
// With the largest unit that divides the size: "64MiB", "1500".
std::string FormatSize(uint64_t bytes);

// A whole number with a unit us, ms, s or min; "0" needs none.
std::optional<std::chrono::nanoseconds> ParseDuration(absl::string_view text);
// With the largest unit that divides the duration: "500ms".
std::string FormatDuration(std::chrono::nanoseconds duration);

// File permission bits in octal: "0660" or "660".
std::optional<uint32_t> ParseMode(absl::string_view text);
std::string FormatMode(uint32_t mode);

}  // namespace hixld
