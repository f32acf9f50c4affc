// Rows of windows of a tile, for kernels that compute a row of results at a time.
#pragma once

#include <functional>
#include <vector>

#include <tessera/types.h>

#include "compile/host/dense/window_classes.h"
#include "compile/host/kernels/window/windows.h"

namespace tessera::compile::host {

/// How the windows of a tile's results meet the elements of an operand's tile. Windows need not lie
/// inside that tile: the row of a window says which elements it lacks.
class WindowWalk {
 public:
  /// One entry per dimension of both tiles, which are dense. An element that `spread` skips,
  /// because it lies between rows, counts as missing, like one outside, if `has_gaps`; otherwise it
  /// does not belong to the window.
  WindowWalk(std::vector<SpaceDim> dims, bool has_gaps);

  /// The number of independent pieces of about equal work, and of the elements that each of them
  /// meets.
  std::int64_t num_pieces() const { return pieces_; }
  std::int64_t terms_each() const;

  /// Calls `visit(rows, from, to)` for all rows of results of these pieces: `from` is the place of
  /// the first row in the operand, `to` its offset in the result. Rows without elements have no
  /// offsets.
  using Visit =
      std::function<void(const kernels::WindowRows& rows, std::int64_t from, std::int64_t to)>;
  void visit(std::int64_t first, std::int64_t end, const Visit& visit) const;

 private:
  /// Windows of one class along the last dimension that are equally spaced.
  struct Run {
    std::size_t kind;  // the class
    std::int64_t window, row, count;
    std::int64_t window_step = 1, row_step = 1;
  };
  /// What an element of a window meets.
  enum class Meets : std::uint8_t { row, nothing, gap };
  struct Class {
    std::vector<Meets> meets;         // per element
    std::vector<std::int64_t> steps;  // per element with a row
  };
  struct Dim {
    SpaceDim space;
    std::vector<Class> classes;
    std::vector<std::size_t> kinds;  // per window: its class
    std::vector<std::int64_t> rows;  // per window: the first row
    std::int64_t from = 1, to = 1;   // strides
  };
  /// The elements of the windows of one class per dimension.
  struct Terms {
    std::vector<std::int64_t> offsets;
    std::vector<std::int32_t> numbers;
    std::int32_t missing = -1;
  };

  void add_dim(const SpaceDim& space, bool has_gaps);
  void add_runs(const std::vector<WindowClass>& classes);
  Terms terms_of(const std::vector<std::size_t>& kinds) const;
  void visit_line(const std::vector<Terms>& terms, std::int64_t from, std::int64_t to,
                  std::int64_t first, std::int64_t end, const Visit& visit) const;

  std::vector<Dim> dims_;  // those before the columns; at least one
  std::vector<Run> runs_;  // of the last one
  std::int64_t columns_ = 1;
  std::int64_t pieces_ = 1;
};

}  // namespace tessera::compile::host
