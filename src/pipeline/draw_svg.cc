// A simulation as a picture: ranks as rows over a time axis.

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "pipeline/draw.h"

namespace tessera {

namespace {

// Pixels.
constexpr double kLeft = 64, kRight = 64, kTop = 78, kRow = 30, kGap = 6, kAxis = 40;
constexpr double kMostWide = 2400, kTaskWide = 24, kDigitWide = 6.2;

struct Colour {
  int red, green, blue;
};

struct Look {
  TaskKind kind;
  const char* name;
  Colour colour;
};

constexpr std::array<Look, 4> kLooks = {
    {{TaskKind::fwd, "forward", {52, 104, 176}},
     {TaskKind::bwd, "backward", {46, 133, 84}},
     {TaskKind::bwd_input, "input gradient", {30, 140, 140}},
     {TaskKind::bwd_weight, "weight gradient", {214, 122, 24}}}};

const Look& look_of(TaskKind kind) {
  return *std::find_if(kLooks.begin(), kLooks.end(),
                       [&](const Look& look) { return look.kind == kind; });
}

/// A colour between `colour` (`white` is 0) and white (1).
std::string blend(const Colour& colour, double white) {
  auto mix = [&](int part) { return static_cast<int>(std::lround(part + white * (255 - part))); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(colour.red), mix(colour.green), mix(colour.blue));
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// Draws one run. `top` is where it begins, `scale` the pixels per unit of time.
class Picture {
 public:
  Picture(const Simulation& run, double top, double scale) : run_(run), top_(top), scale_(scale) {}

  std::string draw(const std::string& title) {
    draw_head(title);
    for (std::size_t rank = 0; rank < run_.ranks.size(); ++rank) draw_row(rank);
    draw_axis();
    return std::move(svg_);
  }

  double bottom() const { return row_top(run_.ranks.size()) + kAxis; }

 private:
  double x_of(double time) const { return kLeft + time * scale_; }
  double row_top(std::size_t rank) const {
    return top_ + kTop + static_cast<double>(rank) * (kRow + kGap);
  }

  void text(double x, double y, const std::string& words, const std::string& attributes) {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                        escaped(words));
  }

  /// Whether `is_so(timed task, part)` is true for any part of any task.
  template <typename F>
  bool any(const F& is_so) const {
    for (const auto& rank : run_.ranks) {
      for (const TimedTask& timed : rank) {
        for (const Task& task : timed.task.parts) {
          if (is_so(timed, task)) return true;
        }
      }
    }
    return false;
  }

  void draw_legend() {
    double x = kLeft;
    auto add = [&](const std::string& attributes, const std::string& name) {
      svg_ +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\" rx=\"2\" {}/>\n",
                      x, top_ + 49.5, attributes);
      text(x + 17, top_ + 59, name, "fill=\"#1b1f24\"");
      x += 34 + kDigitWide * static_cast<double>(name.size());
    };
    for (const Look& look : kLooks) {
      if (any([&](const TimedTask&, const Task& task) { return task.kind == look.kind; })) {
        add(fmt::format("fill=\"{}\"", blend(look.colour, 0)), look.name);
      }
    }
    if (any([](const TimedTask& timed, const Task&) { return timed.ends.size() > 1; })) {
      add("fill=\"none\" stroke=\"#1b1f24\" stroke-width=\"1.6\"", "one program");
    }
    const auto num_ranks = static_cast<std::int64_t>(run_.ranks.size());
    if (any([&](const TimedTask&, const Task& task) { return task.stage >= num_ranks; })) {
      text(x, top_ + 59, "lighter: later stages of a rank", "fill=\"#57606a\"");
    }
  }

  void draw_head(const std::string& title) {
    text(kLeft, top_ + 22, title, "font-size=\"15\" font-weight=\"bold\" fill=\"#1b1f24\"");
    text(kLeft, top_ + 40,
         fmt::format("makespan {:.6g}, bubble {:.1f} %", run_.makespan, 100 * run_.bubble),
         "fill=\"#57606a\"");
    draw_legend();
    text(x_of(run_.makespan) + 8, row_top(0) - 7, "in flight", "fill=\"#57606a\"");
  }

  void draw_row(std::size_t rank) {
    const double top = row_top(rank);
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" fill=\"#eceff2\"/>\n",
        kLeft, top, run_.makespan * scale_, kRow);
    text(kLeft - 10, top + 19, fmt::format("rank {}", rank),
         "text-anchor=\"end\" font-size=\"12\" fill=\"#1b1f24\"");
    text(x_of(run_.makespan) + 8, top + 19, std::to_string(run_.peak_in_flight[rank]),
         "font-size=\"12\" fill=\"#1b1f24\"");
    std::set<std::int64_t> stages;
    for (const TimedTask& timed : run_.ranks[rank]) {
      for (const Task& task : timed.task.parts) stages.insert(task.stage);
    }
    for (const TimedTask& timed : run_.ranks[rank]) draw_task(timed, top, stages);
  }

  void draw_task(const TimedTask& timed, double top, const std::set<std::int64_t>& stages) {
    double start = timed.start;
    for (std::size_t i = 0; i < timed.ends.size(); ++i) {
      const Task& task = timed.task.parts[i];
      // The later stages of a rank are lighter.
      const auto chunk = std::distance(stages.begin(), stages.find(task.stage));
      const double white =
          0.62 * static_cast<double>(chunk) / std::max(1.0, static_cast<double>(stages.size()) - 1);
      draw_part(task, x_of(start), x_of(timed.ends[i]), top, white);
      start = timed.ends[i];
    }
    if (timed.ends.size() < 2) return;
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" rx=\"2\" "
        "fill=\"none\" stroke=\"#1b1f24\" stroke-width=\"1.6\"/>\n",
        x_of(timed.start), top, x_of(timed.end()) - x_of(timed.start), kRow);
  }

  void draw_part(const Task& task, double left, double right, double top, double white) {
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" fill=\"{}\" "
        "stroke=\"#ffffff\" stroke-width=\"0.8\"><title>{}</title></rect>\n",
        left, top, right - left, kRow, blend(look_of(task.kind).colour, white), to_string(task));
    const std::string number = std::to_string(task.microbatch);
    if (right - left < 2 + kDigitWide * static_cast<double>(number.size())) return;
    text((left + right) / 2, top + 19, number,
         fmt::format("text-anchor=\"middle\" fill=\"{}\"", white < 0.4 ? "#ffffff" : "#1b1f24"));
  }

  /// The distance between two ticks: 1, 2 or 5 times a power of ten.
  double tick_step() const {
    constexpr double kLeastApart = 46;
    double step = std::pow(10, std::floor(std::log10(kLeastApart / scale_)));
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (step * scale_ < kLeastApart) step *= factor;
    }
    return step;
  }

  void draw_axis() {
    const double top = row_top(run_.ranks.size());
    svg_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#57606a\"/>\n",
        kLeft, top, x_of(run_.makespan), top);
    const double step = tick_step();
    for (int i = 0; i * step <= run_.makespan * (1 + 1e-9); ++i) {
      const double x = x_of(i * step);
      svg_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" "
          "stroke=\"#57606a\"/>\n",
          x, top, top + 5);
      text(x, top + 18, fmt::format("{:.6g}", i * step), "text-anchor=\"middle\" fill=\"#57606a\"");
    }
    text(x_of(run_.makespan) + 8, top + 18, "time", "fill=\"#57606a\"");
  }

  const Simulation& run_;
  double top_;
  double scale_;
  std::string svg_;
};

}  // namespace

std::string to_svg(const Simulation& run, const std::string& title) {
  return to_svg({{title, run}});
}

std::string to_svg(const std::vector<std::pair<std::string, Simulation>>& runs) {
  double shortest = 1e300;
  double longest = 1e-300;
  for (const auto& [title, run] : runs) {
    shortest = std::min(shortest, std::max(pipeline::shortest_task(run), 1e-300));
    longest = std::max(longest, run.makespan);
  }
  const double scale = std::clamp(kTaskWide / shortest, 420 / longest, kMostWide / longest);
  std::string pictures;
  double top = 0;
  for (const auto& [title, run] : runs) {
    Picture picture(run, top, scale);
    pictures += picture.draw(title);
    top = picture.bottom();
  }
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
      R"(viewBox="0 0 {0:.0f} {1:.0f}" font-family="Helvetica, Arial, sans-serif" )"
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
      kLeft + longest * scale + kRight, top, pictures);
}

}  // namespace tessera
