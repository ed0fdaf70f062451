// A line chart as SVG: logarithmic x axis, linear y axis from 0.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/bench/report.h"

namespace hixld::bench {

struct Series {
  std::string name;
  // A baseline is drawn dashed.
  bool dashed = false;
  std::vector<std::pair<double, double>> points;  // x > 0
};

struct Chart {
  std::string title;
  std::string x_title;
  std::string y_title;
  // Powers of two on the x axis are labelled as sizes ("64K").
  bool x_is_size = false;
  std::vector<Series> series;
};

std::string RenderSvg(const Chart& chart);

// GB/s over what the sweep varied most: block size, batch, threads or depth. Everything else that
// varied names the series; baselines are series of their own.
Chart ChartOf(const std::vector<CaseResult>& results);

absl::Status WriteFile(const std::string& path, const std::string& content);

}  // namespace hixld::bench
