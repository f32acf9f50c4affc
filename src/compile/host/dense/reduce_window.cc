// Ops on windows of dense tiles: reduce_window_sum, _max and _min, and those of their derivatives.
#include <algorithm>
#include <limits>

#include "compile/host/dense/window_walk.h"
#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/boxes.h"
#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/window/windows.h"
#include "compile/host/kernels/with_type.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using ir::Ints;
using kernels::ReduceKind;
using kernels::WindowRows;

ReduceKind kind_of(const Equation& equation) {
  if (ops::is(equation, ops::reduce_window_sum_op)) return ReduceKind::sum;
  return ops::is(equation, ops::reduce_window_max_op) ? ReduceKind::max : ReduceKind::min;
}

/// The equation that pads the array the windows read, if the padding is left out.
const Equation* padding_of(const LowerContext& context, ValueId array) {
  if (!context.fusion().is_view[array]) return nullptr;
  const Equation& view = context.function().equations[context.fusion().definition[array]];
  return *view.op->host == "pad" ? &view : nullptr;
}

/// The windows of a tile of the result, in the tile of operand 0 or of the array that it pads.
WindowWalk windows_in_array(const LowerContext& context, const Equation& equation,
                            const AtomDigits& digits) {
  const Equation* padding = padding_of(context, equation.operands[0]);
  const ValueId array = padding == nullptr ? equation.operands[0] : padding->operands[0];
  const Box from = context.box(array, digits);
  const Box to = context.box(equation.results[0], digits);
  const Shape& shape = context.function().type(array).shape;
  std::vector<SpaceDim> dims;
  for (std::size_t d = 0; d < to.size.size(); ++d) {
    SpaceDim dim{.stride = equation.attributes.ints("stride")[d],
                 .windows = to.size[d],
                 .size = equation.attributes.ints("window")[d],
                 .rows = from.size[d]};
    if (padding != nullptr) {
      dim.spread = shape[d] > 1 ? padding->attributes.ints("interior")[d] + 1 : 1;
      dim.low = padding->attributes.ints("low")[d];
    }
    dim.low += from.start[d] * dim.spread - to.start[d] * dim.stride;
    dims.push_back(dim);
  }
  return WindowWalk(std::move(dims), true);
}

/// The windows that a tile needs of an operand. An operand may hold more of them.
struct HeldWindows {
  Box held, needed;

  bool is_whole() const { return held.size == needed.size; }
  /// The elements of the needed windows, dense: those of the buffer, or a copy in `copy`.
  template <typename T>
  const T* dense(std::byte* buffer, std::vector<std::byte>& copy) const {
    constexpr std::size_t kElementBytes = sizeof(T);
    if (is_whole()) return elements_of<const T>(buffer);
    const std::vector<std::int64_t> strides = row_major_strides(held.size);
    std::int64_t first = 0;
    for (std::size_t d = 0; d < strides.size(); ++d)
      first += (needed.start[d] - held.start[d]) * strides[d];
    copy.resize(static_cast<std::size_t>(num_elements(needed.size)) * kElementBytes);
    kernels::copy_box(buffer + first * std::int64_t{kElementBytes}, strides, copy.data(),
                      row_major_strides(needed.size), needed.size, kElementBytes);
    return elements_of<const T>(copy.data());
  }
};

/// For each element of a tile of the result, the windows of `from` that meet it.
WindowWalk windows_at_elements(const Equation& equation, const Box& from, const Box& to) {
  const auto attribute = [&](const char* name, std::size_t d) {
    return equation.attributes.ints(name)[d];
  };
  std::vector<SpaceDim> dims;
  for (std::size_t d = 0; d < to.size.size(); ++d) {
    const std::int64_t stride = attribute("stride", d);
    dims.push_back({.dilation = -1,
                    .spread = stride,
                    .low = from.start[d] * stride - to.start[d] - attribute("low", d),
                    .windows = to.size[d],
                    .size = attribute("window", d),
                    .rows = from.size[d]});
  }
  return WindowWalk(std::move(dims), false);
}

template <typename T>
void fill_rows(const WindowRows& rows, T value, T* to) {
  for (std::int64_t row = 0; row < rows.rows; ++row)
    std::fill_n(to + row * rows.result_step(), rows.columns, value);
}

/// `run(buffers, rows, from, to)` must compute some rows of the result.
template <typename Run>
std::shared_ptr<const run::Kernel> window_kernel(const LowerContext& context, WindowWalk walk,
                                                 Run run) {
  const std::int64_t pieces = walk.num_pieces(), terms = walk.terms_each();
  return make_range_kernel(
      context, pieces, terms,
      [walk = std::move(walk), run](auto buffers, std::int64_t first, std::int64_t end) {
        walk.visit(first, end, [&](const WindowRows& rows, std::int64_t from, std::int64_t to) {
          run(buffers, rows, from, to);
        });
      });
}

// There are no vector kernels for f64. Its padding is never left out, so a search lacks no element.

template <typename T>
void find_rows(const WindowRows& rows, float fill, const T* from, const T* wanted,
               std::int32_t* to) {
  if constexpr (std::is_same_v<T, float>) {
    kernels::find_in_windows(rows, fill, from, wanted, to);
  } else {
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      for (std::int64_t i = 0; i < rows.columns; ++i) {
        const auto first = std::find_if(rows.offsets.begin(), rows.offsets.end(),
                                        [&](std::int64_t at) { return from[at + i] == wanted[i]; });
        to[i] = first == rows.offsets.end()
                    ? -1
                    : rows.numbers[static_cast<std::size_t>(first - rows.offsets.begin())];
      }
      from += rows.stride;
      wanted += rows.result_step();
      to += rows.result_step();
    }
  }
}

template <typename T>
void sum_taken_rows(const WindowRows& rows, const std::int32_t* taken, const T* values, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    kernels::sum_taken(rows, taken, values, to);
  } else {
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      for (std::int64_t i = 0; i < rows.columns; ++i) {
        // Adding to -0.0 changes no term; a missing term counts as +0.0.
        T sum = rows.missing >= 0 ? T{0} : -T{0};
        for (std::size_t k = 0; k < rows.offsets.size(); ++k) {
          const std::int64_t at = rows.offsets[k] + i;
          sum += taken[at] == rows.numbers[k] ? values[at] : T{0};
        }
        to[i] = sum;
      }
      taken += rows.stride;
      values += rows.stride;
      to += rows.result_step();
    }
  }
}

/// Calls `visit` with a zero of the type in which floats are computed.
template <typename Visit>
void with_float(DType dtype, Visit visit) {
  if (dtype == DType::f64) return visit(double{});
  visit(float{});
}

/// Sums what windows give to the elements of a tile.
template <typename T>
class SpreadKernel {
 public:
  SpreadKernel(WindowWalk walk, HeldWindows numbers, HeldWindows values)
      : walk_(std::move(walk)), numbers_(std::move(numbers)), values_(std::move(values)) {}

  const WindowWalk& walk() const { return walk_; }
  void operator()(std::span<std::byte* const> buffers, std::int64_t first, std::int64_t end) const {
    std::vector<std::byte> copies[2];
    const auto* numbers = numbers_.dense<std::int32_t>(buffers[0], copies[0]);
    const auto* values = values_.dense<T>(buffers[1], copies[1]);
    walk_.visit(first, end, [&](const WindowRows& rows, std::int64_t from, std::int64_t to) {
      auto* result = elements_of<T>(buffers[2]) + to;
      if (rows.offsets.empty()) return fill_rows(rows, T{0}, result);
      sum_taken_rows(rows, numbers + from, values + from, result);
    });
  }

 private:
  WindowWalk walk_;
  HeldWindows numbers_, values_;
};

/// Windows that contain only padding give the padding.
float identity_of(ReduceKind kind) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (kind == ReduceKind::sum) return 0;
  return kind == ReduceKind::max ? -kInf : kInf;
}

template <typename T>
void reduce_rows(ReduceKind kind, const WindowRows& rows, const T* from, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    if (rows.offsets.empty()) return fill_rows(rows, identity_of(kind), to);
    return kernels::reduce_windows(kind, rows, from, to);
  }
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    std::copy_n(from + rows.offsets[0], rows.columns, to);
    for (const std::int64_t offset : rows.offsets.subspan(1)) {
      if (kind == ReduceKind::sum) {
        kernels::add_run(to, from + offset, rows.columns);
        continue;
      }
      for (std::int64_t i = 0; i < rows.columns; ++i)
        to[i] = kernels::better(kind, to[i], from[offset + i]);
    }
    from += rows.stride;
    to += rows.result_step();
  }
}

std::vector<TileTask> lower_reduce_window(const LowerContext& context, const Equation& equation) {
  const ReduceKind kind = kind_of(equation);
  const DType dtype = dtype_of(context, equation.operands[0]);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    return window_kernel(
        context, windows_in_array(context, equation, digits),
        [kind, dtype](auto buffers, const WindowRows& rows, std::int64_t from, std::int64_t to) {
          kernels::with_type(dtype, [&](auto zero) {
            using T = decltype(zero);
            reduce_rows(kind, rows, elements_of<const T>(buffers[0]) + from,
                        elements_of<T>(buffers[1]) + to);
          });
        });
  });
}

std::vector<TileTask> lower_find_in_windows(const LowerContext& context, const Equation& equation) {
  // Stands in for elements outside of the array.
  const auto fill = static_cast<float>(context.fusion().padding[equation.operands[0]].value_or(0));
  const DType dtype = dtype_of(context, equation.operands[0]);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    return window_kernel(
        context, windows_in_array(context, equation, digits),
        [fill, dtype](auto buffers, const WindowRows& rows, std::int64_t from, std::int64_t to) {
          with_float(dtype, [&](auto zero) {
            using T = decltype(zero);
            find_rows(rows, fill, elements_of<const T>(buffers[0]) + from,
                      elements_of<const T>(buffers[1]) + to,
                      elements_of<std::int32_t>(buffers[2]) + to);
          });
        });
  });
}

template <typename T>
std::shared_ptr<const run::Kernel> spread_kernel(const LowerContext& context,
                                                 const Equation& equation,
                                                 const AtomDigits& digits) {
  const Box numbers = context.box(equation.operands[0], digits);
  const Box values = context.box(equation.operands[1], digits);
  const Box needed = intersect(numbers, values);
  SpreadKernel<T> kernel(
      windows_at_elements(equation, needed, context.box(equation.results[0], digits)),
      {numbers, needed}, {values, needed});
  const std::int64_t pieces = kernel.walk().num_pieces(), terms = kernel.walk().terms_each();
  return make_range_kernel(context, pieces, terms, std::move(kernel));
}

std::vector<TileTask> lower_spread_from_windows(const LowerContext& context,
                                                const Equation& equation) {
  const DType dtype = dtype_of(context, equation.operands[1]);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    std::shared_ptr<const run::Kernel> kernel;
    with_float(dtype, [&](auto zero) {
      kernel = spread_kernel<decltype(zero)>(context, equation, digits);
    });
    return kernel;
  });
}

}  // namespace

Lowerings reduce_window_lowerings() {
  return {{"find_in_windows", lower_find_in_windows, true, Arithmetic::wide},
          {"reduce_window", lower_reduce_window, true, Arithmetic::wide},
          {"spread_from_windows", lower_spread_from_windows, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
