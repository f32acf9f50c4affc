// Turns that an iteration on a narrow matrix makes, and that are applied to large matrices in one
// go.
#pragma once

#include <cmath>
#include <cstdint>

#include "compile/host/kernels/linalg/matrix_memory.h"
#include "compile/host/kernels/linalg/strips.h"

namespace tessera::kernels {

/// The length of (x, y), for elements of scaled matrices.
inline double length_of(double x, double y) {
  const double square = x * x + y * y;
  if (square >= 1e-290) return std::sqrt(square);
  constexpr double kScale = 0x1p600;  // small squares have lost digits
  x *= kScale;
  y *= kScale;
  return std::sqrt(x * x + y * y) / kScale;
}

/// The turn that makes sine * x + cosine * y zero.
inline Turn<double> turn_away(double x, double y) {
  const double length = length_of(x, y);
  if (length == 0.0) return {1.0, 0.0};
  return {x / length, -y / length};
}

/// Makes a narrow matrix diagonal. is_split(i) says whether the element that couples rows i and
/// i + 1 is negligible. step(first, end) is called for the last coupled rows, [first, end], until
/// no rows are coupled. Returns whether the iteration converged.
template <typename IsSplit, typename Step>
bool iterate(std::int64_t size, const IsSplit& is_split, const Step& step) {
  constexpr std::int64_t kStepsPerRow = 30;
  std::int64_t end = size - 1;
  for (std::int64_t steps = kStepsPerRow * size; end > 0;) {
    if (is_split(end - 1)) {
      --end;
      continue;
    }
    if (steps-- == 0) return false;
    std::int64_t first = end - 1;
    while (first > 0 && !is_split(first - 1)) --first;
    step(first, end);
  }
  return true;
}

/// Collects turns for the rows of a matrix. They are applied when there are as many as stay in a
/// cache, so that each strip of the matrix is rarely read.
template <typename T>
class TurnList {
 public:
  TurnList(MatrixMemory& memory, const Strips<T>& x)
      : x_(x),
        turns_(memory.take<Turn<T>>(kMostTurns + x.rows)),
        sweeps_(memory.take<Sweep>(kMostTurns)) {}
  TurnList(const TurnList&) = delete;
  TurnList& operator=(const TurnList&) = delete;

  /// After this, at most as many turns may be added as the matrix has rows.
  void begin_sweep(std::int64_t first) {
    if (num_turns_ >= kMostTurns || num_sweeps_ == kMostTurns) make();
    sweeps_[num_sweeps_++] = {first, 0};
  }
  void add(const Turn<double>& turn) {
    turns_[num_turns_++] = {static_cast<T>(turn.cosine), static_cast<T>(turn.sine)};
    ++sweeps_[num_sweeps_ - 1].count;
  }
  /// Applies the turns that were collected.
  void make() {
    turn_rows(StripTurns<T>{.turns = turns_,
                            .sweeps = sweeps_,
                            .num_sweeps = num_sweeps_,
                            .x = x_.data,
                            .x_stride = x_.stride(),
                            .strips = x_.count()});
    num_turns_ = num_sweeps_ = 0;
  }

 private:
  static constexpr std::int64_t kMostTurns = std::int64_t{8} * 1024;

  Strips<T> x_;
  Turn<T>* turns_;
  Sweep* sweeps_;
  std::int64_t num_turns_ = 0;
  std::int64_t num_sweeps_ = 0;
};

}  // namespace tessera::kernels
