#include <algorithm>
#include <map>

#include <tessera/error.h>

#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/any_order/argmax.h"
#include "compile/host/kernels/reduce.h"
#include "compile/host/leaves.h"
#include "compile/host/lower.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

class ReduceKernel final : public run::Kernel {
 public:
  ReduceKernel(kernels::ReduceProblem problem, const run::Target& target, std::int64_t offset_bytes)
      : plan_(std::move(problem), target.num_workers, target.caches), offset_bytes_(offset_bytes) {}
  int num_parts() const override { return plan_.num_parts(); }
  /// The size of a buffer of the task that all parts share.
  std::int64_t shared_bytes() const { return plan_.scratch_bytes(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    std::byte* scratch = shared_bytes() > 0 ? buffers[2] : nullptr;
    plan_.run(buffers[0] + offset_bytes_, buffers[1], scratch, part);
  }
  bool joins_parts() const override { return shared_bytes() > 0; }
  void join_parts(std::span<std::byte* const> buffers) const override {
    plan_.join(buffers[2], buffers[1]);
  }

 private:
  kernels::ReducePlan plan_;
  std::int64_t offset_bytes_;
};

}  // namespace

kernels::ReduceKind reduce_kind(const Equation& equation) {
  if (ops::is(equation, ops::reduce_sum_op)) return kernels::ReduceKind::sum;
  if (ops::is(equation, ops::reduce_max_op)) return kernels::ReduceKind::max;
  if (ops::is(equation, ops::reduce_min_op)) return kernels::ReduceKind::min;
  return ops::is(equation, ops::reduce_and_op) ? kernels::ReduceKind::all
                                               : kernels::ReduceKind::any;
}

namespace {

kernels::ReduceProblem problem_of(const LowerContext& context, const Equation& equation,
                                  const StridedTile& from, const AtomDigits& digits) {
  const ValueId operand = equation.operands[0];
  const ir::Ints& dims = equation.attributes.ints("dims");
  const Box box = context.box(operand, digits);
  kernels::ReduceProblem problem;
  problem.kind = reduce_kind(equation);
  problem.dtype = context.function().type(operand).dtype;
  const auto rank = static_cast<std::int64_t>(box.size.size());
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    if (std::count(dims.begin(), dims.end(), dim) != 0) continue;
    problem.kept_extents.push_back(box.size[static_cast<std::size_t>(dim)]);
    problem.kept_strides.push_back(from.strides[static_cast<std::size_t>(dim)]);
  }
  std::vector<LeafRange> ranges;
  for (std::int64_t dim : dims) {
    const auto d = static_cast<std::size_t>(dim);
    problem.reduced_extents.push_back(box.size[d]);
    problem.reduced_strides.push_back(from.strides[d]);
    ranges.push_back(leaf_range(context.layout(operand), d, digits));
  }
  // Only sums have grains; other reductions may be split anywhere. A sum that a region could
  // compute has the same grains as in a region.
  if (is_column_sum(context.function(), equation)) {
    problem.cuts = column_cuts(context.layout(operand), digits, context.function(), equation);
  } else if (problem.kind == kernels::ReduceKind::sum) {
    problem.cuts = leaf_cuts(ranges, context.function(), equation, problem.dtype);
  }
  problem.lanes16 = !dims.empty() && dims.back() == rank - 1;
  return problem;
}

std::vector<TileTask> lower_reduce(const LowerContext& context, const Equation& equation) {
  const ValueId operand = equation.operands[0];
  const Layout& layout = context.layout(equation.results[0]);
  const auto element =
      static_cast<std::int64_t>(size_bytes(context.function().type(operand).dtype));
  const std::int64_t kind = context.pool().kind_of(equation);
  std::map<std::vector<std::int64_t>, TileTask> firsts;
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(equation.results[0])) {
    const AtomDigits digits = layout.digits(tile);
    const auto [place, is_new] = firsts.try_emplace(context.extents_key(equation, digits));
    TileTask& task = place->second;
    if (is_new) {
      const StridedTile from = context.read(operand, digits);
      KernelKey key(KernelKey::Kind::reduce);
      key.add(kind).add(place->first).add(from.offset).add(from.strides);
      task.reads = {from.tile};
      task.writes = {{equation.results[0], tile}};
      task.kernel = context.pool().get(std::move(key), [&] {
        return std::make_shared<ReduceKernel>(problem_of(context, equation, from, digits),
                                              context.target(), from.offset * element);
      });
      const auto& kernel = static_cast<const ReduceKernel&>(*task.kernel);
      if (kernel.shared_bytes() > 0) task.scratch = {kernel.shared_bytes()};
      task.device_scratch_bytes = kernel.shared_bytes();
    }
    tasks.push_back(context.task_at(task, digits));
  }
  return tasks;
}

std::vector<TileTask> lower_argmax(const LowerContext& context, const Equation& equation) {
  const ValueId operand = equation.operands[0];
  const Layout& layout = context.layout(equation.results[0]);
  const auto dim = static_cast<std::size_t>(equation.attributes.integer("dim"));
  std::vector<TileTask> tasks;
  for (std::int64_t tile : context.tiles(equation.results[0])) {
    const AtomDigits digits = layout.digits(tile);
    const Shape shape = context.box(operand, digits).size;
    kernels::ArgmaxProblem problem;
    problem.dtype = context.function().type(operand).dtype;
    problem.is_min = ops::is(equation, ops::argmin_op);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      (d < dim ? problem.outer : d == dim ? problem.size : problem.inner) *= shape[d];
    }
    tasks.push_back(
        {.kernel = make_range_kernel(
             context, problem.outer * problem.inner, problem.size,
             [problem](std::span<std::byte* const> buffers, std::int64_t first, std::int64_t end) {
               kernels::argmax(problem, first, end, buffers[0],
                               reinterpret_cast<std::int32_t*>(buffers[1]));
             }),
         .reads = {context.read(operand, digits).tile},
         .writes = {{equation.results[0], tile}},
         .may_share = {}});
  }
  return tasks;
}

}  // namespace

Lowerings reduce_lowerings() {
  return {{"argmax", lower_argmax, true, Arithmetic::wide},
          {"reduce", lower_reduce, false, Arithmetic::integers}};
}

}  // namespace tessera::compile::host
