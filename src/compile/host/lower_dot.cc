#include <algorithm>

#include "compile/host/contraction.h"
#include "compile/host/leaves.h"

namespace tessera::compile::host {

namespace {

/// Which dimensions of an operand play which role.
struct Roles {
  ir::Ints batch;
  ir::Ints free;
  ir::Ints contract;
};

Roles roles_of(const ir::Ints& batch, const ir::Ints& contract, std::int64_t rank) {
  Roles roles{.batch = batch, .free = {}, .contract = contract};
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const bool is_taken = std::count(batch.begin(), batch.end(), dim) != 0 ||
                          std::count(contract.begin(), contract.end(), dim) != 0;
    if (!is_taken) roles.free.push_back(dim);
  }
  return roles;
}

/// Offsets of the contracted indices, leaf after leaf.
OffsetTable contracted_offsets(const std::vector<LeafBox>& leaves, const ir::Ints& dims,
                               const std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> contracted;
  for (std::int64_t dim : dims) contracted.push_back(strides[static_cast<std::size_t>(dim)]);
  return leaf_order(leaves, contracted);
}

kernels::GemmProblem problem_of(const LowerContext& context, const Equation& equation,
                                const Roles& lhs, const Roles& rhs, const StridedTile& a,
                                const StridedTile& b, const AtomDigits& digits) {
  const Box a_box = context.box(equation.operands[0], digits);
  const Box b_box = context.box(equation.operands[1], digits);
  std::vector<LeafRange> ranges;
  for (std::int64_t dim : lhs.contract) {
    ranges.push_back(
        leaf_range(context.layout(equation.operands[0]), static_cast<std::size_t>(dim), digits));
  }
  const DType dtype = context.function().type(equation.operands[0]).dtype;
  const std::vector<LeafBox> leaves = leaf_boxes(ranges, context.function(), dtype);
  kernels::GemmProblem problem;
  problem.leaf_ends = leaf_ends(leaves);
  problem.a = {.batch = offsets(lhs.batch, a_box.size, a.strides),
               .outer = offsets(lhs.free, a_box.size, a.strides),
               .k = contracted_offsets(leaves, lhs.contract, a.strides)};
  problem.b = {.batch = offsets(rhs.batch, b_box.size, b.strides),
               .outer = offsets(rhs.free, b_box.size, b.strides),
               .k = contracted_offsets(leaves, rhs.contract, b.strides)};
  set_dense_result(problem);
  return problem;
}

std::vector<TileTask> lower_dot_general(const LowerContext& context, const Equation& equation) {
  const auto& attributes = equation.attributes;
  const Function& function = context.function();
  const Roles lhs = roles_of(attributes.ints("lhs_batch"), attributes.ints("lhs_contract"),
                             function.type(equation.operands[0]).rank());
  const Roles rhs = roles_of(attributes.ints("rhs_batch"), attributes.ints("rhs_contract"),
                             function.type(equation.operands[1]).rank());
  return contraction_tasks(
      context, equation,
      {.dims = {.batch = lhs.batch.size(), .columns = rhs.free.size()},
       .make = [&](const StridedTile& a, const StridedTile& b, const AtomDigits& digits) {
         return problem_of(context, equation, lhs, rhs, a, b, digits);
       }});
}

}  // namespace

Lowerings dot_lowerings() { return {{"dot_general", lower_dot_general, false}}; }

}  // namespace tessera::compile::host
