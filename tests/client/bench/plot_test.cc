#include "client/bench/plot.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/bench/report.h"

namespace hixld::bench {
namespace {

// Whether every element of an XML text is closed in the right order and no text holds a bare '<',
// '&' or '"' that was not escaped.
bool WellFormed(const std::string& xml) {
  std::vector<std::string> open;
  size_t at = xml.find("?>") + 2;
  while ((at = xml.find('<', at)) != std::string::npos) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos || xml.find('<', at + 1) < end) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    const std::string name =
        tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    at = end;
  }
  for (size_t and_at = xml.find('&'); and_at != std::string::npos;
       and_at = xml.find('&', and_at + 1)) {
    if (xml.find(';', and_at) > and_at + 5) return false;
  }
  return open.empty();
}

CaseResult Result(uint64_t block, double rate) {
  CaseResult result;
  result.what.plan.block = block;
  result.gigabytes = {rate, rate + 1, rate - 1};
  result.transfers = {1000};
  result.blocks = {1000};
  result.latency.Add(2000);
  return result;
}

TEST_CASE("a chart is well-formed XML, whatever its names hold") {
  Chart chart = {"a < b & \"c\"",
                 "x",
                 "y",
                 true,
                 {{"one & <two>", false, {{4096, 1.5}, {65536, 7}}}, {"three", true, {{4096, 2}}}}};
  const std::string svg = RenderSvg(chart);
  CHECK(WellFormed(svg));
  CHECK(svg.find("one &amp; &lt;two&gt;") != std::string::npos);
  CHECK(svg.find(">4K<") != std::string::npos);
  CHECK(svg.find(">64K<") != std::string::npos);
  CHECK(svg.find("stroke-dasharray") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}

TEST_CASE("empty and single-point charts are drawn too") {
  for (const Chart& chart : {Chart{"none", "x", "y", false, {}},
                             Chart{"one", "x", "y", true, {{"p", false, {{1, 0}}}}}}) {
    const std::string svg = RenderSvg(chart);
    CHECK(WellFormed(svg));
    CHECK(svg.find("nan") == std::string::npos);
  }
}

TEST_CASE("every point lies inside the frame") {
  const std::string svg =
      RenderSvg({"t", "x", "y", true, {{"p", false, {{3, 99.9}, {1 << 20, 0}}}}});
  size_t at = 0;
  int points = 0;
  while ((at = svg.find("<circle cx=\"", at)) != std::string::npos) {
    const double x = std::stod(svg.substr(at + 12));
    const double y = std::stod(svg.substr(svg.find("cy=\"", at) + 4));
    CHECK(x >= 70);
    CHECK(x <= 710);
    CHECK(y >= 50);
    CHECK(y <= 430);
    ++points;
    ++at;
  }
  CHECK(points == 2);
}

TEST_CASE("the x axis is what varies most, the rest names the series") {
  std::vector<CaseResult> results;
  for (const uint64_t block : {4096, 8192, 16384}) {
    for (const uint64_t batch : {1, 32}) {
      results.push_back(Result(block, 5));
      results.back().what.plan.batch = batch;
      results.back().memcpy = {true, {10}, {0.5}};
    }
  }
  const Chart chart = ChartOf(results);
  CHECK(chart.x_title == "block size");
  REQUIRE(chart.series.size() == 4);
  CHECK(chart.series[0].name == "hixld batch 1");
  CHECK(chart.series[0].points.size() == 3);
  CHECK(chart.series[2].dashed);
  CHECK(WellFormed(RenderSvg(chart)));
  for (CaseResult& result : results) result.what.plan.block = 4096;
  CHECK(ChartOf(results).x_title == "batch");
}

TEST_CASE("a JSON line holds the medians and the baselines that were measured") {
  CaseResult result = Result(4096, 5);
  result.grpc = {true, {60, 70}, {30, 35}};
  const std::string line = JsonLine(result, {});
  CHECK(line.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(line);
  CHECK(json["gb_per_s"] == 5.0);
  CHECK(json["block_bytes"] == 4096);
  CHECK(json["p50_us"] == 2.0);
  CHECK(json["grpc"]["p50_us"] == 65.0);
  CHECK(json["grpc"]["ratio"] == 32.5);
  CHECK(!json.contains("memcpy"));
}

}  // namespace
}  // namespace hixld::bench
