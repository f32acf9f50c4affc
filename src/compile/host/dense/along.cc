// gather_along and scatter_add_along, on dense tiles.
#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/index_filler.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::compile::host {

namespace {

/// Lines of `count` indices into lines of which this tile has `rows`.
struct LineProblem {
  std::int64_t outer;
  kernels::HeldRows rows;
  std::int64_t count;
  std::int64_t inner;
};

/// Calls `visit(position in the indices, the index, its position in the rows or -1)`.
template <typename Visit>
void for_each_index(const LineProblem& p, const std::int32_t* indices, Visit visit) {
  for (std::int64_t outer = 0; outer < p.outer; ++outer) {
    for (std::int64_t i = 0; i < p.count; ++i) {
      for (std::int64_t inner = 0; inner < p.inner; ++inner) {
        const std::int64_t from = (outer * p.count + i) * p.inner + inner;
        const std::int64_t row = indices[from];
        const std::int64_t line = outer * p.rows.count + row - p.rows.first;
        visit(from, row, p.rows.has(row) ? line * p.inner + inner : -1);
      }
    }
  }
}

template <typename T>
void gather_along(const LineProblem& p, const T* table, const std::int32_t* indices, T* rows) {
  for_each_index(p, indices, [&](std::int64_t at, std::int64_t row, std::int64_t from) {
    rows[at] = from < 0 ? kernels::missing<T>(p.rows, row) : table[from];
  });
}

/// Sums in index order, starting at zero. An update is dropped if its index is not in this tile.
template <typename T>
void scatter_add_along(const LineProblem& p, T* table, const std::int32_t* indices, const T* rows) {
  std::fill_n(table, p.outer * p.rows.count * p.inner, T{});
  using Sum = kernels::ArithmeticType<T>;
  for_each_index(p, indices, [&](std::int64_t at, std::int64_t, std::int64_t to) {
    if (to < 0) return;
    table[to] = static_cast<T>(static_cast<Sum>(table[to]) + static_cast<Sum>(rows[at]));
  });
}

/// The buffers of the table, the indices, and the elements that are read or added.
struct Buffers {
  std::size_t table;
  std::size_t indices;
  std::size_t rows;
};

/// Lines of `table` (an operand or the result) and of `indices`; `run` gets the problem of a range
/// of lines, and where its table, indices and rows begin.
template <typename Run>
std::vector<TileTask> tasks_along(const LowerContext& context, const Equation& equation,
                                  ValueId table, ValueId indices, const Buffers& at, Run run) {
  const std::int64_t dim = equation.attributes.integer("dim");
  const DType dtype = dtype_of(context, table);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const LineSizes lines = line_sizes(context.box(indices, digits).size, dim);
    const kernels::HeldRows rows = held_rows(context, table, dim, digits);
    const std::int64_t whole = rows.count * lines.inner;
    const std::int64_t line = lines.size * lines.inner;
    return make_range_kernel(context, lines.outer, line, [=](auto buffers, auto begin, auto end) {
      kernels::with_element(dtype, [&](auto zero) {
        using T = decltype(zero);
        run(LineProblem{end - begin, rows, lines.size, lines.inner},
            elements_of<T>(buffers[at.table]) + begin * whole,
            elements_of<const std::int32_t>(buffers[at.indices]) + begin * line,
            elements_of<T>(buffers[at.rows]) + begin * line);
      });
    });
  });
}

std::vector<TileTask> lower_gather_along(const LowerContext& context, const Equation& equation) {
  return tasks_along(context, equation, equation.operands[0], equation.operands[1],
                     {.table = 0, .indices = 1, .rows = 2},
                     [](const LineProblem& part, auto* table, auto* indices, auto* rows) {
                       gather_along(part, table, indices, rows);
                     });
}

std::vector<TileTask> lower_scatter_add_along(const LowerContext& context,
                                              const Equation& equation) {
  return tasks_along(context, equation, equation.results[0], equation.operands[0],
                     {.table = 2, .indices = 0, .rows = 1},
                     [](const LineProblem& part, auto* table, auto* indices, auto* rows) {
                       scatter_add_along(part, table, indices, rows);
                     });
}

}  // namespace

Lowerings along_lowerings() {
  return {{"gather_along", lower_gather_along, true},
          {"scatter_add_along", lower_scatter_add_along, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
