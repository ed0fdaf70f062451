#include "client/bench/parse.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/clock.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

constexpr size_t kMaxListValues = 1024;

absl::Status Refuse(absl::string_view option, absl::string_view text, absl::string_view allowed) {
  return ParamInvalid(absl::StrCat(option, ": \"", text, "\" is not allowed"),
                      {.object = std::string(option), .allowed = std::string(allowed)});
}

// The power of 1024 that a unit stands for; -1 for no known unit.
int SizeExponent(std::string unit) {
  absl::AsciiStrToLower(&unit);
  if (unit.empty() || unit == "b") return 0;
  if (unit.size() > 3 || (unit.size() >= 2 && unit.substr(1) != "b" && unit.substr(1) != "ib")) {
    return -1;
  }
  const size_t index = std::string("kmgt").find(unit[0]);
  return index == std::string::npos ? -1 : static_cast<int>(index) + 1;
}

// Splits "16KiB" into the number's text and the unit.
std::pair<std::string, std::string> SplitUnit(absl::string_view text) {
  size_t end = 0;
  while (end < text.size() && (absl::ascii_isdigit(text[end]) || text[end] == '.')) ++end;
  return {std::string(text.substr(0, end)),
          std::string(absl::StripAsciiWhitespace(text.substr(end)))};
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(absl::string_view option, absl::string_view text,
                                   Bounds bounds) {
  const std::string allowed = absl::StrCat("a size from ", FormatSize(bounds.low), " to ",
                                           FormatSize(bounds.high), ", such as 4096, 16K or 1MiB");
  const auto [digits, unit] = SplitUnit(text);
  const int exponent = SizeExponent(unit);
  uint64_t number = 0;
  if (exponent < 0 || !absl::SimpleAtoi(digits, &number)) return Refuse(option, text, allowed);
  const uint64_t scale = uint64_t{1} << (10 * exponent);
  if (number > bounds.high / scale || number * scale < bounds.low) {
    return Refuse(option, text, allowed);
  }
  return number * scale;
}

absl::StatusOr<uint64_t> ParseCount(absl::string_view option, absl::string_view text,
                                    Bounds bounds) {
  uint64_t number = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(text, &number) || number < bounds.low || number > bounds.high) {
    return Refuse(option, text, absl::StrCat(bounds.low, "..", bounds.high));
  }
  return number;
}

absl::StatusOr<int64_t> ParseDuration(absl::string_view option, absl::string_view text,
                                      Bounds bounds) {
  const std::string allowed = absl::StrCat(
      "a time from ", FormatDuration(static_cast<int64_t>(bounds.low)), " to ",
      FormatDuration(static_cast<int64_t>(bounds.high)), ", such as 500ms, 1.5s or 2min");
  const auto [digits, unit] = SplitUnit(text);
  double scale = 0;
  if (unit == "us") scale = 1000;
  if (unit == "ms") scale = kNanosPerMilli;
  if (unit == "s") scale = kNanosPerSecond;
  if (unit == "min") scale = 60.0 * kNanosPerSecond;
  double number = 0;
  if ((scale == 0 && text != "0") || !absl::SimpleAtod(digits, &number)) {
    return Refuse(option, text, allowed);
  }
  const double nanos = number * scale;
  if (!(nanos >= static_cast<double>(bounds.low) && nanos <= static_cast<double>(bounds.high))) {
    return Refuse(option, text, allowed);
  }
  return static_cast<int64_t>(nanos);
}

absl::StatusOr<std::vector<uint64_t>> ParseList(absl::string_view option, absl::string_view text,
                                                Bounds bounds, NumberParser parse) {
  std::vector<uint64_t> values;
  for (absl::string_view element : absl::StrSplit(text, ',')) {
    element = absl::StripAsciiWhitespace(element);
    const std::vector<absl::string_view> ends = absl::StrSplit(element, "..");
    HIXLD_ASSIGN_OR_RETURN(const uint64_t first, parse(option, ends.front(), bounds));
    HIXLD_ASSIGN_OR_RETURN(const uint64_t last, parse(option, ends.back(), bounds));
    if (ends.size() > 2 || last < first) {
      return Refuse(option, element, "values, or ranges LOW..HIGH, separated by commas");
    }
    for (uint64_t value = first; value <= last; value = value == 0 ? 1 : value * 2) {
      values.push_back(value);
      if (value > last / 2) break;
    }
    if (values.size() > kMaxListValues) {
      return Refuse(option, text, absl::StrCat("at most ", kMaxListValues, " values"));
    }
  }
  return values;
}

absl::StatusOr<size_t> ParseChoice(absl::string_view option, absl::string_view text,
                                   const std::vector<std::string>& allowed) {
  const auto found = std::find(allowed.begin(), allowed.end(), text);
  if (found == allowed.end()) return Refuse(option, text, absl::StrJoin(allowed, " | "));
  return static_cast<size_t>(found - allowed.begin());
}

absl::StatusOr<std::vector<size_t>> ParseChoices(absl::string_view option, absl::string_view text,
                                                 const std::vector<std::string>& allowed) {
  std::vector<size_t> chosen;
  for (absl::string_view element : absl::StrSplit(text, ',')) {
    HIXLD_ASSIGN_OR_RETURN(const size_t index,
                           ParseChoice(option, absl::StripAsciiWhitespace(element), allowed));
    if (std::find(chosen.begin(), chosen.end(), index) != chosen.end()) {
      return Refuse(option, text, absl::StrCat(absl::StrJoin(allowed, " | "), ", each once"));
    }
    chosen.push_back(index);
  }
  return chosen;
}

std::string FormatSize(uint64_t bytes) {
  constexpr char kUnits[] = "KMGT";
  std::string unit;
  for (const char* next = kUnits; *next != '\0' && bytes >= 1024 && bytes % 1024 == 0; ++next) {
    bytes /= 1024;
    unit = std::string(1, *next);
  }
  return absl::StrCat(bytes, unit);
}

std::string FormatDuration(int64_t nanos) {
  const double value = static_cast<double>(nanos);
  if (nanos >= 60 * kNanosPerSecond) return absl::StrFormat("%.3g min", value / 60e9);
  if (nanos >= kNanosPerSecond) return absl::StrFormat("%.3g s", value / 1e9);
  if (nanos >= kNanosPerMilli) return absl::StrFormat("%.3g ms", value / 1e6);
  return absl::StrFormat("%.3g us", value / 1e3);
}

std::string FormatRate(double value) {
  const char* unit = "";
  if (value >= 1e6) {
    value /= 1e6;
    unit = "M";
  } else if (value >= 1e3) {
    value /= 1e3;
    unit = "k";
  }
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return absl::StrFormat("%.*f%s", decimals, value, unit);
}

}  // namespace hixld::bench
