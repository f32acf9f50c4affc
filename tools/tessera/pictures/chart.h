// Charts with axes, units and a legend.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

/// The labels of a chart; axes name their units.
struct ChartText {
  std::string title, x_label, y_label;
};

/// Values of one name: bars over the groups, or a curve over x.
struct Series {
  std::string name;
  std::vector<double> x = {};
  std::vector<double> y = {};
};

/// Values from 0 to `most`, with lines at multiples of `step`, which is 1, 2 or 5 times a power of
/// ten.
struct Scale {
  double least = 0;
  double most = 1;
  double step = 0.2;
};
/// For values within [least, most].
Scale scale_of(double least, double most);

/// A bar per group and series with its value over it; NaN: no bar but the word `missing`.
struct BarChart {
  ChartText text;
  std::vector<std::string> groups;
  std::vector<Series> series;
  std::string missing;
};
/// As a .png or .svg file, named by `flag` in errors; throws UserError and RuntimeFault.
void draw(const BarChart& chart, const std::string& flag, const std::string& path);

struct CurveChart {
  ChartText text;
  std::vector<Series> series;
};
void draw(const CurveChart& chart, const std::string& flag, const std::string& path);

}  // namespace tessera::cli
