// cumsum, cumprod, cummax, cummin: along lines of dense tiles.
#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/with_type.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

enum class Kind : std::uint8_t { sum, product, max, min };

Kind cumulative_kind(const Equation& equation) {
  if (ops::is(equation, ops::cumsum_op)) return Kind::sum;
  if (ops::is(equation, ops::cumprod_op)) return Kind::product;
  return ops::is(equation, ops::cummax_op) ? Kind::max : Kind::min;
}

/// to[i] = from[i] combined with previous[i].
template <typename T>
void combine_run(Kind kind, const T* previous, const T* from, T* to, std::int64_t count) {
  using Sum = kernels::ArithmeticType<T>;
  auto each = [&](auto combine) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = combine(previous[i], from[i]);
  };
  switch (kind) {
    case Kind::sum:
      return each(
          [](T x, T y) { return static_cast<T>(static_cast<Sum>(x) + static_cast<Sum>(y)); });
    case Kind::product:
      return each(
          [](T x, T y) { return static_cast<T>(static_cast<Sum>(x) * static_cast<Sum>(y)); });
    case Kind::max:
      return each([](T x, T y) { return kernels::better(kernels::ReduceKind::max, x, y); });
    case Kind::min:
      return each([](T x, T y) { return kernels::better(kernels::ReduceKind::min, x, y); });
  }
}

/// Element i of a line is the reduction of elements 0 to i in index order; with `reverse` of the
/// elements from the last one down to i.
template <typename T>
void cumulate(Kind kind, bool reverse, const LineSizes& lines, const T* operand, T* result) {
  if (lines.size == 0) return;
  const std::int64_t inner = lines.inner;
  const std::int64_t step = reverse ? -inner : inner;
  for (std::int64_t outer = 0; outer < lines.outer; ++outer) {
    const std::int64_t first = (outer * lines.size + (reverse ? lines.size - 1 : 0)) * inner;
    std::copy_n(operand + first, inner, result + first);
    for (std::int64_t i = 1; i < lines.size; ++i) {
      const std::int64_t at = first + i * step;
      combine_run(kind, result + at - step, operand + at, result + at, inner);
    }
  }
}

std::vector<TileTask> lower_cumulative(const LowerContext& context, const Equation& equation) {
  const Kind kind = cumulative_kind(equation);
  const bool reverse = equation.attributes.get<bool>("reverse");
  const DType dtype = dtype_of(context, equation.operands[0]);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const LineSizes lines = line_sizes(context.box(equation.operands[0], digits).size,
                                       equation.attributes.integer("dim"));
    const std::int64_t line = lines.size * lines.inner;
    return make_range_kernel(context, lines.outer, line, [=](auto buffers, auto begin, auto end) {
      kernels::with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        cumulate(kind, reverse, {end - begin, lines.size, lines.inner},
                 elements_of<const T>(buffers[0]) + begin * line,
                 elements_of<T>(buffers[1]) + begin * line);
      });
    });
  });
}

}  // namespace

Lowerings cumulative_lowerings() {
  return {{"cumulative", lower_cumulative, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
