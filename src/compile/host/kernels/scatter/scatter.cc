#include "compile/host/kernels/scatter/scatter.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <tessera/error.h>

#include "compile/host/kernels/parts.h"
#include "compile/host/kernels/scatter/hits.h"
#include "compile/host/kernels/scatter/loops.h"

namespace tessera::kernels {

namespace {

constexpr std::int64_t kMinPartTerms = std::int64_t{32} * 1024;

/// The number of grains that a plan chooses where the order does not matter.
constexpr std::int64_t kFreeGrains = 16;

/// Every grain has a table of all rows if there are at least this many updates per row of the
/// tables.
constexpr std::int64_t kUpdatesPerTableRow = 16;

/// Blocks of rows have tables if a row has at most this many bytes. The tables stay in the cache,
/// and may have kTableRowsPerUpdate rows for each update.
constexpr std::int64_t kNarrowRow = 32;
constexpr std::int64_t kBlockBytes = std::int64_t{256} * 1024;
constexpr std::int64_t kTableRowsPerUpdate = 16;

std::vector<std::int64_t> even_ends(std::int64_t count, std::int64_t grains) {
  std::vector<std::int64_t> ends;
  for (std::int64_t i = 1; i <= grains; ++i) ends.push_back(count * i / grains);
  return ends;
}

/// What a part does of one unit of work.
struct Share {
  std::int64_t unit;
  std::int64_t first, end;  // in pieces of the unit, which has as many as there are parts
};

/// Visits what part `part` of `parts` does of `units` equal units.
template <typename Visit>
void for_each_share(std::int64_t units, std::int64_t part, std::int64_t parts, Visit visit) {
  const std::int64_t begin = units * part;
  const std::int64_t end = begin + units;
  for (std::int64_t unit = begin / parts; unit * parts < end; ++unit) {
    visit(Share{.unit = unit,
                .first = std::max<std::int64_t>(begin - unit * parts, 0),
                .end = std::min(end - unit * parts, parts)});
  }
}

/// Visits the lines [first, end) of a unit as blocks: rows, their first column, number of columns.
template <typename Visit>
void for_each_block(LinePlace first, LinePlace end, std::int64_t columns, Visit visit) {
  if (first.row == end.row) {
    return visit(Lines{first.row, first.row + 1}, first.column, end.column - first.column);
  }
  if (first.column > 0) {
    visit(Lines{first.row, first.row + 1}, first.column, columns - first.column);
    first = {.row = first.row + 1, .column = 0};
  }
  visit(Lines{first.row, end.row}, 0, columns);
  if (end.column > 0) visit(Lines{end.row, end.row + 1}, 0, end.column);
}

}  // namespace

ScatterPlan::ScatterPlan(ScatterProblem problem, int num_workers) : problem_(std::move(problem)) {
  ScatterProblem& p = problem_;
  require(p.count <= std::numeric_limits<std::uint32_t>::max(), "hits have places of 32 bits");
  const std::int64_t units = p.batch * p.outer;
  const bool is_free = p.leaf_ends.empty();
  const std::int64_t grains = is_free ? kFreeGrains : std::ssize(p.leaf_ends);
  const std::int64_t work = units * (p.rows.count + p.count) * p.inner;
  if (grains * p.rows.count * kUpdatesPerTableRow <= p.count) {
    way_ = Way::tables;
    if (is_free) p.leaf_ends = even_ends(p.count, grains);
    const int wanted = num_parts_for(num_workers, work, kMinPartTerms, units * grains);
    cuts_ = std::clamp<std::int64_t>((wanted + units - 1) / std::max<std::int64_t>(units, 1), 1,
                                     grains);
    num_parts_ = cuts_ == 1 ? wanted : static_cast<int>(units * cuts_);
    return;
  }
  if (is_free) p.leaf_ends = {p.count};
  // Each part reads all indices, so there are fewer parts if updates have few columns.
  const bool is_narrow = row_bytes() <= kNarrowRow;
  const std::int64_t lines = units * p.rows.count * p.inner;
  const std::int64_t most =
      std::max<std::int64_t>(std::int64_t{is_narrow ? 1 : 2} * num_workers, units);
  num_parts_ = num_parts_for(num_workers, work, kMinPartTerms, std::min(lines, most));
  const std::int64_t row_of_tables = std::ssize(p.leaf_ends) * row_bytes();
  if (!is_narrow || std::ssize(p.leaf_ends) * p.rows.count > kTableRowsPerUpdate * p.count) return;
  way_ = is_free ? Way::parts : Way::blocks;
  while ((row_of_tables << (shift_ + 1)) <= kBlockBytes && p.rows.count >> shift_ > 1) ++shift_;
}

std::int64_t ScatterPlan::row_bytes() const {
  return problem_.inner * static_cast<std::int64_t>(size_bytes(problem_.dtype));
}

std::int64_t ScatterPlan::tables_bytes(std::int64_t rows) const {
  return std::ssize(problem_.leaf_ends) * bytes_of(rows + 1);
}

std::int64_t ScatterPlan::scratch_bytes() const {
  if (cuts_ == 1) return 0;
  return problem_.batch * problem_.outer * tables_bytes(problem_.rows.count);
}

std::int64_t ScatterPlan::thread_bytes() const {
  const std::int64_t rows = problem_.rows.count;
  if (way_ == Way::tables) return cuts_ == 1 ? tables_bytes(rows) : 0;
  if (way_ == Way::parts) return tables_bytes(rows);
  if (way_ == Way::blocks && problem_.inner == 1) return column_bytes(problem_, shift_);
  const std::int64_t tables = way_ == Way::blocks ? tables_bytes(std::int64_t{1} << shift_) : 0;
  return SortedHits::bytes(problem_, shift_) + tables;
}

void ScatterPlan::run(const std::int32_t* indices, const std::byte* updates, std::byte* result,
                      std::byte* scratch, int part) const {
  if (way_ == Way::tables) return run_tables(indices, updates, result, scratch, part);
  const ScatterProblem& p = problem_;
  std::optional<SortedHits> hits;  // of an element of the batch
  std::int64_t batch = -1;
  for_each_share(p.batch * p.outer, part, num_parts_, [&](const Share& share) {
    const std::int64_t unit = share.unit;
    const std::int32_t* const of_batch = indices + unit / p.outer * p.count;
    LinePlace first = {};
    LinePlace end = {.row = p.rows.count, .column = 0};
    if (share.end - share.first < num_parts_) {
      const RowCuts cuts(p, of_batch);
      first = cuts.at(share.first, num_parts_);
      end = cuts.at(share.end, num_parts_);
    }
    if (first.row == end.row && first.column == end.column) return;
    const std::byte* const of_unit = updates + unit * bytes_of(p.count);
    std::byte* const to = result + bytes_of(unit * p.rows.count + first.row);
    if (way_ == Way::parts) {
      return write_part({.indices = of_batch,
                         .updates = of_unit,
                         .tables = nullptr,
                         .first_row = first.row,
                         .rows = end.row - first.row,
                         .first = 0,
                         .end = 1,
                         .hits = {}},
                        to);
    }
    if (way_ == Way::blocks && p.inner == 1) {
      return join_column(p, {.indices = of_batch,
                             .updates = of_unit,
                             .result = to,
                             .first_row = first.row,
                             .rows = end.row - first.row,
                             .shift = shift_});
    }
    const std::int64_t row_end = end.row + (end.column > 0 ? 1 : 0);
    if (batch != unit / p.outer || !hits->are_of(first.row, row_end)) {
      hits.emplace(p, of_batch, first.row, row_end, shift_);
    }
    batch = unit / p.outer;
    if (way_ == Way::rows) {
      write_rows(*hits, first, end, of_unit, to);
    } else {
      write_blocks(*hits, row_end - first.row, of_unit, to);
    }
  });
}

std::int64_t column_bytes(const ScatterProblem& p, int shift) {
  const std::int64_t grains = std::ssize(p.leaf_ends);
  const std::int64_t blocks = (p.rows.count >> shift) + 1;
  const auto element = static_cast<std::int64_t>(size_bytes(p.dtype));
  constexpr std::int64_t kRow = sizeof(std::uint32_t);
  // The chosen updates, and the same ones sorted; there the row of an update is as wide as an
  // element.
  return p.count * (kRow + element + 2 * element) +
         grains * (blocks * kRow + ((std::int64_t{1} << shift) + 1) * element);
}

void ScatterPlan::write_part(GrainTables grains, std::byte* result) const {
  thread_local std::vector<std::byte> table;
  const auto bytes = static_cast<std::size_t>(tables_bytes(grains.rows));
  if (table.size() < bytes) table.resize(bytes);
  grains.tables = table.data();
  fill_tables(problem_, grains);
  join_tables(problem_, grains.rows, table.data(), result);
}

void ScatterPlan::write_rows(const SortedHits& hits, LinePlace first, LinePlace end,
                             const std::byte* updates, std::byte* result) const {
  const ScatterProblem& p = problem_;
  const auto element = static_cast<std::int64_t>(size_bytes(p.dtype));
  for_each_block(first, end, p.inner, [&](Lines rows, std::int64_t column, std::int64_t columns) {
    const std::int64_t number = rows.first - first.row;
    join_rows(p, {.updates = updates,
                  .result = result + bytes_of(number) + column * element,
                  .begins = hits.begins() + number,
                  .hits = hits.hits(),
                  .rows = rows.end - rows.first,
                  .column = column,
                  .columns = columns});
  });
}

void ScatterPlan::write_blocks(const SortedHits& hits, std::int64_t rows, const std::byte* updates,
                               std::byte* result) const {
  const ScatterProblem& p = problem_;
  const std::int64_t grains = std::ssize(p.leaf_ends);
  const std::int64_t block_rows = std::int64_t{1} << shift_;
  const auto tables = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(tables_bytes(block_rows)));
  const std::uint32_t* begin = hits.begins();
  for (std::int64_t row = 0; row < rows; row += block_rows, ++begin) {
    const std::int64_t count = std::min(block_rows, rows - row);
    fill_tables(p, {.indices = nullptr,
                    .updates = updates,
                    .tables = tables.get(),
                    .first_row = 0,
                    .rows = count,
                    .first = 0,
                    .end = grains,
                    .hits = std::span(hits.hits() + begin[0], begin[1] - begin[0])});
    join_tables(p, count, tables.get(), result + bytes_of(row));
  }
}

void ScatterPlan::run_tables(const std::int32_t* indices, const std::byte* updates,
                             std::byte* result, std::byte* scratch, int part) const {
  const ScatterProblem& p = problem_;
  const std::int64_t grains = std::ssize(p.leaf_ends);
  const auto fill = [&](std::int64_t unit, std::int64_t cut, std::byte* tables) {
    fill_tables(p, {.indices = indices + unit / p.outer * p.count,
                    .updates = updates + unit * bytes_of(p.count),
                    .tables = tables,
                    .first_row = 0,
                    .rows = p.rows.count,
                    .first = grains * cut / cuts_,
                    .end = grains * (cut + 1) / cuts_,
                    .hits = {}});
  };
  if (cuts_ > 1) {
    const std::int64_t unit = part / cuts_;
    return fill(unit, part % cuts_, scratch + unit * tables_bytes(p.rows.count));
  }
  const std::int64_t units = p.batch * p.outer;
  std::vector<std::byte> tables(static_cast<std::size_t>(tables_bytes(p.rows.count)));
  const std::int64_t end = units * (part + 1) / num_parts_;
  for (std::int64_t unit = units * part / num_parts_; unit < end; ++unit) {
    fill(unit, 0, tables.data());
    join_tables(p, p.rows.count, tables.data(), result + bytes_of(unit * p.rows.count));
  }
}

void ScatterPlan::join(std::byte* scratch, std::byte* result) const {
  const ScatterProblem& p = problem_;
  for (std::int64_t unit = 0; unit < p.batch * p.outer; ++unit) {
    join_tables(p, p.rows.count, scratch + unit * tables_bytes(p.rows.count),
                result + bytes_of(unit * p.rows.count));
  }
}

}  // namespace tessera::kernels
