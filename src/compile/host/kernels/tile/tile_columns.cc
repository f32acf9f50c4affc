#include "compile/host/kernels/tile/tile_columns.h"

#include <algorithm>
#include <bit>

namespace tessera::kernels::tiles {

namespace {

std::int64_t num_grains(const std::vector<std::int64_t>& cuts) {
  return static_cast<std::int64_t>(cuts.size()) - 1;
}

}  // namespace

ColumnGrains::ColumnGrains(std::vector<std::vector<std::int64_t>> cuts, std::int64_t columns,
                           std::vector<std::int64_t> last_cuts, std::int64_t num_wanted)
    : columns_(columns),
      last_cuts_(std::move(last_cuts)),
      width_(last_cuts_.empty() ? columns : kNumLanes * num_grains(last_cuts_)),
      num_results_(last_cuts_.empty() ? columns : 1) {
  std::size_t d = 0;
  do {
    num_units_ *= num_grains(cuts[d]);
    extents_.push_back(cuts[d].back());
    unit_cuts_.push_back(std::move(cuts[d]));
  } while (++d < cuts.size() && num_units_ < num_wanted);
  for (; d < cuts.size(); ++d) add_inner(cuts[d]);
  leaves_ = last_cuts_.empty() ? inner_grains_ : inner_grains_ * num_grains(last_cuts_);
  nodes_ = std::has_single_bit(static_cast<std::uint64_t>(leaves_)) ? 1 : leaves_;
}

/// Cuts each row of the period into the grains of one more dimension.
void ColumnGrains::add_inner(const std::vector<std::int64_t>& cuts) {
  std::vector<Run> runs;
  std::int64_t row = 0;
  for (const Run& outer : runs_) {
    for (; row < outer.end; ++row) {
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        if (cuts[i + 1] == cuts[i]) continue;
        runs.push_back({.end = row * cuts.back() + cuts[i + 1],
                        .grain = outer.grain * num_grains(cuts) + static_cast<std::int64_t>(i)});
      }
    }
  }
  runs_ = std::move(runs);
  period_ *= cuts.back();
  inner_grains_ *= num_grains(cuts);
}

std::size_t ColumnGrains::unit_floats() const {
  return static_cast<std::size_t>(inner_grains_ * width_);
}

std::size_t ColumnGrains::scratch_floats() const {
  return static_cast<std::size_t>(num_units_ * nodes_ * num_results_);
}

void ColumnGrains::find_box(std::int64_t unit, std::vector<std::int64_t>& first,
                            std::vector<std::int64_t>& end) const {
  first.resize(unit_cuts_.size());
  end.resize(unit_cuts_.size());
  for (std::size_t d = unit_cuts_.size(); d-- > 0;) {
    const auto grain = static_cast<std::size_t>(unit % num_grains(unit_cuts_[d]));
    first[d] = unit_cuts_[d][grain];
    end[d] = unit_cuts_[d][grain + 1];
    unit /= num_grains(unit_cuts_[d]);
  }
}

void ColumnGrains::find_runs(std::int64_t row, std::int64_t rows,
                             std::vector<ColumnRun>& runs) const {
  runs.clear();
  if (inner_grains_ == 1) {
    runs.push_back({.from = 0, .rows = rows, .sums = 0});
    return;
  }
  std::int64_t place = row % period_;
  auto run = std::upper_bound(runs_.begin(), runs_.end(), place,
                              [](std::int64_t at, const Run& r) { return at < r.end; });
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t count = std::min(run->end - place, rows - done);
    runs.push_back({.from = done * columns_, .rows = count, .sums = run->grain * width_});
    done += count;
    place += count;
    if (place < run->end) continue;
    if (++run == runs_.end()) place = 0, run = runs_.begin();
  }
}

void ColumnGrains::add(std::span<const ColumnRun> runs, const float* tile, float* sums) const {
  if (!last_cuts_.empty()) return add_lane_runs(tile, runs, columns_, last_cuts_, sums);
  add_column_runs(tile,
                  {.runs = runs,
                   .repeats = 1,
                   .repeat_stride = 0,
                   .row_stride = columns_,
                   .columns = columns_,
                   .column_stride = 1,
                   .is_dense = false},
                  sums);
}

void ColumnGrains::finish_unit(std::int64_t unit, float* sums, float* nodes) const {
  if (!last_cuts_.empty()) fold_lanes(sums, leaves_);
  if (nodes_ == 1) add_tree(sums, leaves_, num_results_);
  std::copy_n(sums, nodes_ * num_results_, nodes + unit * nodes_ * num_results_);
}

void ColumnGrains::join(float* nodes, float* out) const {
  add_tree(nodes, num_units_ * nodes_, num_results_);
  std::copy_n(nodes, num_results_, out);
}

}  // namespace tessera::kernels::tiles
