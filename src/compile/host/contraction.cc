#include "compile/host/contraction.h"

#include <array>
#include <bit>
#include <map>
#include <optional>

namespace tessera::compile::host {

namespace {

constexpr std::size_t kMostPieces = 64;  // or products

/// What the operands' buffers hold, and where in them their tiles begin.
struct Operands {
  Operands(const LowerContext& context, const Equation& equation, const StridedTile& a,
           const StridedTile& b)
      : dtype(context.function().type(equation.operands[0]).dtype),
        dot_unit(context.dot_unit()),
        a_offset(a.offset),
        b_offset(b.offset) {}
  DType dtype;
  DotUnit dot_unit;  // of bf16
  std::int64_t a_offset;
  std::int64_t b_offset;
};

/// Buffers: A of all products and pieces, B of all pieces, C of all products. There are several
/// products or several pieces, not both.
class GemmKernel final : public run::Kernel {
 public:
  GemmKernel(kernels::GemmPlan plan, std::size_t products, const Operands& operands)
      : plan_(std::move(plan)), products_(products), operands_(operands) {}

  int num_parts() const override { return plan_.num_parts(); }
  std::int64_t flops() const override { return plan_.flops(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    const std::size_t read = buffers.size() - products_;
    const std::size_t of_a = products_ > 1 ? products_ : read / 2;
    const auto element_bytes = static_cast<std::int64_t>(size_bytes(operands_.dtype));
    std::array<const void*, 2 * kMostPieces> operands;
    for (std::size_t i = 0; i < read; ++i) {
      operands[i] =
          buffers[i] + (i < of_a ? operands_.a_offset : operands_.b_offset) * element_bytes;
    }
    std::array<float*, kMostPieces> results;
    for (std::size_t i = 0; i < products_; ++i)
      results[i] = reinterpret_cast<float*>(buffers[read + i]);
    const std::span<const void* const> all(operands);
    plan_.run(all.first(of_a), all.subspan(of_a, read - of_a),
              std::span<float* const>(results).first(products_), part);
  }

 private:
  kernels::GemmPlan plan_;
  std::size_t products_;
  Operands operands_;
};

std::shared_ptr<const run::Kernel> gemm_kernel(kernels::GemmProblem problem,
                                               const Operands& operands) {
  const auto products = static_cast<std::size_t>(problem.products);
  kernels::GemmPlan plan = operands.dtype == DType::bf16
                               ? kernels::GemmPlan(std::move(problem), operands.dot_unit)
                               : kernels::GemmPlan(std::move(problem));
  return std::make_shared<GemmKernel>(std::move(plan), products, operands);
}

/// Integers wrap around, so that no order of summation matters. Signs do not matter either: the
/// low words of products and sums are the same.
class IntegerDotKernel final : public run::Kernel {
 public:
  IntegerDotKernel(kernels::GemmProblem problem, const Operands& operands)
      : problem_(std::move(problem)), operands_(operands) {}

  void run(std::span<std::byte* const> buffers, int /*part*/) const override {
    for (std::size_t batch = 0; batch < problem_.c_batch.size(); ++batch) {
      run_batch(reinterpret_cast<const std::uint32_t*>(buffers[0]) + operands_.a_offset +
                    problem_.a.batch[batch],
                reinterpret_cast<const std::uint32_t*>(buffers[1]) + operands_.b_offset +
                    problem_.b.batch[batch],
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
  Operands operands_;
};

std::shared_ptr<const run::Kernel> contraction_kernel(kernels::GemmProblem problem,
                                                      const Operands& operands) {
  if (is_integer(operands.dtype)) {
    return std::make_shared<IntegerDotKernel>(std::move(problem), operands);
  }
  return gemm_kernel(std::move(problem), operands);
}

/// A problem whose sum goes on over the pieces of several devices, or nothing if their leaves would
/// not be added in the order in which the devices' sums are.
std::optional<kernels::GemmProblem> repeated(kernels::GemmProblem problem, std::size_t pieces) {
  const std::size_t leaves = problem.leaf_ends.size();
  if (!std::has_single_bit(leaves)) return std::nullopt;
  const OffsetTable a = problem.a.k;
  const OffsetTable b = problem.b.k;
  for (std::size_t i = 1; i < pieces; ++i) {
    const std::int64_t before = problem.leaf_ends.back();
    for (std::size_t leaf = 0; leaf < leaves; ++leaf)
      problem.leaf_ends.push_back(before + problem.leaf_ends[leaf]);
    problem.a.k.insert(problem.a.k.end(), a.begin(), a.end());
    problem.b.k.insert(problem.b.k.end(), b.begin(), b.end());
  }
  problem.pieces = static_cast<std::int64_t>(pieces);
  return problem;
}

/// Tasks that compute the sum over the devices at once: no device's part of it is ever written.
/// Nothing where the parts differ in their extents.
std::optional<std::vector<TileTask>> summed_tasks(const LowerContext& context,
                                                  const Equation& equation, ValueId sum,
                                                  const MakeContraction& make) {
  const ValueId partial = equation.results[0];
  if (context.function().type(partial).dtype != DType::f32) return std::nullopt;
  std::vector<TileTask> tasks;
  const std::int64_t kind = context.pool().kind_of(equation);
  const Layout& layout = context.layout(partial);
  const bool is_same_size = layout.sharding().dims == context.layout(sum).sharding().dims;
  for (std::int64_t tile : context.tiles(partial)) {
    const auto summands = context.summands(partial, sum, layout.digits(tile));
    if (summands.size() > kMostPieces) return std::nullopt;
    if (layout.tile_at(summands[0]) != tile) continue;
    const std::vector<std::int64_t> key = context.extents_key(equation, summands[0]);
    const TileRef to = is_same_size ? TileRef{sum, context.layout(sum).tile_at(summands[0])}
                                    : TileRef{partial, tile};
    TileTask task{.kernel = nullptr, .reads = {}, .writes = {to}, .may_share = {}};
    std::vector<TileRef> of_b;
    for (const AtomDigits& digits : summands) {
      if (context.extents_key(equation, digits) != key) return std::nullopt;
      task.reads.push_back(context.read(equation.operands[0], digits).tile);
      of_b.push_back(context.read(equation.operands[1], digits).tile);
    }
    task.reads.insert(task.reads.end(), of_b.begin(), of_b.end());
    const StridedTile a = context.read(equation.operands[0], summands[0]);
    const StridedTile b = context.read(equation.operands[1], summands[0]);
    KernelKey shared(KernelKey::Kind::summed_contraction);
    shared.add(kind).add(key).add(summands.size());
    for (const StridedTile* from : {&a, &b}) shared.add(from->offset).add(from->strides);
    task.kernel =
        context.pool().get(std::move(shared), [&]() -> std::shared_ptr<const run::Kernel> {
          auto problem = repeated(make(a, b, summands[0]), summands.size());
          if (!problem) return nullptr;
          return gemm_kernel(std::move(*problem), Operands(context, equation, a, b));
        });
    if (task.kernel == nullptr) return std::nullopt;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

/// Tiles of the result that one task computes: their operands have the same extents, and B is the
/// same tile for all of them.
struct Products {
  AtomDigits digits;  // of the first one
  StridedTile a, b;
  std::vector<TileRef> of_a, results;
};

std::vector<Products> products_of(const LowerContext& context, const Equation& equation) {
  const ValueId result = equation.results[0];
  const bool is_shared = !is_integer(context.function().type(result).dtype);
  std::vector<Products> all;
  std::map<std::pair<std::vector<std::int64_t>, std::int64_t>, std::size_t> last;
  for (std::int64_t tile : context.tiles(result)) {
    const AtomDigits digits = context.layout(result).digits(tile);
    const StridedTile a = context.read(equation.operands[0], digits);
    const StridedTile b = context.read(equation.operands[1], digits);
    const auto [place, is_new] =
        last.try_emplace({context.extents_key(equation, digits), b.tile.tile}, all.size());
    if (is_new || !is_shared || all[place->second].results.size() == kMostPieces) {
      place->second = all.size();
      all.push_back({.digits = digits, .a = a, .b = b, .of_a = {}, .results = {}});
    }
    all[place->second].of_a.push_back(a.tile);
    all[place->second].results.push_back({result, tile});
  }
  return all;
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
  if (const auto sum = context.sum_of(result)) {
    if (auto tasks = summed_tasks(context, equation, *sum, make)) return std::move(*tasks);
  }
  const std::int64_t kind = context.pool().kind_of(equation);
  std::vector<TileTask> tasks;
  for (const Products& products : products_of(context, equation)) {
    const auto& [digits, a, b, of_a, results] = products;
    KernelKey key(KernelKey::Kind::contraction);
    key.add(kind).add(context.extents_key(equation, digits)).add(results.size());
    for (const StridedTile* from : {&a, &b}) key.add(from->offset).add(from->strides);
    auto kernel = context.pool().get(std::move(key), [&] {
      kernels::GemmProblem problem = make(a, b, digits);
      problem.products = static_cast<std::int64_t>(results.size());
      return contraction_kernel(std::move(problem), Operands(context, equation, a, b));
    });
    TileTask task{.kernel = std::move(kernel), .reads = of_a, .writes = results, .may_share = {}};
    task.reads.push_back(b.tile);
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace tessera::compile::host
