// gather_along and scatter_add_along, on dense tiles.
#include <span>

#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/index_filler.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::compile::host {

namespace {

/// A table [outer, rows, inner], of which this tile has the rows `rows`, and indices and elements
/// [outer, count, inner].
struct LineProblem {
  std::int64_t outer;
  kernels::HeldRows rows;
  std::int64_t count;
  std::int64_t inner;
};

/// With this many columns of a table, a few thousand rows stay in L2.
constexpr std::int64_t kMostColumns = 64;

/// Calls visit(j, the index, its place in the table [rows, inner] or -1) for a sequence of indices:
/// those of one column or, if there are several columns, one of each column.
template <bool kIsColumn, typename Visit>
void visit_places(kernels::HeldRows rows, std::int64_t inner, std::span<const std::int32_t> indices,
                  Visit visit) {
  for (std::size_t j = 0; j < indices.size(); ++j) {
    const std::int64_t row = indices[j] - rows.first;
    const bool is_here = static_cast<std::uint64_t>(row) < static_cast<std::uint64_t>(rows.count);
    const std::int64_t place = kIsColumn ? row : row * inner + static_cast<std::int64_t>(j);
    visit(j, indices[j], is_here ? place : -1);
  }
}

template <bool kIsColumn, typename T>
void gather_along(kernels::HeldRows rows, std::int64_t inner, std::span<const std::int32_t> indices,
                  const T* table, T* to) {
  visit_places<kIsColumn>(rows, inner, indices,
                          [&](std::size_t j, std::int64_t row, std::int64_t from) {
                            to[j] = from < 0 ? kernels::missing<T>(rows, row) : table[from];
                          });
}

/// Gathers the elements of a range of the [outer, count] lines of indices.
template <typename T>
void gather_lines(const LineProblem& p, const kernels::Lines& lines, const T* table,
                  const std::int32_t* indices, T* to) {
  kernels::for_each_group(lines, p.count, [&](std::int64_t outer, const kernels::Lines& part) {
    const T* from = table + outer * p.rows.count * p.inner;
    const std::int64_t line = outer * p.count;
    if (p.inner == 1) {
      gather_along<true>(p.rows, 1, {indices + line + part.first, indices + line + part.end}, from,
                         to + line + part.first);
      return;
    }
    for (std::int64_t column = 0; column < p.inner; column += kMostColumns) {
      const std::int64_t columns = std::min(kMostColumns, p.inner - column);
      for (std::int64_t i = part.first; i < part.end; ++i) {
        const std::int64_t at = (line + i) * p.inner + column;
        gather_along<false>(p.rows, p.inner, {indices + at, static_cast<std::size_t>(columns)},
                            from + column, to + at);
      }
    }
  });
}

std::vector<TileTask> lower_gather_along(const LowerContext& context, const Equation& equation) {
  const std::int64_t dim = equation.attributes.integer("dim");
  const ValueId table = equation.operands[0];
  const DType dtype = dtype_of(context, table);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const LineSizes lines = line_sizes(context.box(equation.operands[1], digits).size, dim);
    const LineProblem problem{.outer = lines.outer,
                              .rows = held_rows(context, table, dim, digits),
                              .count = lines.size,
                              .inner = lines.inner};
    return make_range_kernel(
        context, lines.outer * lines.size, lines.inner, [=](auto buffers, auto begin, auto end) {
          kernels::with_element(dtype, [&](auto zero) {
            using T = decltype(zero);
            gather_lines<T>(problem, {begin, end}, elements_of<const T>(buffers[0]),
                            elements_of<const std::int32_t>(buffers[1]),
                            elements_of<T>(buffers[2]));
          });
        });
  });
}

/// What one thread sums: some columns in a range of the rows of one table [rows, inner].
struct Sums {
  kernels::HeldRows rows;
  std::int64_t inner;
  std::int64_t columns;
};

/// An update is dropped if its index is not among these rows.
template <bool kIsColumn, typename T>
void add_along(const Sums& sums, std::span<const std::int32_t> indices, const T* updates,
               T* table) {
  using Sum = kernels::ArithmeticType<T>;
  visit_places<kIsColumn>(
      sums.rows, sums.inner, indices, [&](std::size_t j, std::int64_t, std::int64_t to) {
        if (to < 0) return;
        table[to] = static_cast<T>(static_cast<Sum>(table[to]) + static_cast<Sum>(updates[j]));
      });
}

/// Sums in index order, starting at zero.
template <typename T>
void sum_lines(const Sums& sums, std::int64_t count, const std::int32_t* indices, const T* updates,
               T* table) {
  for (std::int64_t row = 0; row < sums.rows.count; ++row) {
    std::fill_n(table + row * sums.inner, sums.columns, T{});
  }
  if (sums.inner == 1) {
    add_along<true>(sums, {indices, static_cast<std::size_t>(count)}, updates, table);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = i * sums.inner;
    add_along<false>(sums, {indices + at, static_cast<std::size_t>(sums.columns)}, updates + at,
                     table);
  }
}

/// How the sums of a tile are divided: into `blocks` of columns, and into `cuts` ranges of rows.
/// Each range of rows reads all indices, so rows are cut only if threads would otherwise be idle.
struct Division {
  LineProblem problem;
  std::int64_t blocks;
  std::int64_t cuts;

  Division(const LineProblem& lines, int num_workers)
      : problem(lines), blocks((lines.inner + kMostColumns - 1) / kMostColumns) {
    const bool is_enough = lines.outer * blocks >= num_workers;
    cuts = is_enough ? 1 : std::min<std::int64_t>(num_workers, lines.rows.count);
    cuts = std::max<std::int64_t>(cuts, 1);
  }
  std::int64_t size() const { return problem.outer * blocks * cuts; }
  /// Writes the sums of one part.
  template <typename T>
  void run(std::int64_t number, const std::int32_t* indices, const T* updates, T* table) const {
    const LineProblem& p = problem;
    const std::int64_t cut = number % cuts;
    const std::int64_t column = number / cuts % blocks * kMostColumns;
    const std::int64_t outer = number / cuts / blocks;
    const std::int64_t first = p.rows.count * cut / cuts;
    const std::int64_t end = p.rows.count * (cut + 1) / cuts;
    const Sums sums{.rows = {p.rows.first + first, end - first, p.rows.total},
                    .inner = p.inner,
                    .columns = std::min(kMostColumns, p.inner - column)};
    const std::int64_t at = outer * p.count * p.inner + column;
    sum_lines(sums, p.count, indices + at, updates + at,
              table + (outer * p.rows.count + first) * p.inner + column);
  }
};

std::vector<TileTask> lower_scatter_add_along(const LowerContext& context,
                                              const Equation& equation) {
  const std::int64_t dim = equation.attributes.integer("dim");
  const ValueId table = equation.results[0];
  const DType dtype = dtype_of(context, table);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const LineSizes lines = line_sizes(context.box(equation.operands[0], digits).size, dim);
    const kernels::HeldRows rows = held_rows(context, table, dim, digits);
    const Division division({lines.outer, rows, lines.size, lines.inner}, context.num_workers());
    const std::int64_t terms = (lines.size + rows.count) * std::min(kMostColumns, lines.inner);
    return make_range_kernel(
        context, division.size(), terms, [=](auto buffers, auto begin, auto end) {
          kernels::with_type(dtype, [&](auto zero) {
            using T = decltype(zero);
            for (std::int64_t i = begin; i < end; ++i) {
              division.run(i, elements_of<const std::int32_t>(buffers[0]),
                           elements_of<const T>(buffers[1]), elements_of<T>(buffers[2]));
            }
          });
        });
  });
}

}  // namespace

Lowerings along_lowerings() {
  return {{"gather_along", lower_gather_along, true},
          {"scatter_add_along", lower_scatter_add_along, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
