#include "config/value.h"

#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hixld {
namespace {

struct Unit {
  absl::string_view name;
  uint64_t factor;
};

// Largest first, so that formatting takes the first that divides.
constexpr std::array<Unit, 5> kSizeUnits = {
    {{"TiB", 1ULL << 40}, {"GiB", 1ULL << 30}, {"MiB", 1ULL << 20}, {"KiB", 1ULL << 10}, {"B", 1}}};
constexpr std::array<Unit, 4> kTimeUnits = {
    {{"min", 60'000'000'000}, {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}}};

size_t DigitsIn(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  return digits;
}

// `text` is digits and one of `units`; without a unit the factor is `bare_factor` (0 = malformed,
// unless the number is 0).
template <size_t N>
std::optional<uint64_t> ParseWithUnit(absl::string_view text, const std::array<Unit, N>& units,
                                      uint64_t bare_factor) {
  const size_t digits = DigitsIn(text);
  const std::optional<uint64_t> number = ParseCount(text.substr(0, digits));
  if (!number) return std::nullopt;
  absl::string_view suffix = text.substr(digits);
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  uint64_t factor = bare_factor;
  if (!suffix.empty()) {
    factor = 0;
    for (const Unit& unit : units) {
      if (unit.name == suffix) factor = unit.factor;
    }
    if (factor == 0) return std::nullopt;
  }
  if (factor == 0 && *number != 0) return std::nullopt;
  uint64_t result;
  if (__builtin_mul_overflow(*number, factor, &result)) return std::nullopt;
  return result;
}

}  // namespace

std::optional<uint64_t> ParseCount(absl::string_view text) {
  uint64_t value;
  if (text.empty() || DigitsIn(text) != text.size() || !absl::SimpleAtoi(text, &value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<uint64_t> ParseSize(absl::string_view text) {
  return ParseWithUnit(text, kSizeUnits, 1);
}

std::string FormatSize(uint64_t bytes) {
  for (const Unit& unit : kSizeUnits) {
    if (unit.factor > 1 && bytes > 0 && bytes % unit.factor == 0) {
      return absl::StrCat(bytes / unit.factor, unit.name);
    }
  }
  return absl::StrCat(bytes);
}

std::optional<std::chrono::nanoseconds> ParseDuration(absl::string_view text) {
  const std::optional<uint64_t> nanos = ParseWithUnit(text, kTimeUnits, 0);
  if (!nanos || *nanos > INT64_MAX) return std::nullopt;
  return std::chrono::nanoseconds(*nanos);
}

std::string FormatDuration(std::chrono::nanoseconds duration) {
  const uint64_t nanos = static_cast<uint64_t>(duration.count());
  for (const Unit& unit : kTimeUnits) {
    if (nanos > 0 && nanos % unit.factor == 0) return absl::StrCat(nanos / unit.factor, unit.name);
  }
  return absl::StrCat(nanos / kTimeUnits.back().factor, nanos == 0 ? "" : "us");
}

std::optional<uint32_t> ParseMode(absl::string_view text) {
  if (text.empty() || text.size() > 4) return std::nullopt;
  uint32_t mode = 0;
  for (const char c : text) {
    if (c < '0' || c > '7') return std::nullopt;
    mode = mode * 8 + static_cast<uint32_t>(c - '0');
  }
  return mode;
}

std::string FormatMode(uint32_t mode) { return absl::StrFormat("%04o", mode); }

}  // namespace hixld
