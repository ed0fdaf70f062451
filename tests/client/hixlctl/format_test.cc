// The text and JSON forms, without a daemon.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "client/hixlctl/human.h"
#include "client/hixlctl/json.h"
#include "client/hixlctl/table.h"
#include "proto/hixl/v1/admin.pb.h"

namespace hixld::hixlctl {
namespace {

TEST_CASE("bytes for people") {
  CHECK(HumanBytes(0) == "0 B");
  CHECK(HumanBytes(1023) == "1023 B");
  CHECK(HumanBytes(1024) == "1 KiB");
  CHECK(HumanBytes(1536) == "1.5 KiB");
  CHECK(HumanBytes(1280ULL << 20) == "1.25 GiB");
  CHECK(HumanBytes((12ULL << 30) + (1ULL << 29)) == "12.5 GiB");
  CHECK(HumanBytes(1000ULL << 20) == "1000 MiB");
  CHECK(HumanBytes(100ULL << 20) == "100 MiB");
  CHECK(HumanBytes(64ULL << 20) == "64 MiB");
  CHECK(HumanBytes((1ULL << 30) - 1) == "1 GiB");
  CHECK(HumanBytes(UINT64_MAX) == "16 EiB");
}

TEST_CASE("times for people") {
  CHECK(HumanMicros(0) == "0 us");
  CHECK(HumanMicros(999) == "999 us");
  CHECK(HumanMicros(12'300) == "12.3 ms");
  CHECK(HumanMicros(4'500'000) == "4.5 s");
  CHECK(HumanMillis(0) == "0 s");
  CHECK(HumanMillis(303'000) == "5m 03s");
  CHECK(HumanMillis(7'500'000) == "2h 05m");
  CHECK(HumanMillis(273'600'000) == "3d 04h");
}

TEST_CASE("addresses, enumerators and users") {
  CHECK(HumanAddress(0x7f0000001000) == "0x7f0000001000");
  CHECK(EnumWord("TRANSFER_STATE_WAITING", "TRANSFER_STATE_") == "waiting");
  CHECK(UserName(0) == "root");
  CHECK(UserName(3'999'999'999) == "3999999999");
}

TEST_CASE("columns are as wide as their widest cell, numbers on the right") {
  Table table({{"NAME"}, {"COUNT", Align::kRight}, {"LAST"}});
  CHECK(table.ToString("None.") == "None.\n");
  table.AddRow({"a", "1", "x"});
  table.AddRow({"größer", "12345678", ""});
  CHECK(table.ToString("None.") ==
        "NAME       COUNT  LAST\n"
        "a              1  x\n"
        "größer  12345678  -\n");
}

TEST_CASE("what a client sent cannot steer the terminal") {
  CHECK(Printable("a\x1b[2J\nb\x7f") == "a?[2J?b?");
  CHECK(Printable("\xc2\x9b"
                  "1m") == "?1m");
  CHECK(Printable("\xff\xc3") == "??");
  CHECK(Printable("größe €") == "größe €");
}

TEST_CASE("json has every field under its proto name, enumerators as words") {
  hixl::v1::ListRegionsResponse regions;
  auto* const region = regions.add_regions();
  region->set_region_id(7);
  region->set_address(0x7f0000001000);
  region->set_type(hixl::v1::MEMORY_TYPE_DEVICE);
  const auto document = nlohmann::ordered_json::parse(
      ToJson({.message = std::make_shared<const hixl::v1::ListRegionsResponse>(regions)}, true));
  CHECK(document.dump() ==
        R"({"version":1,"regions":[{"region_id":7,"engine_id":"","address":139637976731648,)"
        R"("length":0,"type":"device","access":"unspecified"}]})");
}

TEST_CASE("json of maps, nested lists and answers under a name") {
  hixl::v1::ListEnginesResponse engines;
  auto* const engine = engines.add_engines();
  (*engine->mutable_options())["BufferPool"] = "0:0";
  engine->add_channels()->set_remote_engine("10.0.0.2:1");
  const auto document = nlohmann::json::parse(
      ToJson({.message = std::make_shared<const hixl::v1::ListEnginesResponse>(engines),
              .json_name = "answer"},
             false));
  CHECK(document["answer"]["engines"][0]["options"]["BufferPool"] == "0:0");
  CHECK(document["answer"]["engines"][0]["channels"][0]["remote_engine"] == "10.0.0.2:1");
  CHECK(document["answer"]["engines"][0]["channels"][0]["initiator"] == false);
}

TEST_CASE("json words; an empty one is null; one line unless pretty") {
  CHECK(ToJson({.words = {{"a", "x"}, {"b", ""}}}, false) ==
        "{\"version\":1,\"a\":\"x\",\"b\":null}\n");
}

}  // namespace
}  // namespace hixld::hixlctl
