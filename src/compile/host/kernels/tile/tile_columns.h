// Sums of the columns of tiles, or of all their elements, by the grains of the dimensions of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compile/host/kernels/reduce_internal.h"

namespace tessera::kernels::tiles {

/// Adds the rows of dense tiles to one row of sums per grain. If the columns are summed as well, a
/// row of sums has the 16 lanes of each grain of columns, see ReduceProblem.
///
/// The leading dimensions are cut into units of whole grains, which threads can share. The other
/// dimensions are visited in memory order, so a unit keeps the sums of all their grains.
class ColumnGrains {
 public:
  /// `cuts` are those of the dimensions of rows, outermost first. There are at least `num_wanted`
  /// units if there are as many grains. `last_cuts` are those of the columns, or empty if each
  /// column has a sum of its own.
  ColumnGrains(std::vector<std::vector<std::int64_t>> cuts, std::int64_t columns,
               std::vector<std::int64_t> last_cuts, std::int64_t num_wanted);

  std::int64_t num_units() const { return num_units_; }
  /// The size of the sums of a unit, which start at 0.
  std::size_t unit_floats() const;
  /// The size of the nodes of all units.
  std::size_t scratch_floats() const;
  /// The rows of a unit, in the order of the sum: visit(first, end).
  template <typename Visit>
  void for_each_range(std::int64_t unit, Visit visit) const {
    std::vector<std::int64_t> first, end;
    find_box(unit, first, end);
    for (std::size_t d = 0; d < first.size(); ++d) {
      if (first[d] == end[d]) return;
    }
    const std::size_t last = first.size() - 1;
    std::vector<std::int64_t> index = first;
    while (true) {
      std::int64_t row = 0;
      for (std::size_t d = 0; d < last; ++d) row = (row + index[d]) * extents_[d + 1];
      visit((row + first[last]) * period_, (row + end[last]) * period_);
      std::size_t d = last;
      while (d-- > 0 && ++index[d] == end[d]) index[d] = first[d];
      if (d == static_cast<std::size_t>(-1)) return;
    }
  }
  /// Finds the grains of the rows of one of these ranges. A tile has its rows one after another.
  void find_runs(std::int64_t row, std::int64_t rows, std::vector<ColumnRun>& runs) const;
  void add(std::span<const ColumnRun> runs, const float* tile, float* sums) const;
  /// Adds up the sums of a unit as far as the tree allows, and keeps the nodes.
  void finish_unit(std::int64_t unit, float* sums, float* nodes) const;
  /// Adds up the nodes of all units.
  void join(float* nodes, float* out) const;

 private:
  /// Rows of a period that belong to one grain.
  struct Run {
    std::int64_t end;
    std::int64_t grain;
  };
  void add_inner(const std::vector<std::int64_t>& cuts);
  void find_box(std::int64_t unit, std::vector<std::int64_t>& first,
                std::vector<std::int64_t>& end) const;

  std::vector<std::vector<std::int64_t>> unit_cuts_;  // of the leading dimensions
  std::vector<std::int64_t> extents_;                 // of the leading dimensions
  std::int64_t columns_;
  std::vector<std::int64_t> last_cuts_;
  std::int64_t width_;        // of a row of sums
  std::int64_t num_results_;  // the columns, or 1
  std::int64_t num_units_ = 1;
  std::int64_t period_ = 1;                           // rows of the inner dimensions
  std::int64_t inner_grains_ = 1;                     // of the inner dimensions
  std::int64_t leaves_ = 1;                           // of the tree of a unit
  std::int64_t nodes_ = 1;                            // that remain of them
  std::vector<Run> runs_ = {{.end = 1, .grain = 0}};  // of a period
};

}  // namespace tessera::kernels::tiles
