#include "client/bench/plot.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/bench/parse.h"
#include "proto/base/status.h"

namespace hixld::bench {
namespace {

constexpr double kLeft = 70;
constexpr double kTop = 50;
constexpr double kPlotWidth = 640;
constexpr double kPlotHeight = 380;
constexpr double kBottom = 60;
constexpr double kLegendLine = 18;
constexpr double kLegendWidth = 250;
constexpr int kYTicks = 6;
constexpr double kMaxXLabels = 12;
constexpr const char* kColours[] = {"#1f6fb4", "#d1542b", "#2c8a3d", "#8a4fb0",
                                    "#b08a12", "#1a9e9e", "#c23b7a", "#5b5b5b"};

std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string TextAt(double x, double y, const std::string& anchor, const std::string& text,
                   const std::string& more = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y,
                         anchor, more, Escape(text));
}

std::string LineBetween(double x1, double y1, double x2, double y2, const std::string& colour,
                        const std::string& more = "") {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n", x1, y1, x2, y2,
      colour, more);
}

// A step of 1, 2 or 5 times a power of ten, so that `most` takes at most kYTicks steps.
double NiceStep(double most) {
  const double rough = std::max(most, 1e-9) / kYTicks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Renderer {
 public:
  explicit Renderer(const Chart& chart) : chart_(chart) {
    double low = INFINITY;
    double high = 0;
    double top = 0;
    for (const Series& series : chart.series) {
      for (const auto& [x, y] : series.points) {
        low = std::min(low, x);
        high = std::max(high, x);
        top = std::max(top, y);
      }
    }
    if (high == 0) low = high = 1;
    first_ = std::floor(std::log2(low));
    last_ = std::max(first_ + 1, std::ceil(std::log2(high)));
    step_ = NiceStep(top);
    top_ = step_ * std::max(1.0, std::ceil(top / step_ * 1.02));
  }

  std::string Run() {
    const double width = kLeft + kPlotWidth + kLegendWidth;
    const double legend = kTop + kLegendLine * static_cast<double>(chart_.series.size() + 1);
    const double height = std::max(kTop + kPlotHeight + kBottom, legend);
    std::string svg = absl::StrFormat(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
        "width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        width, height, width, height);
    absl::StrAppend(
        &svg, TextAt(kLeft + kPlotWidth / 2, 26, "middle", chart_.title, " font-size=\"16\""));
    absl::StrAppend(&svg, Axes());
    for (size_t i = 0; i < chart_.series.size(); ++i) absl::StrAppend(&svg, Drawn(i));
    absl::StrAppend(&svg, "</svg>\n");
    return svg;
  }

 private:
  double X(double x) const {
    return kLeft + (std::log2(x) - first_) / (last_ - first_) * kPlotWidth;
  }
  double Y(double y) const { return kTop + kPlotHeight - y / top_ * kPlotHeight; }

  std::string Axes() const {
    std::string svg;
    for (double y = 0; y <= top_ * 1.001; y += step_) {
      absl::StrAppend(&svg, LineBetween(kLeft, Y(y), kLeft + kPlotWidth, Y(y), "#dddddd"),
                      TextAt(kLeft - 8, Y(y) + 4, "end", absl::StrFormat("%g", y)));
    }
    const double every = std::max(1.0, std::ceil((last_ - first_) / kMaxXLabels));
    for (double power = first_; power <= last_; power += every) {
      const double value = std::exp2(power);
      const std::string label = chart_.x_is_size && power >= 0
                                    ? FormatSize(static_cast<uint64_t>(value))
                                    : absl::StrFormat("%g", value);
      absl::StrAppend(&svg, LineBetween(X(value), kTop, X(value), kTop + kPlotHeight, "#eeeeee"),
                      TextAt(X(value), kTop + kPlotHeight + 18, "middle", label));
    }
    absl::StrAppend(
        &svg, LineBetween(kLeft, kTop, kLeft, kTop + kPlotHeight, "#333333"),
        LineBetween(kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight, "#333333"),
        TextAt(kLeft + kPlotWidth / 2, kTop + kPlotHeight + 42, "middle", chart_.x_title));
    const double middle = kTop + kPlotHeight / 2;
    absl::StrAppend(&svg, TextAt(20, middle, "middle", chart_.y_title,
                                 absl::StrFormat(" transform=\"rotate(-90 20 %.1f)\"", middle)));
    return svg;
  }

  // A series and its line in the legend.
  std::string Drawn(size_t index) const {
    const Series& series = chart_.series[index];
    const std::string colour = kColours[index % std::size(kColours)];
    const std::string dash = series.dashed ? " stroke-dasharray=\"6 4\"" : "";
    std::vector<std::string> points;
    std::string marks;
    for (const auto& [x, y] : series.points) {
      points.push_back(absl::StrFormat("%.1f,%.1f", X(x), Y(y)));
      absl::StrAppend(
          &marks, absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", X(x),
                                  Y(y), colour));
    }
    const double legend_x = kLeft + kPlotWidth + 16;
    const double legend_y = kTop + kLegendLine * static_cast<double>(index);
    const std::string style = absl::StrCat(" stroke-width=\"2\"", dash);
    return absl::StrCat(absl::StrFormat("<polyline points=\"%s\" fill=\"none\" stroke=\"%s\"%s/>\n",
                                        absl::StrJoin(points, " "), colour, style),
                        marks,
                        LineBetween(legend_x, legend_y, legend_x + 24, legend_y, colour, style),
                        TextAt(legend_x + 30, legend_y + 4, "start", series.name));
  }

  const Chart& chart_;
  double first_ = 0;
  double last_ = 1;
  double step_ = 1;
  double top_ = 1;
};

// What a sweep can vary.
struct Axis {
  const char* name;
  std::string (*text)(const CaseResult&);
  // 0 where it is no number to draw.
  double (*number)(const CaseResult&);
};

double Nothing(const CaseResult&) { return 0; }

constexpr Axis kAxes[] = {
    {"block size", [](const CaseResult& r) { return FormatSize(r.what.plan.block); },
     [](const CaseResult& r) { return static_cast<double>(r.what.plan.block); }},
    {"batch", [](const CaseResult& r) { return absl::StrCat("batch ", r.what.plan.batch); },
     [](const CaseResult& r) { return static_cast<double>(r.what.plan.batch); }},
    {"threads", [](const CaseResult& r) { return absl::StrCat(r.what.plan.threads, " threads"); },
     [](const CaseResult& r) { return static_cast<double>(r.what.plan.threads); }},
    {"depth", [](const CaseResult& r) { return absl::StrCat("depth ", r.what.depth); },
     [](const CaseResult& r) { return static_cast<double>(r.what.depth); }},
    {"op", [](const CaseResult& r) { return OpNames()[static_cast<size_t>(r.what.plan.op)]; },
     &Nothing},
    {"layout",
     [](const CaseResult& r) { return LayoutNames()[static_cast<size_t>(r.what.plan.layout)]; },
     &Nothing},
    {"memory", [](const CaseResult& r) { return MemoryText(r.what); }, &Nothing},
    {"path",
     [](const CaseResult& r) {
       return r.what.path ? PathNames()[static_cast<size_t>(*r.what.path)] : std::string();
     },
     &Nothing},
};

size_t Distinct(const std::vector<CaseResult>& results, const Axis& axis) {
  std::set<std::string> texts;
  for (const CaseResult& result : results) texts.insert(axis.text(result));
  return texts.size();
}

const Axis& XAxis(const std::vector<CaseResult>& results) {
  const Axis* best = &kAxes[0];
  for (const Axis& axis : kAxes) {
    const bool numbers = std::all_of(results.begin(), results.end(),
                                     [&](const CaseResult& r) { return axis.number(r) > 0; });
    if (numbers && Distinct(results, axis) > Distinct(results, *best)) best = &axis;
  }
  return *best;
}

}  // namespace

std::string RenderSvg(const Chart& chart) { return Renderer(chart).Run(); }

Chart ChartOf(const std::vector<CaseResult>& results) {
  const Axis& x = XAxis(results);
  std::vector<const Axis*> names;
  for (const Axis& axis : kAxes) {
    if (&axis != &x && Distinct(results, axis) > 1) names.push_back(&axis);
  }
  std::map<std::string, Series> series;
  const auto add = [&](const std::string& name, bool dashed, double at, double value) {
    Series& line = series[name];
    line.name = name;
    line.dashed = dashed;
    line.points.emplace_back(at, value);
  };
  for (const CaseResult& result : results) {
    std::vector<std::string> parts;
    for (const Axis* axis : names) parts.push_back(axis->text(result));
    const std::string rest = absl::StrJoin(parts, ", ");
    const std::string tail = rest.empty() ? "" : absl::StrCat(" ", rest);
    const double at = x.number(result);
    add(absl::StrCat("hixld", tail), false, at, Median(result.gigabytes));
    const std::pair<const char*, const Comparison*> baselines[] = {
        {"memcpy", &result.memcpy},
        {"socket", &result.socket},
        {"socket zero-copy", &result.socket_zero_copy}};
    for (const auto& [name, comparison] : baselines) {
      if (comparison->measured) {
        add(absl::StrCat(name, tail), true, at, Median(comparison->values));
      }
    }
  }
  Chart chart = {"hixl-bench", x.name, "GB/s", x.name == kAxes[0].name, {}};
  for (auto& [name, line] : series) {
    std::sort(line.points.begin(), line.points.end());
    chart.series.push_back(std::move(line));
  }
  return chart;
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return ErrnoError(errno, path);
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  if (std::fclose(file) != 0 || !written) return ErrnoError(errno, path);
  return absl::OkStatus();
}

}  // namespace hixld::bench
