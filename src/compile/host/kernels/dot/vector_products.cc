#include "compile/host/kernels/dot/vector_products.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/dot/vector_products.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <algorithm>
#include <hwy/highway.h>
#include <type_traits>

#include "compile/host/kernels/dot/dot_pack-inl.h"
#include "compile/host/kernels/dot/vector_products-inl.h"
#include "compile/host/kernels/parts.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::vector_products::HWY_NAMESPACE {
// Adds the terms of a run from `first` on.
template <class T>
HWY_INLINE T add_terms(const T* a, const T* b, const Run& run, std::int64_t first, T sum) {
  const hn::CappedTag<T, 1> one;
  auto total = hn::Set(one, sum);
  for (std::int64_t k = first; k < run.terms; ++k)
    total = tiles::fused_mul_add(hn::Set(one, a[run.a + k]), hn::Set(one, b[run.b + k]), total);
  return hn::GetLane(total);
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// The terms k to k + 3 of each lane.
HWY_INLINE void load_terms(const float* const* rows, std::int64_t k, hn::Vec<Lanes<float>>* terms) {
  tiles::load_transposed(Lanes<float>(), tiles::TableRows{rows}, k, terms);
}
HWY_INLINE void load_terms(const double* const* rows, std::int64_t k,
                           hn::Vec<Lanes<double>>* terms) {
  const auto keep = [&](int term, auto x) HWY_ATTR { terms[term] = x; };
  dot::HWY_NAMESPACE::transpose_four(rows, k, keep);
}

template <class T>
constexpr bool kHasLanes = std::is_same_v<T, float> || dot::HWY_NAMESPACE::kHasFour<T>;
#else
template <class T>
constexpr bool kHasLanes = false;
#endif

// Adds the terms that all runs have, in fours, to their totals. Returns how many it added of each.
template <class T>
HWY_INLINE std::int64_t add_common_terms(const T* a, const T* b, const Run* runs, T* totals) {
  constexpr std::size_t kGroup = VectorProducts::kGroup;
  const T *of_a[kGroup], *of_b[kGroup];
  std::int64_t common = runs[0].terms;
  for (std::size_t i = 0; i < kGroup; ++i) {
    of_a[i] = a + runs[i].a;
    of_b[i] = b + runs[i].b;
    common = std::min(common, runs[i].terms);
  }
  common = common / 4 * 4;
  constexpr std::size_t kVectors = kGroup / kLanes<T>;
  const Lanes<T> d;
  hn::Vec<Lanes<T>> sums[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) sums[v] = hn::Load(d, totals + v * kLanes<T>);
  for (std::int64_t k = 0; k < common; k += 4) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      hn::Vec<Lanes<T>> x[4], y[4];
      load_terms(of_a + v * kLanes<T>, k, x);
      load_terms(of_b + v * kLanes<T>, k, y);
      for (int i = 0; i < 4; ++i) sums[v] = tiles::fused_mul_add(x[i], y[i], sums[v]);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) hn::Store(sums[v], d, totals + v * kLanes<T>);
  return common;
}

template <class T>
HWY_INLINE void sum_group(const T* a, const T* b, const Group& group, T* totals) {
  for (const auto& runs : group.rounds) {
    std::int64_t common = 0;
    if constexpr (kHasLanes<T>) common = add_common_terms(a, b, runs.data(), totals);
    for (std::size_t i = 0; i < VectorProducts::kGroup; ++i)
      totals[i] = add_terms(a, b, runs[i], common, totals[i]);
  }
}

// The sum of a run of integers.
template <class T>
HWY_INLINE T sum_run(const T* a, const T* b, const Run& run) {
  const hn::ScalableTag<T> d;
  constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(d));
  constexpr std::int64_t kSums = 4;  // in flight
  a += run.a;
  b += run.b;
  hn::Vec<decltype(d)> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  std::int64_t k = 0;
  for (; k + kSums * kStep <= run.terms; k += kSums * kStep) {
    for (std::int64_t i = 0; i < kSums; ++i) {
      const auto product =
          hn::Mul(hn::LoadU(d, a + k + i * kStep), hn::LoadU(d, b + k + i * kStep));
      sums[i] = hn::Add(sums[i], product);
    }
  }
  HWY_ALIGN T lanes[tiles::count(kStep)];
  hn::Store(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), d, lanes);
  T total = 0;
  for (const T lane : lanes) total += lane;
  for (; k < run.terms; ++k) total += a[k] * b[k];
  return total;
}

template <class T>
T sum_integers(std::span<const Group> groups, const T* a, const T* b) {
  T total = 0;
  for (const Group& group : groups) {
    for (const auto& runs : group.rounds) {
      for (std::size_t i = 0; i < group.grains; ++i) total += sum_run(a, b, runs[i]);
    }
  }
  return total;
}

std::uint32_t sum_words(std::span<const Group> groups, const std::uint32_t* a,
                        const std::uint32_t* b) {
  return sum_integers(groups, a, b);
}
std::uint64_t sum_long_words(std::span<const Group> groups, const std::uint64_t* a,
                             const std::uint64_t* b) {
  return sum_integers(groups, a, b);
}
float sum_tree(std::span<const Group> groups, const float* a, const float* b) {
  return sum_tree_of<float>(
      groups, [&](const Group& group, float* totals) HWY_ATTR { sum_group(a, b, group, totals); });
}
double sum_wide_tree(std::span<const Group> groups, const double* a, const double* b) {
  return sum_tree_of<double>(
      groups, [&](const Group& group, double* totals) HWY_ATTR { sum_group(a, b, group, totals); });
}

}  // namespace tessera::kernels::vector_products::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

namespace vector_products {
HWY_EXPORT(sum_words);
HWY_EXPORT(sum_long_words);
HWY_EXPORT(sum_tree);
HWY_EXPORT(sum_wide_tree);
}  // namespace vector_products

// With kernels for one instruction set, HWY_DYNAMIC_DISPATCH takes no name of another namespace.
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
  run_with(HWY_DYNAMIC_DISPATCH(sum_tree), a, b, c, part);
}

void VectorProducts::run(const double* a, const double* b, double* c, int part) const {
  run_with(HWY_DYNAMIC_DISPATCH(sum_wide_tree), a, b, c, part);
}

void VectorProducts::run(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* c,
                         int part) const {
  run_with(HWY_DYNAMIC_DISPATCH(sum_words), a, b, c, part);
}

void VectorProducts::run(const std::uint64_t* a, const std::uint64_t* b, std::uint64_t* c,
                         int part) const {
  run_with(HWY_DYNAMIC_DISPATCH(sum_long_words), a, b, c, part);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
