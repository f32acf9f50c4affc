// Scatters that join the updates of each row: scatter_add, scatter_max and scatter_min.
#include <algorithm>

#include "compile/host/dense/index_shape.h"
#include "compile/host/kernels/scatter/scatter.h"
#include "compile/host/leaves.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

class ScatterKernel final : public run::Kernel {
 public:
  ScatterKernel(kernels::ScatterProblem problem, int num_workers)
      : plan_(std::move(problem), num_workers) {}
  int num_parts() const override { return plan_.num_parts(); }
  /// The size of a buffer of the task that all parts share.
  std::int64_t shared_bytes() const { return plan_.scratch_bytes(); }
  std::int64_t scratch_bytes() const override { return plan_.thread_bytes(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    plan_.run(elements_of<const std::int32_t>(buffers[0]), buffers[1], buffers[2],
              joins_parts() ? buffers[3] : nullptr, part);
  }
  bool joins_parts() const override { return shared_bytes() > 0; }
  void join_parts(std::span<std::byte* const> buffers) const override {
    plan_.join(buffers[3], buffers[2]);
  }

 private:
  kernels::ScatterPlan plan_;
};

kernels::ReduceKind scatter_kind(const Equation& equation) {
  if (ops::is(equation, ops::scatter_max_op)) return kernels::ReduceKind::max;
  return ops::is(equation, ops::scatter_min_op) ? kernels::ReduceKind::min
                                                : kernels::ReduceKind::sum;
}

/// Sets the grains of a sum whose order is fixed.
void set_order(const LowerContext& context, const Equation& equation, const AtomDigits& digits,
               kernels::ScatterProblem& problem) {
  const ir::Function& function = context.function();
  const bool is_fixed = problem.kind == kernels::ReduceKind::sum && is_float(problem.dtype) &&
                        function.numerics == Numerics::exact;
  if (!is_fixed) return;
  const ValueId indices = equation.operands[0];
  const Shape box = context.box(indices, digits).size;
  const auto num_batch = equation.attributes.integer("num_batch");
  std::vector<LeafRange> ranges;
  for (std::size_t d = static_cast<std::size_t>(num_batch); d < box.size(); ++d) {
    ranges.push_back(leaf_range(context.layout(indices), d, digits));
  }
  const std::vector<LeafBox> leaves = leaf_boxes(ranges, function, equation, problem.dtype);
  problem.order = leaf_order(leaves, row_major_strides({box.begin() + num_batch, box.end()}));
  if (std::ranges::is_sorted(problem.order)) problem.order.clear();
  problem.leaf_ends = leaf_ends(leaves);
}

std::vector<TileTask> lower_scatter_join(const LowerContext& context, const Equation& equation) {
  const ValueId table = equation.results[0];
  std::vector<TileTask> tasks = task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const IndexShape shape = index_shape(equation, context.box(table, digits).size,
                                         context.box(equation.operands[0], digits).size);
    kernels::ScatterProblem problem{
        .kind = scatter_kind(equation),
        .dtype = dtype_of(context, table),
        .batch = shape.batch,
        .outer = shape.outer,
        .rows = held_rows(context, table, equation.attributes.integer("dim"), digits),
        .inner = shape.inner,
        .count = shape.num_indices};
    set_order(context, equation, digits, problem);
    return std::make_shared<ScatterKernel>(std::move(problem), context.num_workers());
  });
  for (TileTask& task : tasks) {
    const auto& kernel = static_cast<const ScatterKernel&>(*task.kernel);
    if (!kernel.joins_parts()) continue;
    task.scratch = {kernel.shared_bytes()};
    task.device_scratch_bytes = kernel.shared_bytes();
  }
  return tasks;
}

}  // namespace

Lowerings scatter_join_lowerings() {
  return {{"scatter_join", lower_scatter_join, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
