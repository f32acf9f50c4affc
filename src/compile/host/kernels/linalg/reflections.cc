#include "compile/host/kernels/linalg/reflections.h"

#include <algorithm>
#include <cmath>

#include "compile/host/kernels/linalg/scaled.h"

namespace tessera::kernels {

namespace {

/// The sum of squares in a fixed order.
template <typename T>
double sum_of_squares(std::int64_t count, const T* x, double scale) {
  constexpr std::int64_t kLanes = 8;
  double sums[kLanes] = {};
  for (std::int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(x[i + lane]) * scale;
      sums[lane] += value * value;
    }
  }
  for (std::int64_t i = count / kLanes * kLanes; i < count; ++i) {
    const double value = static_cast<double>(x[i]) * scale;
    sums[i % kLanes] += value * value;
  }
  double sum = 0.0;
  for (const double of_lane : sums) sum += of_lane;
  return sum;
}

template <typename T>
T* transposed(MatrixMemory& memory, std::int64_t rows, std::int64_t cols, const T* x,
              std::int64_t stride, std::int64_t stride_of_result) {
  T* result = memory.take<T>(cols * stride_of_result);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) result[j * stride_of_result + i] = x[i * stride + j];
  }
  return result;
}

}  // namespace

template <typename T>
Reflection<T> make_reflection(std::int64_t count, T* x) {
  // Keeps squares in the range of f64.
  const double scale =
      sizeof(T) < sizeof(double) ? 1.0 : scale_for(static_cast<double>(largest_of(count, x)));
  const double rest = sum_of_squares(count - 1, x + 1, scale);
  const T first = x[0];
  x[0] = T{1};
  if (rest == 0.0) {
    std::fill_n(x + 1, count - 1, T{0});
    return {.tau = T{0}, .length = first};
  }
  const double scaled = static_cast<double>(first) * scale;
  const double length = -std::copysign(std::sqrt(scaled * scaled + rest), scaled);
  const double factor = 1.0 / (scaled - length);
  for (std::int64_t i = 1; i < count; ++i) {
    x[i] = static_cast<T>(static_cast<double>(x[i]) * scale * factor);
  }
  return {.tau = static_cast<T>((length - scaled) / length),
          .length = static_cast<T>(length / scale)};
}

template <typename T>
ReflectionBlock<T> make_block(MatrixMemory& memory, std::int64_t first, std::int64_t rows,
                              std::int64_t count, const T* v, const T* taus) {
  const T* v_transposed = transposed(memory, rows, count, v, kReflections, rows);
  // The inverse of t is the part of transpose(v) * v above the diagonal, with 1 / tau on the
  // diagonal.
  const Strips<T> of_v = load_strips(memory, rows, count, v, kReflections);
  const Strips<T> products = memory.take_zero_strips<T>(count, count);
  subtract_product(StripProduct<T>{.a = v_transposed,
                                   .a_stride = rows,
                                   .b = of_v.data,
                                   .b_stride = of_v.stride(),
                                   .c = products.data,
                                   .c_stride = products.stride(),
                                   .rows = count,
                                   .terms = rows,
                                   .strips = products.count()});
  T* inverse = memory.take<T>(count * kReflections);
  const Strips<T> t = memory.take_zero_strips<T>(count, count);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < i; ++j) inverse[i * kReflections + j] = -products.at(i, j)[0];
    inverse[i * kReflections + i] = T{1} / taus[i];  // where tau is 0, t gets zeros
    t.at(i, i)[0] = T{1};
  }
  solve_lower(StripSystem<T>{.l = inverse,
                             .l_stride = kReflections,
                             .has_unit_diagonal = false,
                             .x = t.data,
                             .x_stride = t.stride(),
                             .size = count,
                             .strips = t.count()});
  T* t_transposed = memory.take<T>(count * kReflections);
  store_strips(t, t_transposed, kReflections);
  return {.first = first,
          .rows = rows,
          .count = count,
          .v = v,
          .v_transposed = v_transposed,
          .t = transposed(memory, count, count, t_transposed, kReflections, kReflections),
          .t_transposed = t_transposed};
}

template <typename T>
void apply(const ReflectionBlock<T>& block, bool is_transposed, const Strips<T>& x,
           std::int64_t first_strip) {
  alignas(64) T products[kReflections * kStripWidth<T>];
  alignas(64) T factors[kReflections * kStripWidth<T>];
  const std::int64_t count = block.count * kStripWidth<T>;
  for (std::int64_t s = first_strip; s < x.count(); ++s) {
    T* strip = x.strip(s, block.first);
    const auto subtract = [](const T* a, std::int64_t a_stride, const T* b, T* c, std::int64_t rows,
                             std::int64_t terms) {
      subtract_product(StripProduct<T>{.a = a,
                                       .a_stride = a_stride,
                                       .b = b,
                                       .b_stride = 0,
                                       .c = c,
                                       .c_stride = 0,
                                       .rows = rows,
                                       .terms = terms,
                                       .strips = 1});
    };
    std::fill_n(products, count, T{0});
    std::fill_n(factors, count, T{0});
    subtract(block.v_transposed, block.rows, strip, products, block.count, block.rows);
    subtract(is_transposed ? block.t_transposed : block.t, kReflections, products, factors,
             block.count, block.count);
    subtract(block.v, kReflections, factors, strip, block.rows, block.count);
  }
}

template <typename T>
Strips<T> product_of(MatrixMemory& memory, const std::vector<ReflectionBlock<T>>& blocks,
                     std::int64_t rows, std::int64_t cols) {
  const Strips<T> q = memory.take_zero_strips<T>(rows, cols);
  for (std::int64_t i = 0; i < std::min(rows, cols); ++i) q.at(i, i)[0] = T{1};
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    // Earlier columns are still those of the identity, which the reflection does not change.
    apply(*block, false, q, block->first / kStripWidth<T>);
  }
  return q;
}

template Reflection<float> make_reflection(std::int64_t, float*);
template Reflection<double> make_reflection(std::int64_t, double*);
template ReflectionBlock<float> make_block(MatrixMemory&, std::int64_t, std::int64_t, std::int64_t,
                                           const float*, const float*);
template ReflectionBlock<double> make_block(MatrixMemory&, std::int64_t, std::int64_t, std::int64_t,
                                            const double*, const double*);
template void apply(const ReflectionBlock<float>&, bool, const Strips<float>&, std::int64_t);
template void apply(const ReflectionBlock<double>&, bool, const Strips<double>&, std::int64_t);
template Strips<float> product_of(MatrixMemory&, const std::vector<ReflectionBlock<float>>&,
                                  std::int64_t, std::int64_t);
template Strips<double> product_of(MatrixMemory&, const std::vector<ReflectionBlock<double>>&,
                                   std::int64_t, std::int64_t);

}  // namespace tessera::kernels
