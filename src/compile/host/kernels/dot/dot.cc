#include "compile/host/kernels/dot/dot.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/dot/dot.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <algorithm>
#include <hwy/highway.h>
#include <limits>
#include <utility>

#include "compile/host/kernels/dot/dot_blocks-inl.h"
#include "compile/host/kernels/dot/dot_internal.h"
#include "compile/host/kernels/gemm/gemm_scratch.h"
#include "compile/host/kernels/parts.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::dot::HWY_NAMESPACE {

void run_block(const BlockArgs& args, DType dtype) {
  if (dtype == DType::f64) return run_blocks<double>(args);
  // The low words of products and sums do not depend on signs.
  if (size_bytes(dtype) == 8) return run_blocks<std::uint64_t>(args);
  run_blocks<std::uint32_t>(args);
}

}  // namespace tessera::kernels::dot::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

namespace dot {
HWY_EXPORT(run_block);
}  // namespace dot

// With kernels for one instruction set, HWY_DYNAMIC_DISPATCH takes no name of another namespace.
using namespace dot;

namespace {

constexpr std::int64_t kMinPartTerms = std::int64_t{128} * 1024;
// A part with fewer sums takes longer to pack than to multiply.
constexpr std::int64_t kMinPartSums = 1024;
// Parts are cut at multiples of these.
constexpr std::int64_t kUnitRows = 12;
constexpr std::int64_t kUnitColumns = 32;

std::int64_t size_of(const std::vector<std::int64_t>& table) {
  return static_cast<std::int64_t>(table.size());
}

}  // namespace

DotPlan::DotPlan(GemmProblem problem, DType dtype, int num_workers)
    : problem_(std::move(problem)),
      dtype_(dtype),
      tree_(gemm::make_tree_program(problem_.leaf_ends, 1, dot::kBlockTerms, 1, false)),
      terms_(size_of(problem_.a.k)),
      steps_({.leaf_ends = {},
              .missing = {},
              .a_k = std::move(problem_.a.k),
              .b_k = std::move(problem_.b.k)}) {
  gemm::share_steps(1, tree_.chunks, steps_);
  const std::int64_t rows = size_of(problem_.a.outer), columns = size_of(problem_.b.outer);
  const std::int64_t batches = size_of(problem_.c_batch);
  row_units_ = batches * gemm::ceil_div(rows, kUnitRows);
  column_units_ = gemm::ceil_div(columns, kUnitColumns);
  const std::int64_t terms = batches * rows * columns * terms_;
  const std::int64_t most =
      std::min(row_units_ * column_units_,
               std::max<std::int64_t>(batches * rows * columns / kMinPartSums, num_workers));
  cut(num_parts_for(num_workers, terms, kMinPartTerms, most), batches);
}

/// Chooses the numbers of row parts and column parts for which the fewest elements are packed.
void DotPlan::cut(int parts, std::int64_t batches) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t columns = 1; columns <= parts; ++columns) {
    const std::int64_t rows = gemm::ceil_div(parts, columns);
    if (columns > 1 && (columns > column_units_ || rows > row_units_)) continue;
    const std::int64_t packed =
        row_units_ * kUnitRows * columns + column_units_ * kUnitColumns * std::max(rows, batches);
    if (packed >= least) continue;
    least = packed;
    row_parts_ = static_cast<int>(std::max<std::int64_t>(std::min(rows, row_units_), 1));
    column_parts_ = static_cast<int>(columns);
  }
}

std::int64_t DotPlan::flops() const {
  if (dtype_ != DType::f64) return 0;
  return 2 * size_of(problem_.c_batch) * size_of(problem_.a.outer) * size_of(problem_.b.outer) *
         terms_;
}

std::int64_t DotPlan::scratch_bytes() const {
  const dot::ScratchSizes sizes(tree_, size_of(problem_.a.outer), size_of(problem_.b.outer),
                                terms_);
  return sizes.all() * static_cast<std::int64_t>(size_bytes(dtype_));
}

void DotPlan::run(const std::byte* a, const std::byte* b, std::byte* c, int part) const {
  thread_local gemm::Scratch scratch;
  const auto bytes = static_cast<std::int64_t>(size_bytes(dtype_));
  const std::int64_t rows = size_of(problem_.a.outer), columns = size_of(problem_.b.outer);
  const std::int64_t units = gemm::ceil_div(rows, kUnitRows);  // of a batch
  const dot::Range of_rows = dot::Range{0, row_units_}.piece(part / column_parts_, row_parts_);
  const dot::Range of_columns =
      dot::Range{0, columns}.piece(part % column_parts_, column_parts_, kUnitColumns);
  void* memory = scratch.reserve(gemm::ceil_div(scratch_bytes(), sizeof(float)));
  for (std::int64_t at = of_rows.begin; at < of_rows.end;) {
    const std::int64_t batch = at / units;
    const std::int64_t end = std::min(of_rows.end, (batch + 1) * units);
    const auto i = static_cast<std::size_t>(batch);
    HWY_DYNAMIC_DISPATCH(run_block)
    ({.problem = &problem_,
      .tree = &tree_,
      .steps = &steps_,
      .terms = terms_,
      .a = a + problem_.a.batch[i] * bytes,
      .b = b + problem_.b.batch[i] * bytes,
      .c = c + problem_.c_batch[i] * bytes,
      .rows = {(at - batch * units) * kUnitRows, std::min((end - batch * units) * kUnitRows, rows)},
      .columns = of_columns,
      .scratch = memory},
     dtype_);
    at = end;
  }
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
