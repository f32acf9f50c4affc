#include <algorithm>
#include <cmath>

#include "compile/host/kernels/fourier/roots.h"
#include "compile/host/kernels/fourier/rows.h"

namespace tessera::kernels::fourier {

namespace {

/// Radices in the order of the passes: eights, a four or a two, odd primes.
std::vector<std::int64_t> radices_of(std::int64_t length) {
  std::vector<std::int64_t> radices;
  for (const std::int64_t radix : {8, 4, 2}) {
    for (; length % radix == 0; length /= radix) radices.push_back(radix);
  }
  for (std::int64_t radix = 3; length > 1; radix += 2) {
    for (; length % radix == 0; length /= radix) radices.push_back(radix);
  }
  return radices;
}

template <typename T>
Chain<T> chain_of(std::int64_t length) {
  Chain<T> chain{.length = length, .passes = {}};
  std::int64_t rest = length;
  for (const std::int64_t radix : radices_of(length)) {
    Pass<T> pass{.radix = radix, .groups = rest / radix, .stride = length / rest};
    if (pass.groups > 1) {
      const std::vector<Root> roots = roots_of_unity(rest, rest);
      for (std::int64_t p = 0; p < pass.groups; ++p) {
        for (std::int64_t k = 1; k < radix; ++k) {
          const Root& root = roots[static_cast<std::size_t>(p * k)];
          pass.turns.push_back(static_cast<T>(root.cosine));
          pass.turns.push_back(static_cast<T>(-root.sine));
        }
      }
    }
    if (radix % 2 != 0) {
      const std::vector<Root> roots = roots_of_unity(radix, radix);
      for (const Root& root : roots) pass.roots.push_back(static_cast<T>(root.cosine));
      for (const Root& root : roots) pass.roots.push_back(static_cast<T>(root.sine));
    }
    chain.passes.push_back(std::move(pass));
    rest /= radix;
  }
  return chain;
}

/// The largest divisor up to the square root.
std::int64_t lesser_divisor(std::int64_t length) {
  auto divisor = static_cast<std::int64_t>(std::sqrt(static_cast<double>(length))) + 1;
  while (divisor * divisor > length || length % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

bool has_passes(std::int64_t length) {
  for (std::int64_t prime = 2; prime <= kLargestRadix; ++prime) {
    while (length % prime == 0) length /= prime;
  }
  return length == 1;
}

template <typename T>
RowPlan<T> row_plan(std::int64_t length) {
  RowPlan<T> plan{.length = length};
  const std::int64_t divisor = lesser_divisor(length);
  if (divisor < kWidth<T>) {
    plan.first = chain_of<T>(length);
    return plan;
  }
  plan.first = chain_of<T>(divisor);
  plan.second = chain_of<T>(length / divisor);
  const std::vector<Root> roots = roots_of_unity(length, length);
  plan.turns.resize(static_cast<std::size_t>(2 * length));
  std::size_t at = 0;
  for (std::int64_t k = 0; k < plan.first.length; ++k) {
    for (std::int64_t j = 0; j < plan.second.length; ++j, ++at) {
      const Root& root = roots[static_cast<std::size_t>(k * j)];
      plan.turns[at] = static_cast<T>(root.cosine);
      plan.turns[at + static_cast<std::size_t>(length)] = static_cast<T>(-root.sine);
    }
  }
  return plan;
}

template <typename T>
std::int64_t lines_scratch_size(const RowPlan<T>& plan) {
  const std::int64_t buffers = 4 * std::max(plan.first.length, plan.second.length) * kWidth<T>;
  return buffers + (plan.is_split() ? 2 * plan.length * kWidth<T> : 0);
}

template <typename T>
std::int64_t columns_scratch_size(const RowPlan<T>& plan, std::int64_t count) {
  const std::int64_t strips = (count + kWidth<T> - 1) / kWidth<T>;
  return lines_scratch_size(plan) + strips * 2 * plan.length * kWidth<T>;
}

template <typename T>
std::int64_t scratch_size(const RowPlan<T>& plan) {
  if (!plan.is_split() || plan.has_blocks()) return columns_scratch_size(plan, kWidth<T>);
  return 4 * std::max(plan.first.length, plan.second.length) * kWidth<T> + 2 * plan.length;
}

template RowPlan<float> row_plan<float>(std::int64_t);
template std::int64_t lines_scratch_size(const RowPlan<float>&);
template std::int64_t columns_scratch_size(const RowPlan<float>&, std::int64_t);
template std::int64_t scratch_size(const RowPlan<float>&);
template RowPlan<double> row_plan<double>(std::int64_t);
template std::int64_t lines_scratch_size(const RowPlan<double>&);
template std::int64_t columns_scratch_size(const RowPlan<double>&, std::int64_t);
template std::int64_t scratch_size(const RowPlan<double>&);

}  // namespace tessera::kernels::fourier
