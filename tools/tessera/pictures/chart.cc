#include "chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/tessera/pictures/picture.h"

namespace tessera::cli {

namespace {

constexpr double kWidth = 800;
constexpr double kHeight = 480;
constexpr double kLeft = 84;
constexpr double kRight = 24;
constexpr double kTop = 84;
constexpr double kBottom = 64;
constexpr double kFont = 14;
constexpr double kTitleFont = 18;
constexpr Color kGrid{0.85, 0.85, 0.85};
constexpr Color kAxis{0.2, 0.2, 0.2};

/// The number with just enough digits to tell multiples of `step` apart.
std::string number_text(double value, double step) {
  const int digits = std::clamp(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0, 6);
  char text[48];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

/// The number with about three significant digits.
std::string value_text(double value) {
  const double size = std::abs(value);
  char text[48];
  std::snprintf(text, sizeof(text), size >= 100 ? "%.0f" : size >= 10 ? "%.1f" : "%.2f", value);
  return text;
}

/// The area of the page with the values, between the axes; draws labels, grid and legend around it.
class Frame {
 public:
  Frame(Picture& picture, const ChartText& text, const Scale& y) : picture_(picture), y_(y) {
    picture.text(kWidth / 2, 30, kTitleFont, text.title);
    picture.text((kLeft + kWidth - kRight) / 2, kHeight - 16, kFont, text.x_label);
    picture.text_upwards(24, (kTop + kHeight - kBottom) / 2, kFont, text.y_label);
    for (double at = y.least; at <= y.most + y.step / 2; at += y.step) {
      picture.line({{kLeft, y_at(at)}, {kWidth - kRight, y_at(at)}}, 1, kGrid);
      picture.text(kLeft - 8, y_at(at) + kFont / 3, kFont, number_text(at, y.step), Align::right);
    }
  }
  /// Draws the axes; call it last, so that they are on top of the grid and the values.
  void axes() {
    picture_.line({{kLeft, kTop}, {kLeft, kHeight - kBottom}, {kWidth - kRight, kHeight - kBottom}},
                  1.5, kAxis);
  }
  void legend(const std::vector<Series>& series) {
    constexpr double kBox = 12;
    constexpr double kGap = 24;
    double width = -kGap;
    for (const Series& one : series)
      width += kBox + 6 + picture_.text_width(kFont, one.name) + kGap;
    double x = (kWidth - width) / 2;
    for (std::size_t i = 0; i < series.size(); ++i) {
      picture_.rectangle({x, 62 - kBox}, kBox, kBox, color_of(i));
      picture_.text(x + kBox + 6, 61, kFont, series[i].name, Align::left);
      x += kBox + 6 + picture_.text_width(kFont, series[i].name) + kGap;
    }
  }
  void x_mark(double x, const std::string& text) {
    picture_.text(x, kHeight - kBottom + 22, kFont, text);
  }
  double y_at(double value) const {
    const double part = (value - y_.least) / (y_.most - y_.least);
    return kHeight - kBottom - part * (kHeight - kBottom - kTop);
  }

 private:
  Picture& picture_;
  Scale y_;
};

/// The range of the finite values; [0, 1] if there are none.
std::pair<double, double> range_of(const std::vector<Series>& series,
                                   std::vector<double> Series::*values) {
  double least = INFINITY;
  double most = -INFINITY;
  for (const Series& one : series) {
    for (const double value : one.*values) {
      if (!std::isfinite(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  return least <= most ? std::pair(least, most) : std::pair(0.0, 1.0);
}

}  // namespace

Scale scale_of(double least, double most) {
  constexpr double kLines = 6;
  const double span = most > least ? most - least : std::max(std::abs(most), 1.0);
  const double rough = span / kLines;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  Scale scale{.least = step * std::floor(least / step + 1e-9),
              .most = step * std::ceil(most / step - 1e-9),
              .step = step};
  if (scale.most <= scale.least) scale.most = scale.least + step;
  return scale;
}

void draw(const BarChart& chart, const std::string& flag, const std::string& path) {
  Picture picture(flag, path, kWidth, kHeight);
  Frame frame(picture, chart.text, scale_of(0, range_of(chart.series, &Series::y).second * 1.05));
  const double group_width = (kWidth - kRight - kLeft) / static_cast<double>(chart.groups.size());
  const double bar_width = 0.8 * group_width / static_cast<double>(chart.series.size());
  for (std::size_t group = 0; group < chart.groups.size(); ++group) {
    const double middle = kLeft + (static_cast<double>(group) + 0.5) * group_width;
    frame.x_mark(middle, chart.groups[group]);
    for (std::size_t i = 0; i < chart.series.size(); ++i) {
      const double x = middle - 0.4 * group_width + static_cast<double>(i) * bar_width;
      const double value = chart.series[i].y[group];
      if (std::isnan(value)) {
        picture.text_upwards(x + bar_width / 2 + kFont / 3, frame.y_at(0) - 56, kFont,
                             chart.missing);
        continue;
      }
      picture.rectangle({x + 2, frame.y_at(value)}, bar_width - 4,
                        frame.y_at(0) - frame.y_at(value), color_of(i));
      picture.text(x + bar_width / 2, frame.y_at(value) - 5, kFont, value_text(value));
    }
  }
  frame.axes();
  frame.legend(chart.series);
  picture.write();
}

void draw(const CurveChart& chart, const std::string& flag, const std::string& path) {
  Picture picture(flag, path, kWidth, kHeight);
  const auto [low, high] = range_of(chart.series, &Series::y);
  Frame frame(picture, chart.text, scale_of(low, high));
  const auto [first, last] = range_of(chart.series, &Series::x);
  const Scale x = scale_of(first, last);
  const double span = std::max(last - first, 1e-12);
  const auto x_at = [start = first, span](double value) {
    return kLeft + (value - start) / span * (kWidth - kRight - kLeft);
  };
  for (double at = x.least; at <= last + 1e-9 * span; at += x.step) {
    if (at >= first) frame.x_mark(x_at(at), number_text(at, x.step));
  }
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& one = chart.series[i];
    std::vector<Point> points;
    for (std::size_t k = 0; k < one.y.size(); ++k) {
      if (std::isfinite(one.y[k])) points.push_back({x_at(one.x[k]), frame.y_at(one.y[k])});
    }
    picture.line(points, 2, color_of(i));
  }
  frame.axes();
  frame.legend(chart.series);
  picture.write();
}

}  // namespace tessera::cli
