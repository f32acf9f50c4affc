#include "compile/host/contraction.h"
#include "compile/host/leaves.h"
#include "ops/rules.h"

namespace tessera::compile::host {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Windows are read without a copy: element (window, position in the window) is at the sum of two
/// offsets, because all windows have the same strides.
kernels::GemmProblem problem_of(const LowerContext& context, const Equation& equation,
                                const StridedTile& lhs, const StridedTile& rhs,
                                const AtomDigits& digits) {
  const ir::Ints& stride = equation.attributes.ints("stride");
  const ir::Ints& dilation = equation.attributes.ints("dilation");
  const Box lhs_box = context.box(equation.operands[0], digits);
  const Box rhs_box = context.box(equation.operands[1], digits);
  const Box box = context.box(equation.results[0], digits);
  const auto last = static_cast<std::int64_t>(lhs_box.size.size()) - 1;
  const std::int64_t batch = last - 1 - static_cast<std::int64_t>(stride.size());
  std::vector<std::int64_t> moves = lhs.strides;  // along the result
  std::vector<std::int64_t> lhs_steps = {lhs.strides[at(last)]};
  std::vector<std::int64_t> rhs_steps = {rhs.strides[at(last - 1)]};
  const Layout& kernel = context.layout(equation.operands[1]);
  std::vector<LeafRange> ranges = {leaf_range(kernel, at(last - 1), digits)};
  for (std::size_t i = 0; i < stride.size(); ++i) {
    const std::size_t window = at(batch) + i;
    moves[window + 1] *= stride[i];
    lhs_steps.push_back(lhs.strides[window + 1] * dilation[i]);
    rhs_steps.push_back(rhs.strides[window]);
    ranges.push_back(leaf_range(kernel, window, digits));
  }
  const DType dtype = context.function().type(equation.operands[0]).dtype;
  const std::vector<LeafBox> leaves = leaf_boxes(ranges, context.function(), dtype);
  const ir::Ints batches = ops::dims_from(0, at(batch));
  kernels::GemmProblem problem;
  problem.leaf_ends = leaf_ends(leaves);
  problem.a = {.batch = offsets(batches, lhs_box.size, lhs.strides),
               .outer = offsets(ops::dims_from(batch, at(last - batch)), box.size, moves),
               .k = leaf_order(leaves, lhs_steps)};
  problem.b = {.batch = offsets(batches, rhs_box.size, rhs.strides),
               .outer = offsets({last}, rhs_box.size, rhs.strides),
               .k = leaf_order(leaves, rhs_steps)};
  set_dense_result(problem);
  return problem;
}

std::vector<TileTask> lower_conv(const LowerContext& context, const Equation& equation) {
  const std::size_t spatial = equation.attributes.ints("stride").size();
  const auto rank = static_cast<std::size_t>(context.function().type(equation.results[0]).rank());
  return contraction_tasks(
      context, equation,
      {.dims = {.batch = rank - spatial - 2, .columns = 1},
       .make = [&](const StridedTile& lhs, const StridedTile& rhs, const AtomDigits& digits) {
         return problem_of(context, equation, lhs, rhs, digits);
       }});
}

}  // namespace

Lowerings conv_lowerings() { return {{"conv", lower_conv, false}}; }

}  // namespace tessera::compile::host
