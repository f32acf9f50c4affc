// top_k: the largest elements of lines of dense tiles, and their positions.
#include <numeric>

#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::compile::host {

namespace {

/// NaN comes first; among equal elements the lower index.
template <typename T>
bool precedes(const T* line, std::int64_t step, std::int64_t i, std::int64_t j) {
  const T x = line[i * step];
  const T y = line[j * step];
  const bool x_is_nan = x != x;
  const bool y_is_nan = y != y;
  if (x_is_nan || y_is_nan) return x_is_nan && (!y_is_nan || i < j);
  return x == y ? i < j : x > y;
}

/// The `k` largest elements of each line in descending order and their positions.
template <typename T>
void top_k(std::int64_t k, const LineSizes& lines, const T* operand, T* values,
           std::int32_t* positions) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(lines.size));
  for (std::int64_t outer = 0; outer < lines.outer; ++outer) {
    for (std::int64_t inner = 0; inner < lines.inner; ++inner) {
      const T* line = operand + outer * lines.size * lines.inner + inner;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(
          order.begin(), order.begin() + k, order.end(),
          [&](std::int32_t i, std::int32_t j) { return precedes(line, lines.inner, i, j); });
      for (std::int64_t i = 0; i < k; ++i) {
        const std::int64_t to = (outer * k + i) * lines.inner + inner;
        positions[to] = order[static_cast<std::size_t>(i)];
        values[to] = line[positions[to] * lines.inner];
      }
    }
  }
}

std::vector<TileTask> lower_top_k(const LowerContext& context, const Equation& equation) {
  const std::int64_t k = equation.attributes.integer("k");
  const DType dtype = dtype_of(context, equation.operands[0]);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const LineSizes lines = line_sizes(context.box(equation.operands[0], digits).size,
                                       equation.attributes.integer("dim"));
    const std::int64_t line = lines.size * lines.inner;
    const std::int64_t best = k * lines.inner;
    return make_range_kernel(context, lines.outer, 4 * line,
                             [=](auto buffers, auto begin, auto end) {
                               kernels::with_type(dtype, [&](auto zero) {
                                 using T = decltype(zero);
                                 top_k(k, {end - begin, lines.size, lines.inner},
                                       elements_of<const T>(buffers[0]) + begin * line,
                                       elements_of<T>(buffers[1]) + begin * best,
                                       elements_of<std::int32_t>(buffers[2]) + begin * best);
                               });
                             });
  });
}

}  // namespace

Lowerings top_k_lowerings() { return {{"top_k", lower_top_k, true, Arithmetic::wide}}; }

}  // namespace tessera::compile::host
