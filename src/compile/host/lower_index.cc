// Lowerings of ops that index by data: gather, scatter_add, sort, and keys of random numbers.

#include <algorithm>

#include "base/threefry.h"
#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/index.h"
#include "compile/host/leaves.h"
#include "ops/record.h"

namespace tessera::compile::host {

std::vector<TileTask> lower_gather(const LowerContext& context, const Equation& equation) {
  const auto dim = equation.attributes.integer("dim");
  const DType dtype = context.function().type(equation.results[0]).dtype;
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape shape = context.box(equation.operands[0], digits).size;
    const Shape indices = context.box(equation.operands[1], digits).size;
    const auto split = shape.begin() + dim;
    const kernels::GatherProblem problem{.dtype = dtype,
                                         .outer = product(shape.begin(), split),
                                         .rows = *split,
                                         .inner = product(split + 1, shape.end()),
                                         .num_indices = num_elements(indices)};
    return make_kernel([problem](std::span<std::byte* const> buffers) {
      kernels::gather_rows(problem, buffers[0], reinterpret_cast<const std::int32_t*>(buffers[1]),
                           buffers[2]);
    });
  });
}

std::vector<TileTask> lower_scatter_add(const LowerContext& context, const Equation& equation) {
  const auto dim = equation.attributes.integer("dim");
  const DType dtype = context.function().type(equation.results[0]).dtype;
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const ValueId indices = equation.operands[0];
    const Shape index_shape = context.box(indices, digits).size;
    const Shape shape = context.box(equation.results[0], digits).size;
    const auto split = shape.begin() + dim;
    kernels::ScatterAddProblem problem{.dtype = dtype,
                                       .outer = product(shape.begin(), split),
                                       .rows = *split,
                                       .inner = product(split + 1, shape.end()),
                                       .order = {},
                                       .leaf_ends = {}};
    std::vector<LeafRange> ranges;
    for (std::size_t d = 0; d < index_shape.size(); ++d) {
      ranges.push_back(leaf_range(context.layout(indices), d, digits));
    }
    const std::vector<LeafBox> leaves = leaf_boxes(ranges, context.function().grains, dtype);
    problem.order = leaf_order(leaves, row_major_strides(index_shape));
    problem.leaf_ends = leaf_ends(leaves);
    return make_kernel([problem](std::span<std::byte* const> buffers) {
      kernels::scatter_add_rows(problem, reinterpret_cast<const std::int32_t*>(buffers[0]),
                                buffers[1], buffers[2]);
    });
  });
}

std::vector<TileTask> lower_sort(const LowerContext& context, const Equation& equation) {
  const auto dim = equation.attributes.integer("dim");
  kernels::SortProblem problem;
  for (ValueId id : equation.operands) {
    problem.dtypes.push_back(context.function().type(id).dtype);
  }
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape shape = context.box(equation.operands[0], digits).size;
    const auto split = shape.begin() + dim;
    problem.outer = product(shape.begin(), split);
    problem.size = *split;
    problem.inner = product(split + 1, shape.end());
    return make_kernel([problem](std::span<std::byte* const> buffers) {
      const std::size_t count = problem.dtypes.size();
      kernels::sort_rows(problem, buffers.first(count), buffers.subspan(count, count));
    });
  });
}

std::vector<TileTask> lower_random_keys(const LowerContext& context, const Equation& equation) {
  const bool is_split = *equation.op->name == "random_split";
  const Layout& layout = context.layout(equation.results[0]);
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Box box = layout.box(layout.tile_at(digits));
    return make_kernel([is_split, box](std::span<std::byte* const> buffers) {
      const auto* words = reinterpret_cast<const std::uint32_t*>(buffers[0]);
      const KeyData key{words[0], words[1]};
      auto* out = reinterpret_cast<std::uint32_t*>(buffers[is_split ? 1 : 2]);
      if (!is_split) {
        const auto data = *reinterpret_cast<const std::uint32_t*>(buffers[1]);
        const auto pair = threefry2x32(key, 0, data);
        std::copy(pair.begin(), pair.end(), out);
        return;
      }
      for (std::int64_t i = 0; i < box.size[0]; ++i) {
        const auto index = static_cast<std::uint64_t>(box.start[0] + i);
        const auto pair = threefry2x32(key, static_cast<std::uint32_t>(index >> 32),
                                       static_cast<std::uint32_t>(index));
        std::copy(pair.begin(), pair.end(), out + 2 * i);
      }
    });
  });
}

}  // namespace tessera::compile::host
