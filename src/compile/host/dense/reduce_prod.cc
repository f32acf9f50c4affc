// reduce_prod: multiplies elements of dense tiles in index order.
#include <span>

#include "compile/host/contraction.h"
#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::compile::host {

namespace {

template <typename T>
void multiply_all(std::span<const std::int64_t> kept, const OffsetTable& reduced,
                  const std::byte* operand, T* to) {
  const T* from = elements_of<const T>(operand);
  for (std::int64_t base : kept) {
    T product{1};
    for (std::int64_t offset : reduced) product *= from[base + offset];
    *to++ = product;
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
