#include "client/hixlctl/human.h"

#include <pwd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace hixld::hixlctl {
namespace {

constexpr uint64_t kMicrosPerMilli = 1000;
constexpr uint64_t kMicrosPerSecond = 1'000'000;

// Three significant digits at most, no zeros at the end: "1.25", "12.5", "125".
std::string Short(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::string text = absl::StrFormat("%.*f", decimals, value);
  if (decimals > 0) text.erase(text.find_last_not_of('0') + 1);
  if (absl::EndsWith(text, ".")) text.pop_back();
  return text;
}

}  // namespace

std::string HumanBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // What would be printed as 1024 is 1 of the next unit.
  while (value >= 1023.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrCat(Short(value), " ", kUnits[unit]);
}

std::string HumanMicros(uint64_t micros) {
  if (micros < kMicrosPerMilli) return absl::StrCat(micros, " us");
  if (micros < kMicrosPerSecond) {
    return absl::StrCat(Short(static_cast<double>(micros) / kMicrosPerMilli), " ms");
  }
  const uint64_t seconds = micros / kMicrosPerSecond;
  if (seconds < 60)
    return absl::StrCat(Short(static_cast<double>(micros) / kMicrosPerSecond), " s");
  if (seconds < 3600) return absl::StrFormat("%dm %02ds", seconds / 60, seconds % 60);
  if (seconds < 86'400) return absl::StrFormat("%dh %02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%dd %02dh", seconds / 86'400, seconds / 3600 % 24);
}

std::string HumanMillis(uint64_t millis) {
  return millis == 0 ? "0 s" : HumanMicros(millis * kMicrosPerMilli);
}

std::string HumanAddress(uint64_t address) { return absl::StrFormat("0x%x", address); }

std::string EnumWord(absl::string_view enumerator, absl::string_view prefix) {
  return absl::AsciiStrToLower(absl::StripPrefix(enumerator, prefix));
}

std::string UserName(uint32_t uid) {
  const passwd* const user = getpwuid(uid);
  return user == nullptr ? absl::StrCat(uid) : user->pw_name;
}

}  // namespace hixld::hixlctl
