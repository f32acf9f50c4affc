#include "compile/host/contraction.h"

#include <map>

namespace tessera::compile::host {

namespace {

class GemmKernel final : public run::Kernel {
 public:
  explicit GemmKernel(kernels::GemmProblem problem, std::int64_t a_offset, std::int64_t b_offset)
      : plan_(std::move(problem)), a_offset_(a_offset), b_offset_(b_offset) {}

  int num_parts() const override { return plan_.num_parts(); }
  std::int64_t flops() const override { return plan_.flops(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    plan_.run(reinterpret_cast<const float*>(buffers[0]) + a_offset_,
              reinterpret_cast<const float*>(buffers[1]) + b_offset_,
              reinterpret_cast<float*>(buffers[2]), part);
  }

 private:
  kernels::GemmPlan plan_;
  std::int64_t a_offset_;
  std::int64_t b_offset_;
};

/// Integers wrap around, so that no order of summation matters. Signs do not matter either: the
/// low words of products and sums are the same.
class IntegerDotKernel final : public run::Kernel {
 public:
  explicit IntegerDotKernel(kernels::GemmProblem problem, std::int64_t a_offset,
                            std::int64_t b_offset)
      : problem_(std::move(problem)), a_offset_(a_offset), b_offset_(b_offset) {}

  void run(std::span<std::byte* const> buffers, int /*part*/) const override {
    for (std::size_t batch = 0; batch < problem_.c_batch.size(); ++batch) {
      run_batch(
          reinterpret_cast<const std::uint32_t*>(buffers[0]) + a_offset_ + problem_.a.batch[batch],
          reinterpret_cast<const std::uint32_t*>(buffers[1]) + b_offset_ + problem_.b.batch[batch],
          reinterpret_cast<std::uint32_t*>(buffers[2]) + problem_.c_batch[batch]);
    }
  }

 private:
  void run_batch(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* c) const {
    for (std::size_t row = 0; row < problem_.a.outer.size(); ++row) {
      for (std::size_t column = 0; column < problem_.b.outer.size(); ++column) {
        std::uint32_t sum = 0;
        for (std::size_t k = 0; k < problem_.a.k.size(); ++k) {
          sum += a[problem_.a.outer[row] + problem_.a.k[k]] *
                 b[problem_.b.outer[column] + problem_.b.k[k]];
        }
        c[problem_.c_rows[row] + static_cast<std::int64_t>(column)] = sum;
      }
    }
  }

  kernels::GemmProblem problem_;
  std::int64_t a_offset_;
  std::int64_t b_offset_;
};

std::shared_ptr<const run::Kernel> contraction_kernel(kernels::GemmProblem problem, DType dtype,
                                                      std::int64_t a_offset,
                                                      std::int64_t b_offset) {
  if (is_integer(dtype)) {
    return std::make_shared<IntegerDotKernel>(std::move(problem), a_offset, b_offset);
  }
  return std::make_shared<GemmKernel>(std::move(problem), a_offset, b_offset);
}

}  // namespace

OffsetTable offsets(const ir::Ints& dims, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::int64_t>& strides) {
  OffsetTable table = {0};
  for (std::int64_t dim : dims) {
    const auto d = static_cast<std::size_t>(dim);
    OffsetTable next;
    next.reserve(table.size() * static_cast<std::size_t>(sizes[d]));
    for (std::int64_t base : table) {
      for (std::int64_t i = 0; i < sizes[d]; ++i) next.push_back(base + i * strides[d]);
    }
    table = std::move(next);
  }
  return table;
}

void set_dense_result(kernels::GemmProblem& problem) {
  const auto rows = static_cast<std::int64_t>(problem.a.outer.size());
  const auto columns = static_cast<std::int64_t>(problem.b.outer.size());
  for (std::size_t i = 0; i < problem.a.batch.size(); ++i) {
    problem.c_batch.push_back(static_cast<std::int64_t>(i) * rows * columns);
  }
  for (std::int64_t i = 0; i < rows; ++i) problem.c_rows.push_back(i * columns);
}

std::vector<TileTask> contraction_tasks(const LowerContext& context, const Equation& equation,
                                        const MakeContraction& make) {
  const ValueId result = equation.results[0];
  const Layout& layout = context.layout(result);
  const std::int64_t kind = context.pool().kind_of(equation);
  std::vector<TileTask> tasks;
  std::map<std::vector<std::int64_t>, TileTask> firsts;
  for (std::int64_t tile : context.tiles(result)) {
    const AtomDigits digits = layout.digits(tile);
    const auto [place, is_new] = firsts.try_emplace(context.extents_key(equation, digits));
    TileTask& task = place->second;
    if (is_new) {
      const StridedTile a = context.read(equation.operands[0], digits);
      const StridedTile b = context.read(equation.operands[1], digits);
      KernelKey key(KernelKey::Kind::contraction);
      key.add(kind).add(place->first);
      for (const StridedTile* from : {&a, &b}) key.add(from->offset).add(from->strides);
      task.reads = {a.tile, b.tile};
      task.writes = {{result, tile}};
      task.kernel = context.pool().get(std::move(key), [&] {
        const DType dtype = context.function().type(equation.operands[0]).dtype;
        return contraction_kernel(make(a, b, digits), dtype, a.offset, b.offset);
      });
    }
    tasks.push_back(context.task_at(task, digits));
  }
  return tasks;
}

}  // namespace tessera::compile::host
