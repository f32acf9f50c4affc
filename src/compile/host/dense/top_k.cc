// top_k: the largest elements of lines of dense tiles, and their positions.
#include <algorithm>
#include <numeric>

#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::compile::host {

namespace {

/// NaN comes first; among equal elements, the lower index does.
template <typename T>
bool precedes(const T* line, std::int64_t step, std::int64_t i, std::int64_t j) {
  const T x = line[i * step];
  const T y = line[j * step];
  const bool x_is_nan = x != x;
  const bool y_is_nan = y != y;
  if (x_is_nan || y_is_nan) return x_is_nan && (!y_is_nan || i < j);
  return x == y ? i < j : x > y;
}

/// Fills `best` with the positions of the first elements of a line in this order, as many as it
/// holds. Most elements need one comparison, with the last of the best so far.
template <typename T>
void find_best(const T* line, std::int64_t step, std::int64_t size,
               std::vector<std::int32_t>& best) {
  const auto is_before = [&](std::int32_t i, std::int32_t j) { return precedes(line, step, i, j); };
  std::iota(best.begin(), best.end(), 0);
  std::make_heap(best.begin(), best.end(), is_before);  // the last in order comes first
  T last = line[best[0] * step];
  for (std::int64_t i = std::ssize(best); i < size; ++i) {
    if (line[i * step] <= last) continue;  // not so if one of them is NaN
    const auto position = static_cast<std::int32_t>(i);
    if (!is_before(position, best[0])) continue;
    std::pop_heap(best.begin(), best.end(), is_before);
    best.back() = position;
    std::push_heap(best.begin(), best.end(), is_before);
    last = line[best[0] * step];
  }
  std::sort_heap(best.begin(), best.end(), is_before);
}

/// The `k` largest elements of each line in descending order and their positions.
template <typename T>
void top_k(std::int64_t k, const LineSizes& lines, const T* operand, T* values,
           std::int32_t* positions) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(k));
  if (k == 0) return;
  for (std::int64_t outer = 0; outer < lines.outer; ++outer) {
    for (std::int64_t inner = 0; inner < lines.inner; ++inner) {
      const T* line = operand + outer * lines.size * lines.inner + inner;
      find_best(line, lines.inner, lines.size, order);
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
