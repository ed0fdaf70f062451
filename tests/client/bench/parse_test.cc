#include "client/bench/parse.h"

#include <catch2/catch.hpp>
#include <string>

#include "client/bench/text.h"
#include "proto/base/clock.h"

namespace hixld::bench {
namespace {

constexpr Bounds kAny = {0, uint64_t{1} << 50};

uint64_t Size(const std::string& text) {
  const auto size = ParseSize("--block", text, kAny);
  INFO(text);
  REQUIRE(size.ok());
  return *size;
}

TEST_CASE("sizes are powers of 1024 in any spelling") {
  CHECK(Size("4096") == 4096);
  CHECK(Size("16K") == 16384);
  CHECK(Size("16k") == 16384);
  CHECK(Size("16KiB") == 16384);
  CHECK(Size("16KB") == 16384);
  CHECK(Size("3M") == 3u << 20);
  CHECK(Size("1G") == 1u << 30);
  CHECK(Size("2TiB") == uint64_t{2} << 40);
  CHECK(Size("7B") == 7);
}

TEST_CASE("a size that is none is refused with the option and what is allowed") {
  for (const char* text :
       {"", "K", "-1", "1.5K", "4X", "4Kb1", "16Kx", "99999999999999999999", "20000000T"}) {
    INFO(text);
    const auto size = ParseSize("--block", text, {1, 1 << 20});
    REQUIRE(!size.ok());
    CHECK(ErrorText(size.status()).find("--block") == 0);
    CHECK(ErrorText(size.status()).find("1 to 1M") != std::string::npos);
  }
}

TEST_CASE("sizes and counts outside the bounds are refused") {
  CHECK(!ParseSize("--block", "2M", {1, 1 << 20}).ok());
  CHECK(!ParseSize("--block", "0", {1, 1 << 20}).ok());
  CHECK(ParseSize("--block", "1M", {1, 1 << 20}).ok());
  CHECK(!ParseCount("--batch", "0", {1, 8}).ok());
  CHECK(!ParseCount("--batch", "9", {1, 8}).ok());
  CHECK(!ParseCount("--batch", "+1", {1, 8}).ok());
  CHECK(!ParseCount("--batch", "1K", {1, 8}).ok());
  CHECK(*ParseCount("--batch", "8", {1, 8}) == 8);
  CHECK(ErrorText(ParseCount("--batch", "9", {1, 8}).status()).find("1..8") != std::string::npos);
}

TEST_CASE("durations need a unit") {
  const Bounds bounds = {0, 60 * kNanosPerSecond};
  CHECK(*ParseDuration("--warmup", "200ms", bounds) == 200 * kNanosPerMilli);
  CHECK(*ParseDuration("--warmup", "1.5s", bounds) == 1500 * kNanosPerMilli);
  CHECK(*ParseDuration("--warmup", "30us", bounds) == 30'000);
  CHECK(*ParseDuration("--warmup", "1min", bounds) == 60 * kNanosPerSecond);
  CHECK(*ParseDuration("--warmup", "0", bounds) == 0);
  for (const char* text : {"", "5", "s", "-1s", "2min", "1h", "nan s", "1e30s"}) {
    INFO(text);
    CHECK(!ParseDuration("--warmup", text, bounds).ok());
  }
}

TEST_CASE("a list takes values and ranges of doublings") {
  const auto list = ParseList("--block", "1K, 4K..32K,100", kAny, ParseSize);
  REQUIRE(list.ok());
  CHECK(*list == std::vector<uint64_t>{1024, 4096, 8192, 16384, 32768, 100});
  CHECK(*ParseList("--batch", "3..13", kAny, ParseCount) == std::vector<uint64_t>{3, 6, 12});
  for (const char* text : {"", "4K,", "8K..4K", "1..2..3", "..4"}) {
    INFO(text);
    CHECK(!ParseList("--block", text, kAny, ParseSize).ok());
  }
}

TEST_CASE("choices name what is allowed") {
  const std::vector<std::string> allowed = {"read", "write"};
  CHECK(*ParseChoices("--op", "write,read", allowed) == std::vector<size_t>{1, 0});
  const auto bad = ParseChoices("--op", "read,erase", allowed);
  REQUIRE(!bad.ok());
  CHECK(ErrorText(bad.status()) == "--op: \"erase\" is not allowed; allowed: read | write");
  CHECK(!ParseChoices("--op", "read,read", allowed).ok());
}

TEST_CASE("sizes, times and rates are shown in the shortest form") {
  CHECK(FormatSize(4096) == "4K");
  CHECK(FormatSize(1536) == "1536");
  CHECK(FormatSize(uint64_t{5} << 30) == "5G");
  CHECK(FormatSize(0) == "0");
  CHECK(FormatDuration(1'500'000'000) == "1.5 s");
  CHECK(FormatDuration(20'000'000) == "20 ms");
  CHECK(FormatDuration(800) == "0.8 us");
  CHECK(FormatRate(1'020'000) == "1.02M");
  CHECK(FormatRate(345'000) == "345k");
  CHECK(FormatRate(12.34) == "12.3");
  CHECK(FormatRate(999'900) == "1000k");
}

}  // namespace
}  // namespace hixld::bench
