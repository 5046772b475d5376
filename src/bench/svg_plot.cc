#include "bench/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace baton::bench {
namespace {

constexpr double kWidth = 620;
constexpr double kHeight = 310;
constexpr double kLeft = 64;
constexpr double kRight = 16;
constexpr double kTop = 50;
constexpr double kBottom = 46;
constexpr size_t kMostPoints = 2000;

/// Numbers → places in the picture.
struct Scale {
  double x_high = 1;
  double y_high = 1;
  [[nodiscard]] double x(double value) const {
    return kLeft + value / x_high * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - value / y_high * (kHeight - kTop - kBottom);
  }
};

/// What can be drawn, thinned out evenly; the last point stays.
std::vector<std::pair<double, double>> drawable(const PlotSeries& series) {
  std::vector<std::pair<double, double>> finite;
  for (const auto& point : series.points) {
    if (std::isfinite(point.first) && std::isfinite(point.second)) finite.push_back(point);
  }
  if (finite.size() <= kMostPoints) return finite;
  std::vector<std::pair<double, double>> out;
  for (size_t i = 0; i < kMostPoints; ++i) {
    out.push_back(finite[i * (finite.size() - 1) / (kMostPoints - 1)]);
  }
  return out;
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

void draw_axes(std::string& out, const PlotAxes& axes, const Scale& scale) {
  const auto text = [&](double x, double y, const char* more, std::string_view what) {
    fmt::format_to(std::back_inserter(out), "<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>", x, y,
                   more, escape_html(what));
  };
  constexpr const char* kMiddle = " text-anchor=\"middle\"";
  text(kLeft, 18, " class=\"title\"", axes.title);
  const double y_step = tick_step(scale.y_high, 5);
  for (int i = 0; y_step * i <= scale.y_high * 1.0001; ++i) {
    const double y = scale.y(y_step * i);
    fmt::format_to(std::back_inserter(out),
                   "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>",
                   kLeft, kWidth - kRight, y, y);
    text(kLeft - 6, y + 4, " text-anchor=\"end\"", number(y_step * i));
  }
  const double x_step = tick_step(scale.x_high, 8);
  for (int i = 0; x_step * i <= scale.x_high * 1.0001; ++i) {
    text(scale.x(x_step * i), kHeight - kBottom + 16, kMiddle, number(x_step * i));
  }
  text((kLeft + kWidth - kRight) / 2, kHeight - 8, kMiddle, axes.x);
  text(kLeft - 56, kTop - 12, "", axes.y);
}

void draw_series(std::string& out, const PlotSeries& series, size_t index, const Scale& scale) {
  const auto points = drawable(series);
  const size_t colour = index % 3 + 1;
  auto to = std::back_inserter(out);
  if (series.shape == PlotSeries::Shape::kDots) {
    for (const auto& [x, y] : points) {
      fmt::format_to(to, "<circle class=\"dot{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>", colour,
                     scale.x(x), scale.y(y));
    }
    return;
  }
  if (points.empty()) return;
  fmt::format_to(to, "<path class=\"line{}\" d=\"", colour);
  for (size_t i = 0; i < points.size(); ++i) {
    const double x = scale.x(points[i].first);
    if (i > 0 && series.shape == PlotSeries::Shape::kSteps) {
      fmt::format_to(to, "L{:.1f} {:.1f}", x, scale.y(points[i - 1].second));
    }
    fmt::format_to(to, "{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x, scale.y(points[i].second));
  }
  out += "\"/>";
}

void draw_legend(std::string& out, const std::vector<PlotSeries>& series) {
  double x = kWidth - kRight - 110.0 * static_cast<double>(series.size());
  for (size_t i = 0; i < series.size(); ++i, x += 110) {
    fmt::format_to(std::back_inserter(out),
                   "<rect class=\"dot{}\" x=\"{:.1f}\" y=\"9\" width=\"10\" height=\"10\"/>"
                   "<text x=\"{:.1f}\" y=\"18\">{}</text>",
                   i % 3 + 1, x, x + 15, escape_html(series[i].name));
  }
}

}  // namespace

double tick_step(double high, int most) {
  const double power = std::pow(10.0, std::floor(std::log10(high / most)));
  for (const double step : {power, 2 * power, 5 * power}) {
    if (step * most >= high * 0.9999) return step;
  }
  return 10 * power;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string svg_plot(const PlotAxes& axes, const std::vector<PlotSeries>& series) {
  Scale scale{1e-9, axes.y_to_one ? 1.0 : 1e-9};
  for (const PlotSeries& one : series) {
    for (const auto& [x, y] : one.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      scale.x_high = std::max(scale.x_high, x);
      if (!axes.y_to_one) scale.y_high = std::max(scale.y_high, y * 1.05);
    }
  }
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\" aria-label=\"{}\">",
      kWidth, kHeight, kWidth, kHeight, escape_html(axes.title));
  draw_axes(out, axes, scale);
  for (size_t i = 0; i < series.size(); ++i) draw_series(out, series[i], i, scale);
  if (series.size() > 1) draw_legend(out, series);
  return out + "</svg>";
}

}  // namespace baton::bench
