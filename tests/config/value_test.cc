#include "config/value.h"

#include <catch2/catch.hpp>

namespace hixld {
namespace {

using std::chrono::nanoseconds;

TEST_CASE("sizes are read with every unit and without") {
  CHECK(ParseSize("0") == 0);
  CHECK(ParseSize("1500") == 1500);
  CHECK(ParseSize("7B") == 7);
  CHECK(ParseSize("64KiB") == 65'536);
  CHECK(ParseSize("64 MiB") == 67'108'864);
  CHECK(ParseSize("2GiB") == 2'147'483'648);
  CHECK(ParseSize("1TiB") == 1'099'511'627'776);
}

TEST_CASE("malformed and overflowing sizes are refused") {
  for (const char* text : {"", "MiB", "-1", "+1", "1.5GiB", "64MB", "64mib", "64MiB ", "0x10", " 1",
                           "18446744073709551616", "16777216TiB"}) {
    INFO(text);
    CHECK_FALSE(ParseSize(text).has_value());
  }
  CHECK(ParseSize("18446744073709551615") == UINT64_MAX);
}

TEST_CASE("sizes are written with the largest unit that divides them") {
  CHECK(FormatSize(0) == "0");
  CHECK(FormatSize(1500) == "1500");
  CHECK(FormatSize(67'108'864) == "64MiB");
  CHECK(FormatSize(1'099'511'627'776) == "1TiB");
  CHECK(FormatSize(67'108'864 + 1024) == "65537KiB");
}

TEST_CASE("durations need a unit, except zero") {
  CHECK(ParseDuration("0") == nanoseconds(0));
  CHECK(ParseDuration("5s") == nanoseconds(5'000'000'000));
  CHECK(ParseDuration("500ms") == nanoseconds(500'000'000));
  CHECK(ParseDuration("20us") == nanoseconds(20'000));
  CHECK(ParseDuration("2min") == nanoseconds(120'000'000'000));
  for (const char* text : {"", "5", "5h", "-5s", "1.5s", "s", "9223372036854775807min"}) {
    INFO(text);
    CHECK_FALSE(ParseDuration(text).has_value());
  }
}

TEST_CASE("durations are written with the largest unit that divides them") {
  CHECK(FormatDuration(nanoseconds(0)) == "0");
  CHECK(FormatDuration(nanoseconds(1'500'000'000)) == "1500ms");
  CHECK(FormatDuration(nanoseconds(120'000'000'000)) == "2min");
}

TEST_CASE("modes are octal") {
  CHECK(ParseMode("0660") == 0660U);
  CHECK(ParseMode("600") == 0600U);
  for (const char* text : {"", "0680", "rw", "00660", "-1"}) {
    INFO(text);
    CHECK_FALSE(ParseMode(text).has_value());
  }
  CHECK(FormatMode(0600) == "0600");
}

}  // namespace
}  // namespace hixld
