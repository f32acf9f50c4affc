#include "compile/host/kernels/dot/vector_products.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/dot/vector_products.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <algorithm>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_pack-inl.h"
#include "compile/host/kernels/parts.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::vector_products::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace tiles = gemm::HWY_NAMESPACE;

using Leaves = VectorProducts::Leaves;
using Run = VectorProducts::Run;
using Lanes = hn::CappedTag<float, 8>;  // as many grains as sums usually have
constexpr std::size_t kLanes = hn::MaxLanes(Lanes());

// Adds the terms of a run from `first` on.
HWY_INLINE float add_terms(const float* a, const float* b, const Run& run, std::int64_t first,
                           float sum) {
  const hn::CappedTag<float, 1> one;
  auto total = hn::Set(one, sum);
  for (std::int64_t k = first; k < run.terms; ++k)
    total = tiles::fused_mul_add(hn::Set(one, a[run.a + k]), hn::Set(one, b[run.b + k]), total);
  return hn::GetLane(total);
}

// Adds a run to each lane.
HWY_INLINE void add_runs(const float* a, const float* b, const Run* runs, float* totals) {
  std::int64_t common = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const float *of_a[kLanes], *of_b[kLanes];
  common = runs[0].terms;
  for (std::size_t i = 0; i < kLanes; ++i) {
    of_a[i] = a + runs[i].a;
    of_b[i] = b + runs[i].b;
    common = std::min(common, runs[i].terms);
  }
  common = common / 4 * 4;
  const Lanes d;
  auto acc = hn::Load(d, totals);
  for (std::int64_t k = 0; k < common; k += 4) {
    hn::Vec<Lanes> x[4], y[4];
    tiles::load_transposed(d, tiles::TableRows{of_a}, k, x);
    tiles::load_transposed(d, tiles::TableRows{of_b}, k, y);
    for (int i = 0; i < 4; ++i) acc = tiles::fused_mul_add(x[i], y[i], acc);
  }
  hn::Store(acc, d, totals);
#endif
  for (std::size_t i = 0; i < kLanes; ++i) totals[i] = add_terms(a, b, runs[i], common, totals[i]);
}

// The sums of `count` leaves, in as many lanes; the others do what the last one does.
HWY_INLINE void sum_group(const float* a, const float* b, const Leaves& leaves, std::size_t first,
                          std::size_t count, float* totals) {
  std::fill_n(totals, kLanes, 0.0F);
  std::size_t rounds = 0;
  for (std::size_t i = 0; i < count; ++i) rounds = std::max(rounds, leaves.num_runs(first + i));
  for (std::size_t round = 0; round < rounds; ++round) {
    Run runs[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i)
      runs[i] = leaves.run(first + std::min(i, count - 1), round);
    add_runs(a, b, runs, totals);
  }
}

// The sum of all grains by the tree: two nodes are added as soon as they are the halves of a
// subtree.
float sum_tree(const Leaves& leaves, const float* a, const float* b) {
  float nodes[64 + kLanes];
  std::size_t nodes_waiting = 0;
  for (std::size_t done = 0; done < leaves.ends.size();) {
    const std::size_t count = std::min(kLanes, leaves.ends.size() - done);
    HWY_ALIGN float totals[kLanes];
    sum_group(a, b, leaves, done, count, totals);
    for (std::size_t i = 0; i < count; ++i) {
      nodes[nodes_waiting++] = totals[i];
      for (std::size_t left = ++done; left % 2 == 0; left /= 2, --nodes_waiting)
        nodes[nodes_waiting - 2] += nodes[nodes_waiting - 1];
    }
  }
  for (; nodes_waiting > 1; --nodes_waiting) nodes[nodes_waiting - 2] += nodes[nodes_waiting - 1];
  return nodes[0];
}

}  // namespace tessera::kernels::vector_products::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

namespace vector_products {
HWY_EXPORT(sum_tree);
}  // namespace vector_products

namespace {

constexpr std::size_t kFewestTerms = 16;  // of a run, on average
constexpr std::int64_t kPartTerms = std::int64_t{1} << 16;

VectorProducts::Leaves leaves_of(const GemmProblem& p) {
  VectorProducts::Leaves leaves;
  std::size_t k = 0;
  for (const std::int64_t end : p.leaf_ends) {
    const std::size_t begin = k;
    for (; k < static_cast<std::size_t>(end); ++k) {
      const bool follows =
          k > begin && p.a.k[k] == p.a.k[k - 1] + 1 && p.b.k[k] == p.b.k[k - 1] + 1;
      if (!follows) leaves.runs.push_back({p.a.outer[0] + p.a.k[k], p.b.outer[0] + p.b.k[k], 0});
      ++leaves.runs.back().terms;
    }
    leaves.ends.push_back(leaves.runs.size());
  }
  return leaves;
}

}  // namespace

std::optional<VectorProducts> VectorProducts::of(std::span<const GemmProblem> problems,
                                                 int num_workers) {
  const GemmProblem& p = problems[0];
  if (problems.size() != 1 || p.products != 1 || p.pieces != 1 || !p.row_ends.empty() ||
      p.a.outer.size() != 1 || p.b.outer.size() != 1 ||
      p.a.k.size() < kFewestTerms * p.leaf_ends.size())
    return std::nullopt;
  VectorProducts products;
  products.leaves_ = leaves_of(p);
  if (p.a.k.size() < kFewestTerms * products.leaves_.runs.size()) return std::nullopt;
  products.a_ = p.a.batch;
  products.b_ = p.b.batch;
  products.c_ = p.c_batch;
  for (std::int64_t& place : products.c_) place += p.c_rows[0];
  const std::int64_t batches = std::ssize(products.a_);
  products.num_parts_ =
      num_parts_for(num_workers, batches * std::ssize(p.a.k), kPartTerms, batches);
  return products;
}

std::int64_t VectorProducts::flops() const {
  std::int64_t terms = 0;
  for (const Run& run : leaves_.runs) terms += run.terms;
  return 2 * terms * std::ssize(a_);
}

void VectorProducts::run(const float* a, const float* b, float* c, int part) const {
  const std::int64_t batches = std::ssize(a_);
  const auto sum = HWY_DYNAMIC_DISPATCH(vector_products::sum_tree);
  for (std::int64_t i = batches * part / num_parts_; i < batches * (part + 1) / num_parts_; ++i) {
    const auto at = static_cast<std::size_t>(i);
    c[c_[at]] = sum(leaves_, a + a_[at], b + b_[at]);
  }
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
