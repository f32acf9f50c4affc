// Singular vectors: reflections make the matrix bidiagonal, and turns make that diagonal.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compile/host/kernels/linalg/bidiagonal.h"
#include "compile/host/kernels/linalg/finite.h"
#include "compile/host/kernels/linalg/linalg.h"
#include "compile/host/kernels/linalg/qr.h"
#include "compile/host/kernels/linalg/scaled.h"
#include "compile/host/kernels/linalg/turns.h"

namespace tessera::kernels {

namespace {

/// The lesser singular value of the matrix with rows (f, g) and (0, h), like LAPACK's las2.
double lesser_singular_value(double f, double g, double h) {
  const double beside = std::abs(g);
  const double least = std::min(std::abs(f), std::abs(h));
  const double most = std::max(std::abs(f), std::abs(h));
  if (least == 0.0) return 0.0;
  const double sum = 1.0 + least / most;
  const double difference = (most - least) / most;
  if (beside < most) {
    const double square = beside / most * (beside / most);
    return least * 2.0 /
           (std::sqrt(sum * sum + square) + std::sqrt(difference * difference + square));
  }
  const double ratio = most / beside;
  return 2.0 * (least * ratio) / (length_of(1.0, sum * ratio) + length_of(1.0, difference * ratio));
}

// What rounding leaves above the diagonal if singular values are equal, relative to the norm: a
// sweep rounds each element several times. With a smaller limit, the iteration may not end.
constexpr double kNegligible = 8 * std::numeric_limits<double>::epsilon();

/// The iteration of Golub and Kahan. Its turns of rows are applied to the rows of transpose(u), its
/// turns of columns to the rows of transpose(v).
template <typename T>
class BidiagonalIteration {
 public:
  BidiagonalIteration(const Bidiagonal<T>& b, TurnList<T>& rows, TurnList<T>& columns)
      : size_(b.size), d_(b.diagonal), e_(b.above), rows_(rows), columns_(columns) {
    double norm = 0.0;
    for (std::int64_t i = 0; i < size_; ++i) {
      norm = std::max(norm, std::abs(d_[i]));
      if (i + 1 < size_) norm = std::max(norm, std::abs(e_[i]));
    }
    negligible_ = norm * kNegligible;
  }

  /// Makes the matrix diagonal. Returns whether the iteration converged.
  bool run() {
    const auto is_negligible = [this](std::int64_t i) { return is_split(i); };
    const auto step = [this](std::int64_t first, std::int64_t end) { chase(first, end); };
    if (!iterate(size_, is_negligible, step)) return false;
    rows_.make();
    columns_.make();
    return true;
  }

 private:
  bool is_split(std::int64_t i) const { return std::abs(e_[i]) <= negligible_; }

  /// 0 if the matrix is singular: then the last element above the diagonal vanishes at once.
  double shift_of(std::int64_t first, std::int64_t end) const {
    for (std::int64_t i = first; i <= end; ++i) {
      if (std::abs(d_[i]) <= negligible_) return 0.0;
    }
    return lesser_singular_value(d_[end - 1], e_[end - 1], d_[end]);
  }

  void chase(std::int64_t first, std::int64_t end) {
    const double shift = shift_of(first, end);
    double here = d_[first];
    double above = e_[first];
    double x =
        shift == 0.0 ? here : (std::abs(here) - shift) * (std::copysign(1.0, here) + shift / here);
    double bulge = above;
    columns_.begin_sweep(first);
    rows_.begin_sweep(first);
    for (std::int64_t k = first; k < end; ++k) {
      const Turn<double> of_columns = turn_away(x, bulge);
      columns_.add(of_columns);
      if (k > first) e_[k - 1] = of_columns.cosine * x - of_columns.sine * bulge;
      const double below = -of_columns.sine * d_[k + 1];
      const double next = of_columns.cosine * d_[k + 1];
      const double turned = of_columns.cosine * here - of_columns.sine * above;
      above = of_columns.sine * here + of_columns.cosine * above;

      const Turn<double> of_rows = turn_away(turned, below);
      rows_.add(of_rows);
      d_[k] = of_rows.cosine * turned - of_rows.sine * below;
      x = of_rows.cosine * above - of_rows.sine * next;
      here = of_rows.sine * above + of_rows.cosine * next;
      if (k + 1 < end) {
        bulge = -of_rows.sine * e_[k + 1];
        above = of_rows.cosine * e_[k + 1];
      }
    }
    d_[end] = here;
    e_[end - 1] = x;
  }

  std::int64_t size_;
  double* d_;
  double* e_;
  TurnList<T>& rows_;
  TurnList<T>& columns_;
  double negligible_;
};

/// Factors of a matrix with no more columns than rows. The rows of left_rows and right_rows are
/// singular vectors, which are not sorted. The left ones are those of R, and have no more elements
/// than R has rows.
template <typename T>
struct SvdFactors {
  Bidiagonal<T> values;
  Strips<T> left_rows;
  Strips<T> right_rows;
  std::vector<ReflectionBlock<T>> q;  // of the QR factors, if the matrix is not square
};

template <typename T>
bool factor_tall(MatrixMemory& memory, Strips<T> m, SvdFactors<T>& result) {
  const std::int64_t n = m.cols;
  if (m.rows > n) {
    T* taus = memory.take<T>(n);
    factor(m, taus);
    result.q = blocks_of(memory, m, n, taus);
    const Strips<T> r = memory.take_zero_strips<T>(n, n);
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = 0; i <= j; ++i) r.at(i, j)[0] = m.at(i, j)[0];
    }
    m = r;
  }
  result.values = make_bidiagonal(memory, m);
  result.left_rows = memory.take_zero_strips<T>(n, n);
  result.right_rows = memory.take_zero_strips<T>(n, n);
  transpose(product_of(memory, result.values.left, n, n), result.left_rows);
  transpose(product_of(memory, result.values.right, n, n), result.right_rows);
  TurnList<T> rows(memory, result.left_rows);
  TurnList<T> columns(memory, result.right_rows);
  return BidiagonalIteration<T>(result.values, rows, columns).run();
}

/// The rows of `from` in this order. Rows with negative values change their signs.
template <typename T>
Strips<T> sorted_rows(MatrixMemory& memory, const Strips<T>& from, const std::int64_t* order,
                      const double* values) {
  const Strips<T> to = memory.take_strips<T>(from.rows, from.cols);
  for (std::int64_t s = 0; s < from.count(); ++s) {
    for (std::int64_t k = 0; k < from.rows; ++k) {
      const T sign = values != nullptr && values[order[k]] < 0.0 ? T{-1} : T{1};
      for (std::int64_t j = 0; j < kStripWidth<T>; ++j)
        to.strip(s, k)[j] = sign * from.strip(s, order[k])[j];
    }
  }
  return to;
}

/// Stores the rows of `x` with these signs as rows, or as columns, of `data`.
template <typename T>
void store_rows(const Strips<T>& x, bool is_transposed, const T* signs, T* data) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j)
      data[is_transposed ? j * x.rows + i : i * x.cols + j] = signs[i] * x.at(i, j)[0];
  }
}

template <typename T>
Strips<T> load_scaled(MatrixMemory& memory, MatrixSize size, const T* a, bool is_transposed,
                      T scale) {
  const Strips<T> m = is_transposed ? memory.take_zero_strips<T>(size.cols, size.rows)
                                    : memory.take_zero_strips<T>(size.rows, size.cols);
  for (std::int64_t i = 0; i < size.rows; ++i) {
    for (std::int64_t j = 0; j < size.cols; ++j)
      (is_transposed ? m.at(j, i) : m.at(i, j))[0] = a[i * size.cols + j] * scale;
  }
  return m;
}

/// The left vectors of the matrix as rows, from those of R.
template <typename T>
Strips<T> long_rows(MatrixMemory& memory, const std::vector<ReflectionBlock<T>>& q,
                    const Strips<T>& rows, std::int64_t length) {
  if (q.empty()) return rows;
  const Strips<T> columns = memory.take_zero_strips<T>(length, rows.rows);
  transpose(rows, columns);
  for (auto block = q.rbegin(); block != q.rend(); ++block) apply(*block, false, columns, 0);
  const Strips<T> result = memory.take_strips<T>(rows.rows, length);
  transpose(columns, result);
  return result;
}

}  // namespace

template <typename T>
void svd(MatrixSize size, const T* a, T* u, T* s, T* vt) {
  const std::int64_t k = size.least();
  const auto fail = [&] {
    fill_with_nan(u, size.rows * k);
    fill_with_nan(s, k);
    fill_with_nan(vt, k * size.cols);
  };
  if (k == 0) return;
  if (!is_finite(a, size.rows * size.cols)) return fail();
  MatrixMemory memory;
  const bool is_wide = size.cols > size.rows;
  const T scale = scale_for(largest_of(size.rows * size.cols, a));
  SvdFactors<T> factors;
  if (!factor_tall(memory, load_scaled(memory, size, a, is_wide, scale), factors)) return fail();

  const double* values = factors.values.diagonal;
  double* negative = memory.take<double>(k);
  for (std::int64_t i = 0; i < k; ++i) negative[i] = -std::abs(values[i]);
  std::int64_t* order = memory.take<std::int64_t>(k);
  sort_positions(k, negative, order);
  const Strips<T> left =
      long_rows(memory, factors.q, sorted_rows<T>(memory, factors.left_rows, order, nullptr),
                std::max(size.rows, size.cols));
  const Strips<T> right = sorted_rows(memory, factors.right_rows, order, values);
  T* signs = memory.take<T>(k);
  for (std::int64_t i = 0; i < k; ++i) {
    s[i] = static_cast<T>(-negative[order[i]] / static_cast<double>(scale));
    signs[i] = sign_of_row(is_wide ? right : left, i);
  }
  store_rows(is_wide ? right : left, true, signs, u);
  store_rows(is_wide ? left : right, false, signs, vt);
}

template void svd(MatrixSize, const float*, float*, float*, float*);
template void svd(MatrixSize, const double*, double*, double*, double*);

}  // namespace tessera::kernels
