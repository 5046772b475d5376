// Plots as SVG text, for reports that need nothing but a browser.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::bench {

struct PlotSeries {
  enum class Shape { kLine, kSteps, kDots };
  std::string name;  ///< for the legend; empty = none
  Shape shape = Shape::kLine;
  std::vector<std::pair<double, double>> points;  ///< lines: x rising
};

struct PlotAxes {
  std::string title;
  std::string x;  ///< what it is, with its unit
  std::string y;
  bool y_to_one = false;  ///< y ends at 1 (a distribution)
};

/// One <svg> element of a fixed size: axes from 0, ticks at round numbers, a legend if there is
/// more than one series. Points that are not finite are left out; of more than a few thousand,
/// an even choice. Texts are escaped. Colours come from the page's CSS variables --series-1 … 3.
[[nodiscard]] std::string svg_plot(const PlotAxes& axes, const std::vector<PlotSeries>& series);

/// Steps of 1, 2 or 5 times a power of ten such that at most `most` of them reach `high` > 0.
[[nodiscard]] double tick_step(double high, int most);

/// & < > " as entities.
[[nodiscard]] std::string escape_html(std::string_view text);

}  // namespace baton::bench
