#include "progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include "report.h"

namespace tessera::cli {

namespace {

constexpr std::chrono::milliseconds kBetweenDrawings(100);
constexpr std::int64_t kWidestBar = 30;
constexpr std::int64_t kLeastBar = 5;

std::string printed(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof(text), format, printable(value));
  return text;
}

std::int64_t terminal_columns() {
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

std::string bar_text(const ProgressLine& line, std::int64_t width) {
  const std::int64_t filled = line.done * width / line.steps;
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled > 0 && filled < width) bar.back() = '>';
  bar.resize(static_cast<std::size_t>(width), ' ');
  return "[" + bar + "] ";
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  char text[48];
  if (whole < 3600) {
    std::snprintf(text, sizeof(text), "%lld:%02lld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  }
  return text;
}

std::string text_of(const ProgressLine& line) {
  const double left_s = line.step_ms * 1e-3 * static_cast<double>(line.steps - line.done);
  const double rate = static_cast<double>(line.work.count) * 1e3 / std::max(line.step_ms, 1e-6);
  std::string text =
      std::to_string(line.done) + "/" + std::to_string(line.steps) + "  loss " +
      printed("%.4f", line.loss) + "  " + printed(rate < 10 ? "%.1f " : "%.0f ", rate) +
      line.work.unit + "/s  " +
      printed(line.step_ms < 10 ? "%.1f ms/step  " : "%.0f ms/step  ", line.step_ms) +
      clock_text(left_s) + " left";
  const auto letters = static_cast<std::int64_t>(text.size());
  const std::int64_t room = line.columns - 1 - letters - 3;  // brackets and a gap
  if (room >= kLeastBar) return bar_text(line, std::min(room, kWidestBar)) + text;
  // Cut the line off: one that wraps could not be redrawn in place.
  text.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(line.columns - 1, 0, letters)));
  return text;
}

Progress::Progress(std::int64_t steps, StepWork work) : steps_(steps), work_(std::move(work)) {}

void Progress::draw(std::int64_t done, float loss, double ms) {
  constexpr double kWeight = 0.1;  // of the last step in the moving average
  step_ms_ = step_ms_ == 0 ? ms : (1 - kWeight) * step_ms_ + kWeight * ms;
  const auto now = std::chrono::steady_clock::now();
  if (is_drawn_ && now - drawn_ < kBetweenDrawings && done < steps_) return;
  const std::string text = text_of({.done = done,
                                    .steps = steps_,
                                    .loss = static_cast<double>(loss),
                                    .step_ms = step_ms_,
                                    .work = work_,
                                    .columns = terminal_columns()});
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  is_drawn_ = true;
  drawn_ = now;
}

void Progress::clear() {
  if (!is_drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  is_drawn_ = false;
}

}  // namespace tessera::cli
