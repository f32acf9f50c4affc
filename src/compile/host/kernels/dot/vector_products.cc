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

using Group = VectorProducts::Group;
using Run = VectorProducts::Run;
using Lanes = hn::CappedTag<float, VectorProducts::kGroup>;
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

HWY_INLINE void sum_group(const float* a, const float* b, const Group& group, float* totals) {
  std::fill_n(totals, VectorProducts::kGroup, 0.0F);
  for (const auto& runs : group.rounds) {
    for (std::size_t lane = 0; lane < VectorProducts::kGroup; lane += kLanes)
      add_runs(a, b, runs.data() + lane, totals + lane);
  }
}

// The sum of all grains by the tree: two nodes are added as soon as they are the halves of a
// subtree.
float sum_tree(std::span<const Group> groups, const float* a, const float* b) {
  float nodes[64];
  std::size_t waiting = 0, done = 0;
  for (const Group& group : groups) {
    HWY_ALIGN float totals[VectorProducts::kGroup];
    sum_group(a, b, group, totals);
    for (std::size_t i = 0; i < group.grains; ++i) {
      nodes[waiting++] = totals[i];
      for (std::size_t left = ++done; left % 2 == 0; left /= 2, --waiting)
        nodes[waiting - 2] += nodes[waiting - 1];
    }
  }
  for (; waiting > 1; --waiting) nodes[waiting - 2] += nodes[waiting - 1];
  return nodes[0];
}

}  // namespace tessera::kernels::vector_products::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

namespace vector_products {
HWY_EXPORT(sum_tree);
}  // namespace vector_products

// Where kernels are for one instruction set, the macro takes no name of another namespace.
using namespace vector_products;

namespace {

constexpr std::size_t kFewestTerms = 16;  // of a run, on average
constexpr std::int64_t kPartTerms = std::int64_t{1} << 16;

/// The terms from `begin` to `end` as runs.
std::vector<VectorProducts::Run> runs_of(const GemmProblem& p, std::size_t begin, std::size_t end) {
  std::vector<VectorProducts::Run> runs;
  for (std::size_t k = begin; k < end; ++k) {
    const bool follows = k > begin && p.a.k[k] == p.a.k[k - 1] + 1 && p.b.k[k] == p.b.k[k - 1] + 1;
    if (!follows) runs.push_back({p.a.outer[0] + p.a.k[k], p.b.outer[0] + p.b.k[k], 0});
    ++runs.back().terms;
  }
  return runs;
}

/// Empty if runs are short.
std::vector<VectorProducts::Group> groups_of(const GemmProblem& p) {
  std::vector<VectorProducts::Group> groups;
  std::size_t begin = 0, num_runs = 0;
  for (const std::int64_t end : p.leaf_ends) {
    if (groups.empty() || groups.back().grains == VectorProducts::kGroup) groups.emplace_back();
    VectorProducts::Group& group = groups.back();
    const auto runs = runs_of(p, begin, static_cast<std::size_t>(end));
    num_runs += runs.size();
    group.rounds.resize(std::max(group.rounds.size(), runs.size()));
    for (std::size_t i = 0; i < runs.size(); ++i) group.rounds[i][group.grains] = runs[i];
    ++group.grains;
    begin = static_cast<std::size_t>(end);
  }
  if (p.a.k.size() < kFewestTerms * num_runs) return {};
  for (VectorProducts::Group& group : groups) {
    for (auto& runs : group.rounds)
      std::fill(runs.begin() + static_cast<std::ptrdiff_t>(group.grains), runs.end(), runs[0]);
  }
  return groups;
}

}  // namespace

std::optional<VectorProducts> VectorProducts::of(std::span<const GemmProblem> problems,
                                                 int num_workers) {
  if (problems.size() != 1) return std::nullopt;
  const GemmProblem& p = problems[0];
  if (p.products != 1 || p.pieces != 1 || !p.row_ends.empty() || p.a.outer.size() != 1 ||
      p.b.outer.size() != 1 || p.a.k.size() < kFewestTerms * p.leaf_ends.size())
    return std::nullopt;
  VectorProducts products;
  products.groups_ = groups_of(p);
  if (products.groups_.empty()) return std::nullopt;
  products.terms_ = std::ssize(p.a.k);
  products.a_ = p.a.batch;
  products.b_ = p.b.batch;
  products.c_ = p.c_batch;
  for (std::int64_t& place : products.c_) place += p.c_rows[0];
  const std::int64_t batches = std::ssize(products.a_);
  products.num_parts_ =
      num_parts_for(num_workers, batches * std::ssize(p.a.k), kPartTerms, batches);
  return products;
}

std::int64_t VectorProducts::flops() const { return 2 * terms_ * std::ssize(a_); }

void VectorProducts::run(const float* a, const float* b, float* c, int part) const {
  const std::int64_t batches = std::ssize(a_);
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_tree);
  for (std::int64_t i = batches * part / num_parts_; i < batches * (part + 1) / num_parts_; ++i) {
    const auto at = static_cast<std::size_t>(i);
    c[c_[at]] = sum(groups_, a + a_[at], b + b_[at]);
  }
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
