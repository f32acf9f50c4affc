// reduce_prod: multiplies elements of dense tiles in index order.
#include "compile/host/contraction.h"
#include "compile/host/dense_tasks.h"

namespace tessera::compile::host {

namespace {

template <typename T>
void multiply_all(const OffsetTable& kept, const OffsetTable& reduced, const std::byte* operand,
                  std::byte* result) {
  const T* from = elements_of<const T>(operand);
  T* to = elements_of<T>(result);
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
    return make_kernel([bases = offsets(kept, shape, strides),
                        terms = offsets(dims, shape, strides), dtype](auto buffers) {
      if (dtype == DType::f32) return multiply_all<float>(bases, terms, buffers[0], buffers[1]);
      multiply_all<std::uint32_t>(bases, terms, buffers[0], buffers[1]);
    });
  });
}

}  // namespace

Lowerings reduce_prod_lowerings() { return {{"reduce_prod", lower_reduce_prod, true}}; }

}  // namespace tessera::compile::host
