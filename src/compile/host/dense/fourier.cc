// fft, rfft, irfft: rows of dense tiles.
#include "compile/host/kernels/fourier/fourier.h"

#include <cmath>

#include "compile/host/dense_tasks.h"

namespace tessera::compile::host {

namespace {

/// Threads share the pieces of a tile. For T = float or double, `pieces` gets the plan from
/// `make_plan` and the shape of the tile. `transform` gets these too, and the buffers, the first
/// piece and the end, and the scale.
template <typename MakePlan, typename Pieces, typename Transform>
std::vector<TileTask> lower_pieces_of(const LowerContext& context, const Equation& equation,
                                      std::int64_t length, MakePlan make_plan, Pieces pieces,
                                      Transform transform) {
  const double scale = equation.attributes.get<double>("scale");
  const auto size = static_cast<double>(std::max<std::int64_t>(length, 2));
  const auto terms = static_cast<std::int64_t>(2 * size * std::log2(size));
  const auto lower = [&](auto zero) {
    using T = decltype(zero);
    const auto plan = make_plan(zero);
    return task_per_tile(context, equation, [&](const AtomDigits& digits) {
      const Shape box = context.box(equation.operands[0], digits).size;
      return make_range_kernel(
          context, pieces(*plan, box), terms, [=](auto buffers, auto begin, auto end) {
            if (begin < end) transform(*plan, box, buffers, begin, end, static_cast<T>(scale));
          });
    });
  };
  return dtype_of(context, equation.operands[0]) == DType::f64 ? lower(double{}) : lower(float{});
}

constexpr auto kNumRows = [](const auto& /*plan*/, const Shape& box) {
  return product(box.begin(), box.end() - 1);
};

/// The real and imaginary parts from element `at` on, in two buffers.
template <typename T>
kernels::Parts<T> parts_at(std::span<std::byte* const> buffers, std::size_t first,
                           std::int64_t at) {
  return {elements_of<T>(buffers[first]) + at, elements_of<T>(buffers[first + 1]) + at};
}

std::vector<TileTask> lower_rows_of_fft(const LowerContext& context, const Equation& equation) {
  const std::int64_t length = context.function().type(equation.operands[0]).shape.back();
  const bool is_inverse = equation.attributes.get<bool>("inverse");
  return lower_pieces_of(
      context, equation, length,
      [=](auto zero) { return kernels::fourier_plan<decltype(zero)>(length); }, kNumRows,
      [=](const auto& plan, const Shape&, auto buffers, auto row, auto end, auto scale) {
        using T = decltype(scale);
        const auto from = parts_at<const T>(buffers, 0, row * length);
        const auto to = parts_at<T>(buffers, 2, row * length);
        if (is_inverse) {
          plan.invert(end - row, from, to, scale);
        } else {
          plan.transform(end - row, from, to, scale);
        }
      });
}

/// The dimension and those after it form matrices; transforms their columns, a strip of them at a
/// time.
std::vector<TileTask> lower_fft(const LowerContext& context, const Equation& equation) {
  const Shape& shape = context.function().type(equation.operands[0]).shape;
  const std::int64_t dim = equation.attributes.integer("dim");
  if (dim + 1 == std::ssize(shape)) return lower_rows_of_fft(context, equation);
  const std::int64_t length = shape[static_cast<std::size_t>(dim)];
  const bool is_inverse = equation.attributes.get<bool>("inverse");
  const auto strips_of = [](const auto& plan, const LineSizes& lines) {
    return (lines.inner + plan.columns_together() - 1) / plan.columns_together();
  };
  return lower_pieces_of(
      context, equation, kernels::fourier::kWidth<float> * length,
      [=](auto zero) { return kernels::fourier_plan<decltype(zero)>(length); },
      [=](const auto& plan, const Shape& box) {
        const LineSizes lines = line_sizes(box, dim);
        return lines.outer * strips_of(plan, lines);
      },
      [=](const auto& plan, const Shape& box, auto buffers, auto strip, auto end, auto scale) {
        using T = decltype(scale);
        const LineSizes lines = line_sizes(box, dim);
        for (; strip < end; ++strip) {
          const std::int64_t first = strip % strips_of(plan, lines) * plan.columns_together();
          const std::int64_t at = strip / strips_of(plan, lines) * length * lines.inner + first;
          const std::int64_t count = std::min(plan.columns_together(), lines.inner - first);
          const auto from = parts_at<const T>(buffers, 0, at);
          const auto to = parts_at<T>(buffers, 2, at);
          if (is_inverse) {
            plan.invert_columns(count, lines.inner, from, to, scale);
          } else {
            plan.transform_columns(count, lines.inner, from, to, scale);
          }
        }
      });
}

std::vector<TileTask> lower_rfft(const LowerContext& context, const Equation& equation) {
  const std::int64_t length = context.function().type(equation.operands[0]).shape.back();
  return lower_pieces_of(
      context, equation, length,
      [=](auto zero) { return kernels::real_fourier_plan<decltype(zero)>(length); }, kNumRows,
      [=](const auto& plan, const Shape&, auto buffers, auto row, auto end, auto scale) {
        using T = decltype(scale);
        plan.transform(end - row, elements_of<const T>(buffers[0]) + row * length,
                       parts_at<T>(buffers, 1, row * (length / 2 + 1)), scale);
      });
}

std::vector<TileTask> lower_irfft(const LowerContext& context, const Equation& equation) {
  const std::int64_t length = equation.attributes.integer("length");
  return lower_pieces_of(
      context, equation, length,
      [=](auto zero) { return kernels::real_fourier_plan<decltype(zero)>(length); }, kNumRows,
      [=](const auto& plan, const Shape&, auto buffers, auto row, auto end, auto scale) {
        using T = decltype(scale);
        plan.invert(end - row, parts_at<const T>(buffers, 0, row * (length / 2 + 1)),
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
