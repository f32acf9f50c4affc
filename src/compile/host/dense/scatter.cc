// scatter: overwrites rows of dense tiles.
#include <cstring>

#include "compile/host/dense_tasks.h"

namespace tessera::compile::host {

namespace {

struct ScatterProblem {
  std::int64_t outer;
  kernels::HeldRows rows;
  std::int64_t row_bytes;
  std::int64_t num_indices;
};

/// Overwrites rows of `result` [outer, rows.count, row] with updates [outer, indices, row]; the
/// last update of a row counts; updates of rows outside of this tile are dropped.
void scatter_rows(const ScatterProblem& p, const std::int32_t* indices, const std::byte* updates,
                  std::byte* result) {
  for (std::int64_t outer = 0; outer < p.outer; ++outer) {
    for (std::int64_t i = 0; i < p.num_indices; ++i) {
      if (!p.rows.has(indices[i])) continue;
      const std::int64_t row = outer * p.rows.count + indices[i] - p.rows.first;
      std::memcpy(result + row * p.row_bytes, updates + (outer * p.num_indices + i) * p.row_bytes,
                  static_cast<std::size_t>(p.row_bytes));
    }
  }
}

std::vector<TileTask> lower_scatter(const LowerContext& context, const Equation& equation) {
  const DType dtype = dtype_of(context, equation.results[0]);
  auto tasks = task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape shape = context.box(equation.results[0], digits).size;
    const auto dim = equation.attributes.integer("dim");
    const LineSizes lines = line_sizes(shape, dim);
    const ScatterProblem problem{
        .outer = lines.outer,
        .rows = held_rows(context, equation.results[0], dim, digits),
        .row_bytes = size_bytes(Type{dtype, {lines.inner}}),
        .num_indices = num_elements(context.box(equation.operands[1], digits).size)};
    const std::int64_t table = problem.rows.count * problem.row_bytes;
    const std::int64_t updates = problem.num_indices * problem.row_bytes;
    return make_range_kernel(context, problem.outer, table,
                             [=](auto buffers, auto begin, auto end) {
                               ScatterProblem part = problem;
                               part.outer = end - begin;
                               std::byte* result = buffers[3] + begin * table;
                               if (buffers[3] != buffers[0]) {
                                 std::memcpy(result, buffers[0] + begin * table,
                                             static_cast<std::size_t>(part.outer * table));
                               }
                               scatter_rows(part, elements_of<const std::int32_t>(buffers[1]),
                                            buffers[2] + begin * updates, result);
                             });
  });
  for (TileTask& task : tasks) {
    task.may_share = {{0, 0}};
    const AtomDigits digits = context.layout(equation.results[0]).digits(task.writes[0].tile);
    task.touched_bytes = box_bytes(context, equation.operands[1], digits) +
                         2 * box_bytes(context, equation.operands[2], digits);
  }
  return tasks;
}

}  // namespace

Lowerings scatter_lowerings() { return {{"scatter", lower_scatter, true}}; }

}  // namespace tessera::compile::host
