// fft, rfft, irfft: rows of dense tiles.
#include "compile/host/kernels/fourier/fourier.h"

#include <cmath>

#include "compile/host/dense_tasks.h"

namespace tessera::compile::host {

namespace {

/// Threads share the rows. `transform` gets, for T = float or double, what `make_plan` made, the
/// buffers, the first row and their number, and the scale.
template <typename MakePlan, typename Transform>
std::vector<TileTask> lower_rows(const LowerContext& context, const Equation& equation,
                                 std::int64_t length, MakePlan make_plan, Transform transform) {
  const double scale = equation.attributes.get<double>("scale");
  const double passes = std::log2(static_cast<double>(std::max<std::int64_t>(length, 2)));
  const auto terms = static_cast<std::int64_t>(2 * passes * static_cast<double>(length));
  const auto lower = [&](auto zero) {
    using T = decltype(zero);
    const auto plan = make_plan(zero);
    return task_per_tile(context, equation, [&](const AtomDigits& digits) {
      const Shape box = context.box(equation.operands[0], digits).size;
      const std::int64_t rows = product(box.begin(), box.end() - 1);
      return make_range_kernel(context, rows, terms, [=](auto buffers, auto begin, auto end) {
        if (begin == end) return;
        transform(*plan, buffers, begin, end - begin, static_cast<T>(scale));
      });
    });
  };
  return dtype_of(context, equation.operands[0]) == DType::f64 ? lower(double{}) : lower(float{});
}

/// The parts of rows from `row` on, in two buffers from the first one on.
template <typename T>
kernels::Parts<T> parts_at(std::span<std::byte* const> buffers, std::size_t first, std::int64_t row,
                           std::int64_t length) {
  const kernels::Parts<T> parts = {elements_of<T>(buffers[first]),
                                   elements_of<T>(buffers[first + 1])};
  return parts + row * length;
}

std::vector<TileTask> lower_fft(const LowerContext& context, const Equation& equation) {
  const std::int64_t length = context.function().type(equation.operands[0]).shape.back();
  const bool is_inverse = equation.attributes.get<bool>("inverse");
  return lower_rows(
      context, equation, length,
      [=](auto zero) { return kernels::fourier_plan<decltype(zero)>(length); },
      [=](const auto& plan, auto buffers, auto row, auto count, auto scale) {
        using T = decltype(scale);
        const auto from = parts_at<const T>(buffers, 0, row, length);
        const auto to = parts_at<T>(buffers, 2, row, length);
        is_inverse ? plan.invert(count, from, to, scale) : plan.transform(count, from, to, scale);
      });
}

std::vector<TileTask> lower_rfft(const LowerContext& context, const Equation& equation) {
  const std::int64_t length = context.function().type(equation.operands[0]).shape.back();
  return lower_rows(
      context, equation, length,
      [=](auto zero) { return kernels::real_fourier_plan<decltype(zero)>(length); },
      [=](const auto& plan, auto buffers, auto row, auto count, auto scale) {
        using T = decltype(scale);
        plan.transform(count, elements_of<const T>(buffers[0]) + row * length,
                       parts_at<T>(buffers, 1, row, length / 2 + 1), scale);
      });
}

std::vector<TileTask> lower_irfft(const LowerContext& context, const Equation& equation) {
  const std::int64_t length = equation.attributes.integer("length");
  return lower_rows(
      context, equation, length,
      [=](auto zero) { return kernels::real_fourier_plan<decltype(zero)>(length); },
      [=](const auto& plan, auto buffers, auto row, auto count, auto scale) {
        using T = decltype(scale);
        plan.invert(count, parts_at<const T>(buffers, 0, row, length / 2 + 1),
                    elements_of<T>(buffers[2]) + row * length, scale);
      });
}

}  // namespace

Lowerings fourier_lowerings() {
  return {{"fft", lower_fft, true, Arithmetic::wide},
          {"irfft", lower_irfft, true, Arithmetic::wide},
          {"rfft", lower_rfft, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
