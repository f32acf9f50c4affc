// reduce_window_sum, _max and _min: windows of dense tiles.
#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/windows.h"
#include "compile/host/kernels/with_type.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using ir::Ints;
using kernels::ReduceKind;

/// Element p of the result is the reduction (sum, max or min) of the operand's elements p * stride
/// to p * stride + window, in row-major order.
struct WindowProblem {
  ReduceKind kind;
  Shape operand;
  Shape result;
  Ints window;
  Ints stride;
};

ReduceKind kind_of(const Equation& equation) {
  if (ops::is(equation, ops::reduce_window_sum_op)) return ReduceKind::sum;
  return ops::is(equation, ops::reduce_window_max_op) ? ReduceKind::max : ReduceKind::min;
}

/// Calls `visit(offset)` for all indices of `sizes`, row-major.
template <typename Visit>
void for_each_offset(const Ints& sizes, const Ints& strides, Visit visit) {
  if (num_elements(sizes) == 0) return;
  Ints index(sizes.size(), 0);
  std::int64_t offset = 0;
  while (true) {
    visit(offset);
    std::size_t dim = sizes.size();
    while (dim > 0) {
      --dim;
      offset += strides[dim];
      if (++index[dim] < sizes[dim]) break;
      offset -= sizes[dim] * strides[dim];
      index[dim] = 0;
      if (dim == 0) return;
    }
    if (sizes.empty()) return;
  }
}

/// The last dimensions, along which the window has size 1, are handled as one row.
struct Rows {
  explicit Rows(const WindowProblem& p) : dims(p.window.size()) {
    while (dims > 0 && p.window[dims - 1] == 1 && p.stride[dims - 1] == 1) {
      length *= p.result[--dims];
    }
  }
  std::size_t dims;
  std::int64_t length = 1;
};

template <typename T>
void reduce_rows_of_windows(ReduceKind kind, const kernels::WindowRows& windows, const T* from,
                            T* to) {
  if constexpr (std::is_same_v<T, float>) return kernels::reduce_windows(kind, windows, from, to);
  for (std::int64_t row = 0; row < windows.rows; ++row) {
    std::copy_n(from + windows.offsets[0], windows.columns, to);
    for (const std::int64_t offset : windows.offsets.subspan(1)) {
      if (kind == ReduceKind::sum) {
        kernels::add_run(to, from + offset, windows.columns);
        continue;
      }
      for (std::int64_t i = 0; i < windows.columns; ++i)
        to[i] = kernels::better(kind, to[i], from[offset + i]);
    }
    from += windows.stride;
    to += windows.columns;
  }
}

/// The positions along the last dimension with a window are the rows of one call.
template <typename T>
void reduce_window(const WindowProblem& p, const T* operand, T* result) {
  const Rows rows(p);
  const Ints strides = row_major_strides(p.operand);
  Ints sizes;
  Ints moves;
  Ints window;
  Ints steps;
  for (std::size_t i = 0; i < rows.dims; ++i) {
    sizes.push_back(p.result[i]);
    moves.push_back(strides[i] * p.stride[i]);
    window.push_back(p.window[i]);
    steps.push_back(strides[i]);
  }
  Ints offsets;
  for_each_offset(window, steps, [&](std::int64_t offset) { offsets.push_back(offset); });
  kernels::WindowRows together = {
      .offsets = offsets, .rows = 1, .stride = 0, .columns = rows.length};
  if (!sizes.empty()) {
    together.rows = sizes.back();
    together.stride = moves.back();
    sizes.pop_back();
    moves.pop_back();
  }
  T* to = result;
  for_each_offset(sizes, moves, [&](std::int64_t base) {
    reduce_rows_of_windows(p.kind, together, operand + base, to);
    to += together.rows * together.columns;
  });
}

void reduce_tile(DType dtype, const WindowProblem& problem, const std::byte* operand,
                 std::byte* result) {
  kernels::with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    reduce_window(problem, elements_of<const T>(operand), elements_of<T>(result));
  });
}

/// Parts are ranges of the result along its first dimension.
std::shared_ptr<const run::Kernel> window_kernel(const LowerContext& context, DType dtype,
                                                 const WindowProblem& problem) {
  if (problem.window.empty()) {
    return make_kernel([=](auto buffers) { reduce_tile(dtype, problem, buffers[0], buffers[1]); });
  }
  const auto bytes_each = [&](const Shape& shape) {
    return size_bytes(Type{dtype, {product(shape.begin() + 1, shape.end())}});
  };
  const std::int64_t from = bytes_each(problem.operand) * problem.stride[0];
  const std::int64_t to = bytes_each(problem.result);
  const std::int64_t terms = product(problem.result.begin() + 1, problem.result.end()) *
                             product(problem.window.begin(), problem.window.end());
  return make_range_kernel(
      context, problem.result[0], terms, [=](auto buffers, auto begin, auto end) {
        if (begin == end) return;
        WindowProblem part = problem;
        part.result[0] = end - begin;
        part.operand[0] = (end - begin - 1) * problem.stride[0] + problem.window[0];
        reduce_tile(dtype, part, buffers[0] + begin * from, buffers[1] + begin * to);
      });
}

std::vector<TileTask> lower_reduce_window(const LowerContext& context, const Equation& equation) {
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    return window_kernel(context, dtype_of(context, equation.operands[0]),
                         {.kind = kind_of(equation),
                          .operand = context.box(equation.operands[0], digits).size,
                          .result = context.box(equation.results[0], digits).size,
                          .window = equation.attributes.ints("window"),
                          .stride = equation.attributes.ints("stride")});
  });
}

}  // namespace

Lowerings reduce_window_lowerings() { return {{"reduce_window", lower_reduce_window, true, true}}; }

}  // namespace tessera::compile::host
