// Charts with axes, units and a legend.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

/// The labels of a chart; axes name their units.
struct ChartText {
  std::string title, x_label, y_label;
};

/// The values of one name in the legend: bars over the groups (x is empty), or a curve over x.
struct Series {
  std::string name;
  std::vector<double> x = {};
  std::vector<double> y = {};
};

/// An axis from `least` to `most` with grid lines at multiples of `step`, which is 1, 2 or 5 times
/// a power of ten.
struct Scale {
  double least = 0;
  double most = 1;
  double step = 0.2;
};
/// A scale for values within [least, most].
Scale scale_of(double least, double most);

/// A bar for each group and series, with its value above it. For NaN, the text `missing` stands in
/// place of the bar.
struct BarChart {
  ChartText text;
  std::vector<std::string> groups;
  std::vector<Series> series;
  std::string missing;
};
/// Writes a chart to a .png or .svg file. Throws UserError for another name and RuntimeFault if the
/// file cannot be written; messages begin with `flag`.
void draw(const BarChart& chart, const std::string& flag, const std::string& path);

struct CurveChart {
  ChartText text;
  std::vector<Series> series;
};
void draw(const CurveChart& chart, const std::string& flag, const std::string& path);

}  // namespace tessera::cli
