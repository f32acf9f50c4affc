#include "compile/host/kernels/any_order/any_order.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "compile/host/kernels/any_order/loops.h"
#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/parts.h"
#include "compile/host/kernels/reduce_internal.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

namespace {

constexpr std::int64_t kMinPartTerms = 32 * 1024;
constexpr std::int64_t kMostColumns = 2048;  // of results that stay in L1

/// The problem with as few dimensions as possible. Reduced dimensions may change places.
ReduceProblem merged(ReduceProblem p) {
  std::vector<std::size_t> order(p.reduced_extents.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t d) { return p.reduced_strides[d]; });
  std::vector<std::int64_t> extents, strides;
  for (const std::size_t d : order) {
    extents.push_back(p.reduced_extents[d]);
    strides.push_back(p.reduced_strides[d]);
  }
  p.reduced_extents = std::move(extents);
  p.reduced_strides = std::move(strides);
  merge_dims(p.reduced_extents, p.reduced_strides);
  merge_dims(p.kept_extents, p.kept_strides);
  return p;
}

}  // namespace

bool AnyOrder::takes(const ReduceProblem& problem) {
  if (problem.kind == ReduceKind::bits) return false;
  if (problem.kind == ReduceKind::sum && is_float(problem.dtype)) return false;
  if (num_elements(problem.reduced_extents) == 0) return false;
  const ReduceProblem p = merged(problem);
  if (p.reduced_extents.empty()) return false;
  return p.reduced_strides.back() == 1 || (!p.kept_strides.empty() && p.kept_strides.back() == 1);
}

AnyOrder::AnyOrder(const ReduceProblem& problem, int num_workers)
    : problem_(merged(problem)),
      element_(static_cast<std::int64_t>(size_bytes(problem.dtype))),
      num_results_(num_elements(problem_.kept_extents)),
      has_rows_(problem_.reduced_strides.back() == 1) {
  const std::int64_t terms = num_results_ * num_elements(problem_.reduced_extents);
  const std::int64_t outermost = problem_.reduced_extents.front();
  const std::int64_t wanted = num_parts_for(num_workers, terms, kMinPartTerms, terms);
  const std::int64_t by_results = (num_results_ + unit() - 1) / unit();
  splits_terms_ = by_results < wanted && outermost > by_results;
  num_parts_ = static_cast<int>(std::min(wanted, splits_terms_ ? outermost : by_results));
}

std::int64_t AnyOrder::scratch_bytes() const {
  return splits_terms_ ? num_parts_ * num_results_ * element_ : 0;
}

void AnyOrder::fill(std::byte* to, std::int64_t count) const {
  with_element(problem_.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(reinterpret_cast<T*>(to), count, identity_of<T>(problem_.kind));
  });
}

void AnyOrder::reduce_columns(const std::byte* from, std::int64_t columns, const Box& terms,
                              std::byte* to) const {
  for_each_run(problem_, terms, [&](std::int64_t offset) {
    join_columns({problem_.kind, problem_.dtype},
                 {.from = from + offset * element_,
                  .count = terms.back(),
                  .stride = problem_.reduced_strides.back(),
                  .length = columns},
                 to);
  });
}

void AnyOrder::reduce_rows(const std::byte* from, std::int64_t rows, const Box& terms,
                           std::byte* to) const {
  for_each_run(problem_, terms, [&](std::int64_t offset) {
    join_rows({problem_.kind, problem_.dtype},
              {.from = from + offset * element_,
               .count = rows,
               .stride = problem_.kept_strides.empty() ? 0 : problem_.kept_strides.back(),
               .length = terms.back()},
              to);
  });
}

/// Reduces `terms` of the outermost reduced dimension for some results. Writes the first of them to
/// `to`.
void AnyOrder::reduce(const std::byte* in, Range results, Range terms, std::byte* to) const {
  Box box = problem_.reduced_extents;
  box.front() = terms.end - terms.first;
  in += terms.first * problem_.reduced_strides.front() * element_;
  const std::int64_t line = problem_.kept_extents.empty() ? 1 : problem_.kept_extents.back();
  std::int64_t next = results.first;
  while (next < results.end) {
    std::int64_t count = std::min(results.end - next, line - next % line);
    if (!has_rows_) count = std::min(count, kMostColumns);
    const std::byte* from = in + kept_offset(problem_, next) * element_;
    fill(to, count);
    if (has_rows_) {
      reduce_rows(from, count, box, to);
    } else {
      reduce_columns(from, count, box, to);
    }
    next += count;
    to += count * element_;
  }
}

void AnyOrder::run(const std::byte* in, std::byte* out, std::byte* scratch, int part) const {
  const std::int64_t outermost = problem_.reduced_extents.front();
  const auto cut = [&](std::int64_t count) {
    return Range{count * part / num_parts_, count * (part + 1) / num_parts_};
  };
  if (splits_terms_) {
    return reduce(in, {0, num_results_}, cut(outermost), scratch + part * num_results_ * element_);
  }
  const Range units = cut((num_results_ + unit() - 1) / unit());
  const Range results = {units.first * unit(), std::min(units.end * unit(), num_results_)};
  reduce(in, results, {0, outermost}, out + results.first * element_);
}

void AnyOrder::join(const std::byte* scratch, std::byte* out) const {
  fill(out, num_results_);
  join_columns(
      {problem_.kind, problem_.dtype},
      {.from = scratch, .count = num_parts_, .stride = num_results_, .length = num_results_}, out);
}

}  // namespace tessera::kernels
