// reduce_prod: multiplies elements of dense tiles in index order.
#include <algorithm>
#include <array>
#include <span>

#include "compile/host/contraction.h"
#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::compile::host {

namespace {

constexpr std::size_t kMostColumns = 128;
constexpr std::size_t kLines = 8;  // products at once, since the steps of one wait for each other

/// How many results, up to kMostColumns, have adjacent terms.
std::size_t num_columns(std::span<const std::int64_t> kept) {
  std::size_t count = 1;
  while (count < std::min(kept.size(), kMostColumns) && kept[count] == kept[count - 1] + 1) ++count;
  return count;
}

template <typename T>
void multiply_columns(const T* from, std::size_t count, const OffsetTable& reduced, T* to) {
  constexpr std::size_t kAtOnce = 16;  // a loop of known length is vectorised
  std::array<T, kMostColumns> products;
  products.fill(T{1});
  for (const std::int64_t offset : reduced) {
    const T* row = from + offset;
    std::size_t first = 0;
    for (; first + kAtOnce <= count; first += kAtOnce) {
      T* some = products.data() + first;
      for (std::size_t i = 0; i < kAtOnce; ++i) some[i] *= row[first + i];
    }
    for (; first < count; ++first) products[first] *= row[first];
  }
  std::copy_n(products.begin(), count, to);
}

/// The products of kLines results.
template <typename T>
void multiply_lines(const T* from, const std::int64_t* kept, const OffsetTable& reduced, T* to) {
  std::array<const T*, kLines> lines;
  for (std::size_t i = 0; i < kLines; ++i) lines[i] = from + kept[i];
  std::array<T, kLines> products;
  products.fill(T{1});
  for (const std::int64_t offset : reduced) {
    for (std::size_t i = 0; i < kLines; ++i) products[i] *= lines[i][offset];
  }
  std::copy_n(products.begin(), kLines, to);
}

template <typename T>
T multiply_line(const T* from, const OffsetTable& reduced) {
  T product{1};
  for (const std::int64_t offset : reduced) product *= from[offset];
  return product;
}

template <typename T>
void multiply_all(std::span<const std::int64_t> kept, const OffsetTable& reduced,
                  const std::byte* operand, T* to) {
  const T* from = elements_of<const T>(operand);
  while (!kept.empty()) {
    std::size_t count = num_columns(kept);
    if (count >= kLines) {
      multiply_columns(from + kept[0], count, reduced, to);
    } else if (count = std::min(kept.size(), kLines); count == kLines) {
      multiply_lines(from, kept.data(), reduced, to);
    } else {
      for (std::size_t i = 0; i < count; ++i) to[i] = multiply_line(from + kept[i], reduced);
    }
    kept = kept.subspan(count);
    to += count;
  }
}

std::vector<TileTask> lower_reduce_prod(const LowerContext& context, const Equation& equation) {
  const ir::Ints& dims = equation.attributes.ints("dims");
  const DType dtype = dtype_of(context, equation.operands[0]);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape shape = context.box(equation.operands[0], digits).size;
    const auto strides = row_major_strides(shape);
    ir::Ints kept;
    for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(shape.size()); ++dim) {
      if (std::count(dims.begin(), dims.end(), dim) == 0) kept.push_back(dim);
    }
    OffsetTable bases = offsets(kept, shape, strides);
    OffsetTable terms = offsets(dims, shape, strides);
    const auto count = static_cast<std::int64_t>(bases.size());
    const auto terms_each = static_cast<std::int64_t>(terms.size());
    return make_range_kernel(
        context, count, terms_each,
        [bases = std::move(bases), terms = std::move(terms), dtype](auto buffers, auto begin,
                                                                    auto end) {
          const auto part = std::span(bases).subspan(static_cast<std::size_t>(begin),
                                                     static_cast<std::size_t>(end - begin));
          kernels::with_type(dtype, [&](auto zero) {
            using T = kernels::ArithmeticType<decltype(zero)>;
            multiply_all(part, terms, buffers[0], elements_of<T>(buffers[1]) + begin);
          });
        });
  });
}

}  // namespace

Lowerings reduce_prod_lowerings() {
  return {{"reduce_prod", lower_reduce_prod, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
