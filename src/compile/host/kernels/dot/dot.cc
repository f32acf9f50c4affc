#include "compile/host/kernels/dot/dot.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/dot/dot.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <algorithm>
#include <cmath>
#include <hwy/highway.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "compile/host/kernels/parts.h"
#include "compile/host/kernels/with_type.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

constexpr std::size_t kColumns = 8;
constexpr std::size_t kRows = 4;
constexpr std::size_t kMaxLevels = 64;

template <class T>
HWY_INLINE T multiplied(T x, T y, T sum) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fma(x, y, sum);
  } else {
    return static_cast<T>(sum + x * y);
  }
}

/// A block of sums of rows and columns.
template <class T>
struct Sums {
  T of[kRows][kColumns];
};

/// The tree of base/leaf_tree.h over blocks of sums.
template <class T>
class SumTree {
 public:
  void push(Sums<T> sums) {
    ++count_;
    for (std::int64_t n = count_; n % 2 == 0; n /= 2) sums = added(stack_[--depth_], sums);
    stack_[depth_++] = sums;
  }
  Sums<T> finish() {
    if (depth_ == 0) return {};
    Sums<T> sums = stack_[--depth_];
    while (depth_ > 0) sums = added(stack_[--depth_], sums);
    count_ = 0;
    return sums;
  }

 private:
  static Sums<T> added(const Sums<T>& x, const Sums<T>& y) {
    Sums<T> result;
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j)
        result.of[i][j] = static_cast<T>(x.of[i][j] + y.of[i][j]);
    }
    return result;
  }

  std::vector<Sums<T>> stack_ = std::vector<Sums<T>>(kMaxLevels);
  std::size_t depth_ = 0;
  std::int64_t count_ = 0;
};

/// A range of rows of one batch.
template <class T>
class RowsOfBatch {
 public:
  RowsOfBatch(const GemmProblem& p, const T* a, const T* b, T* c)
      : p_(p), a_(a), b_(b), c_(c), panel_(p.a.k.size() * kColumns) {}

  void run(std::size_t first, std::size_t end) {
    for (std::size_t column = 0; column < p_.b.outer.size(); column += kColumns) {
      pack(column);
      for (std::size_t row = first; row < end; row += kRows) block(row, end, column);
    }
  }

 private:
  /// The columns from `column` on, [k, kColumns]; columns behind the last one are zeros.
  void pack(std::size_t column) {
    const std::size_t count = std::min(kColumns, p_.b.outer.size() - column);
    for (std::size_t k = 0; k < p_.b.k.size(); ++k) {
      T* to = panel_.data() + k * kColumns;
      for (std::size_t j = 0; j < count; ++j) to[j] = b_[p_.b.outer[column + j] + p_.b.k[k]];
      std::fill(to + count, to + kColumns, T{});
    }
  }

  void block(std::size_t row, std::size_t end, std::size_t column) {
    const std::size_t rows = std::min(kRows, end - row);
    const T* from[kRows];
    for (std::size_t i = 0; i < kRows; ++i)
      from[i] = a_ + p_.a.outer[row + std::min(i, rows - 1)];  // the last one again
    std::int64_t begin = 0;
    for (const std::int64_t leaf_end : p_.leaf_ends) {
      tree_.push(leaf(from, begin, leaf_end));
      begin = leaf_end;
    }
    const Sums<T> sums = tree_.finish();
    const std::size_t columns = std::min(kColumns, p_.b.outer.size() - column);
    for (std::size_t i = 0; i < rows; ++i)
      std::copy_n(sums.of[i], columns, c_ + p_.c_rows[row + i] + column);
  }

  Sums<T> leaf(const T* const (&from)[kRows], std::int64_t begin, std::int64_t end) const {
    Sums<T> sums = {};
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
      const T* b = panel_.data() + k * kColumns;
      for (std::size_t i = 0; i < kRows; ++i) {
        const T x = from[i][p_.a.k[k]];
        for (std::size_t j = 0; j < kColumns; ++j)
          sums.of[i][j] = multiplied(x, b[j], sums.of[i][j]);
      }
    }
    return sums;
  }

  const GemmProblem& p_;
  const T* a_;
  const T* b_;
  T* c_;
  std::vector<T> panel_;
  SumTree<T> tree_;
};

template <class T>
void run_rows(const GemmProblem& p, const DotRows& range, const T* a, const T* b, T* c) {
  const auto rows = static_cast<std::int64_t>(p.a.outer.size());
  for (std::int64_t at = range.first; at < range.end;) {
    const auto batch = static_cast<std::size_t>(at / rows);
    const std::int64_t end = std::min(range.end, at / rows * rows + rows);
    RowsOfBatch<T>(p, a + p.a.batch[batch], b + p.b.batch[batch], c + p.c_batch[batch])
        .run(static_cast<std::size_t>(at % rows), static_cast<std::size_t>(end - at / rows * rows));
    at = end;
  }
}

void run_dot(const GemmProblem& p, DType dtype, const DotRows& rows, const std::byte* a,
             const std::byte* b, std::byte* c) {
  const auto run = [&]<class T>(T /*zero*/) {
    run_rows(p, rows, reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(b),
             reinterpret_cast<T*>(c));
  };
  // The low words of products and sums do not depend on signs.
  if (dtype == DType::f64) return run(double{});
  size_bytes(dtype) == 8 ? run(std::uint64_t{}) : run(std::uint32_t{});
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(run_dot);

namespace {

constexpr std::int64_t kMinPartTerms = std::int64_t{128} * 1024;

}  // namespace

DotPlan::DotPlan(GemmProblem problem, DType dtype, int num_workers)
    : problem_(std::move(problem)), dtype_(dtype) {
  const auto count = [](const auto& table) { return static_cast<std::int64_t>(table.size()); };
  num_rows_ = count(problem_.c_batch) * count(problem_.a.outer);
  const std::int64_t terms = num_rows_ * count(problem_.b.outer) * count(problem_.a.k);
  num_parts_ = num_parts_for(num_workers, terms, kMinPartTerms, num_rows_);
}

void DotPlan::run(const std::byte* a, const std::byte* b, std::byte* c, int part) const {
  const DotRows rows = {.first = num_rows_ * part / num_parts_,
                        .end = num_rows_ * (part + 1) / num_parts_};
  HWY_DYNAMIC_DISPATCH(run_dot)(problem_, dtype_, rows, a, b, c);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
