// The progress bar of a run on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera::cli {

/// What one step processes: `count` images, tokens, ...
struct StepWork {
  std::int64_t count;
  std::string unit;
};

/// For example `12:34`, or `1:02:03` from an hour on.
std::string clock_text(double seconds);

/// One line on standard error that is redrawn in place, at most ten times a second.
class Progress {
 public:
  Progress(std::int64_t steps, StepWork work);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Draws the line after `done` steps, of which the last one took `ms`.
  void draw(std::int64_t done, float loss, double ms);
  /// Erases the line, to print others; the next draw() draws it again.
  void clear();

 private:
  std::int64_t steps_;
  StepWork work_;
  double step_ms_ = 0;  // exponential moving average
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point drawn_ = {};
};

/// The contents of the line. Its text is shorter than `columns`, the width of the terminal.
struct ProgressLine {
  std::int64_t done, steps;
  double loss, step_ms;
  StepWork work;
  std::int64_t columns = 80;
};
std::string text_of(const ProgressLine& line);

}  // namespace tessera::cli
