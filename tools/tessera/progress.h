// The progress bar of a run on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera::cli {

/// What one step works on: so many images, tokens, ...
struct StepWork {
  std::int64_t count;
  std::string unit;
};

/// `12:34`, or `1:02:03` from an hour on.
std::string clock_text(double seconds);

/// One line of standard error that is drawn again and again, ten times a second at most.
class Progress {
 public:
  Progress(std::int64_t steps, StepWork work);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After `done` steps, of which the last one took `ms`.
  void draw(std::int64_t done, float loss, double ms);
  /// Makes room for other lines; the next step draws it again.
  void clear();

 private:
  std::int64_t steps_;
  StepWork work_;
  double step_ms_ = 0;  // a mean in which the latest steps weigh most
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point drawn_ = {};
};

/// The line for a terminal of `columns`; it has fewer letters.
struct ProgressLine {
  std::int64_t done, steps;
  double loss, step_ms;
  StepWork work;
  std::int64_t columns = 80;
};
std::string text_of(const ProgressLine& line);

}  // namespace tessera::cli
