// Cholesky factors, triangular systems and LU factors.
//
// Panels of rows or columns are factored step by step, and one product per panel updates the rest
// of the matrix. Where a step needs some elements of a column, a buffer has them next to each
// other.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compile/host/kernels/linalg/finite.h"
#include "compile/host/kernels/linalg/linalg.h"
#include "compile/host/kernels/linalg/matrix_memory.h"
#include "compile/host/kernels/linalg/strips.h"

namespace tessera::kernels {

namespace {

/// Rows or columns of a panel; a multiple of the width of strips.
constexpr std::int64_t kPanel = 32;

template <typename T>
bool is_triangle_finite(const TriangularForm& form, std::int64_t n, const T* a) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t first = form.lower ? 0 : i;
    std::int64_t end = form.lower ? i + 1 : n;
    if (form.unit_diagonal) form.lower ? --end : ++first;
    if (!is_finite(a + i * n + first, end - first)) return false;
  }
  return true;
}

// --- Cholesky factors. The strips have u, the transpose of l.

/// Element (i, j) is a[j, i], for i <= j. What is below the diagonal is not used.
template <typename T>
Strips<T> load_transposed_triangle(MatrixMemory& memory, std::int64_t n, const T* a) {
  const Strips<T> u = memory.take_zero_strips<T>(n, n);
  for (std::int64_t j = 0; j < n; ++j) {
    T* to = u.at(0, j);
    for (std::int64_t i = 0; i <= j; ++i) to[i * kStripWidth<T>] = a[j * n + i];
  }
  return u;
}

/// Copies rows [first, end) of u to columns of l, from row `from` of l on.
template <typename T>
void store_columns(const Strips<T>& u, std::int64_t first, std::int64_t end, std::int64_t from,
                   T* l) {
  for (std::int64_t j = from; j < u.cols; ++j) {
    const T* of_u = u.at(first, j);
    T* to = l + j * u.cols + first;
    const std::int64_t count = std::min(end, j + 1) - first;
    for (std::int64_t i = 0; i < count; ++i) to[i] = of_u[i * kStripWidth<T>];
  }
}

/// Factors rows [first, end) of u in the strips that have their diagonal. Returns whether the
/// diagonal is positive.
template <typename T>
bool factor_diagonal(const Strips<T>& u, std::int64_t first, std::int64_t end) {
  T factors[kPanel];
  const std::int64_t end_strip = Strips<T>::count_for(end);
  for (std::int64_t k = first; k < end; ++k) {
    const T pivot = u.at(k, k)[0];
    if (!(pivot > T{0}) || !std::isfinite(pivot)) return false;
    const T root = std::sqrt(pivot);
    const std::int64_t strip = k / kStripWidth<T>;
    for (std::int64_t s = strip; s < end_strip; ++s) {
      T* row = u.strip(s, k);
      for (std::int64_t i = 0; i < kStripWidth<T>; ++i) row[i] /= root;
    }
    u.at(k, k)[0] = root;
    for (std::int64_t j = k + 1; j < end; ++j) factors[j - k - 1] = u.at(k, j)[0];
    subtract_product(StripProduct<T>{.a = factors,
                                     .a_stride = 1,
                                     .b = u.strip(strip, k),
                                     .b_stride = u.stride(),
                                     .c = u.strip(strip, k + 1),
                                     .c_stride = u.stride(),
                                     .rows = end - k - 1,
                                     .terms = 1,
                                     .strips = end_strip - strip});
  }
  return true;
}

/// Subtracts the products of rows [first, end) from the triangle below them.
template <typename T>
void update_triangle(const Strips<T>& u, std::int64_t first, std::int64_t end, const T* l) {
  for (std::int64_t s = end / kStripWidth<T>; s < u.count(); ++s) {
    subtract_product(StripProduct<T>{.a = l + end * u.cols + first,
                                     .a_stride = u.cols,
                                     .b = u.strip(s, first),
                                     .b_stride = u.stride(),
                                     .c = u.strip(s, end),
                                     .c_stride = u.stride(),
                                     .rows = std::min(u.rows, (s + 1) * kStripWidth<T>) - end,
                                     .terms = end - first,
                                     .strips = 1});
  }
}

// --- Triangular systems

/// A lower triangular system with the same solution, up to the order of unknowns.
template <typename T>
struct LowerForm {
  LowerForm(const TriangularForm& form, std::int64_t n, const T* a, MatrixMemory& memory) : l(a) {
    // x * op(a) = b is transpose(op(a)) * transpose(x) = transpose(b).
    const bool is_transposed = form.transpose_a == form.left_side;
    is_reversed = form.lower == is_transposed;
    if (!is_transposed && !is_reversed) return;
    // Backward substitution is forward substitution from the last unknown on.
    T* copy = memory.take<T>(n * n);
    l = copy;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t row = is_reversed ? n - 1 - i : i;
      for (std::int64_t j = 0; j <= i; ++j) {
        const std::int64_t col = is_reversed ? n - 1 - j : j;
        copy[i * n + j] = is_transposed ? a[col * n + row] : a[row * n + col];
      }
    }
  }

  const T* l;
  bool is_reversed;
};

/// Where element i of right-hand side j is.
struct SideLayout {
  std::int64_t of_element, of_side;
};

/// Calls body(element of the strips, where it is in the array) for all elements.
template <typename T, typename Body>
void for_elements(const Strips<T>& x, SideLayout layout, bool is_reversed, Body body) {
  for (std::int64_t s = 0; s < x.count(); ++s) {
    const std::int64_t width = std::min(kStripWidth<T>, x.cols - s * kStripWidth<T>);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t element = is_reversed ? x.rows - 1 - i : i;
      const std::int64_t first = element * layout.of_element + s * kStripWidth<T> * layout.of_side;
      T* row = x.strip(s, i);
      for (std::int64_t j = 0; j < width; ++j) body(row[j], first + j * layout.of_side);
    }
  }
}

// --- LU factors

template <typename T>
struct Panel {
  std::int64_t first, end;  // columns
  T* l;                     // their elements, row-major: [rows, kPanel]
};

template <typename T>
std::int64_t row_of_largest(const Strips<T>& m, std::int64_t k) {
  std::int64_t row = k;
  T largest = -1;
  for (std::int64_t i = k; i < m.rows; ++i) {
    const T size = std::abs(m.at(i, k)[0]);
    if (size > largest) {
      largest = size;
      row = i;
    }
  }
  return row;
}

template <typename T>
void exchange_rows(const Strips<T>& m, std::int64_t strip, std::int64_t i, std::int64_t j) {
  if (i != j) std::swap_ranges(m.strip(strip, i), m.strip(strip, i + 1), m.strip(strip, j));
}

/// Subtracts the products of column k below the diagonal with row k, in the strips of the panel.
template <typename T>
void eliminate_column(const Strips<T>& m, const Panel<T>& panel, std::int64_t k) {
  if (k + 1 == m.rows) return;
  alignas(64) T upper[kPanel];  // row k, from the first strip that changes on
  const std::int64_t strip = k / kStripWidth<T>;
  const std::int64_t strips = Strips<T>::count_for(panel.end) - strip;
  for (std::int64_t s = 0; s < strips; ++s) {
    std::copy_n(m.strip(strip + s, k), kStripWidth<T>, upper + s * kStripWidth<T>);
  }
  std::fill_n(upper, k % kStripWidth<T> + 1, T{0});
  const T pivot = m.at(k, k)[0];
  T* l = panel.l + (k + 1) * kPanel + k - panel.first;
  const std::int64_t rows = m.rows - k - 1;
  T* column = m.at(k, k) + kStripWidth<T>;
  for (std::int64_t i = 0; i < rows; ++i) {
    column[i * kStripWidth<T>] /= pivot;
    l[i * kPanel] = column[i * kStripWidth<T>];
  }
  subtract_product(StripProduct<T>{.a = l,
                                   .a_stride = kPanel,
                                   .b = upper,
                                   .b_stride = kStripWidth<T>,
                                   .c = m.strip(strip, k + 1),
                                   .c_stride = m.stride(),
                                   .rows = rows,
                                   .terms = 1,
                                   .strips = strips});
}

template <typename T>
void factor_panel(const Strips<T>& m, const Panel<T>& panel, std::int32_t* pivots) {
  for (std::int64_t k = panel.first; k < panel.end; ++k) {
    const std::int64_t pivot = row_of_largest(m, k);
    pivots[k] = static_cast<std::int32_t>(pivot);
    for (std::int64_t s = panel.first / kStripWidth<T>; s < Strips<T>::count_for(panel.end); ++s)
      exchange_rows(m, s, k, pivot);
    T* l = panel.l;
    if (pivot != k)
      std::swap_ranges(l + k * kPanel, l + k * kPanel + k - panel.first, l + pivot * kPanel);
    if (m.at(k, k)[0] != T{0}) {
      eliminate_column(m, panel, k);
    } else {
      for (std::int64_t i = k + 1; i < m.rows; ++i) l[i * kPanel + k - panel.first] = T{0};
    }
  }
}

/// Updates the strip after a panel to its left.
template <typename T>
void update_strip(const Strips<T>& m, const Panel<T>& panel, std::int64_t strip) {
  const std::int64_t width = panel.end - panel.first;
  solve_lower(StripSystem<T>{.l = panel.l + panel.first * kPanel,
                             .l_stride = kPanel,
                             .has_unit_diagonal = true,
                             .x = m.strip(strip, panel.first),
                             .x_stride = m.stride(),
                             .size = width,
                             .strips = 1});
  subtract_product(StripProduct<T>{.a = panel.l + panel.end * kPanel,
                                   .a_stride = kPanel,
                                   .b = m.strip(strip, panel.first),
                                   .b_stride = m.stride(),
                                   .c = m.strip(strip, panel.end),
                                   .c_stride = m.stride(),
                                   .rows = m.rows - panel.end,
                                   .terms = width,
                                   .strips = 1});
}

}  // namespace

template <typename T>
void cholesky(std::int64_t n, const T* a, T* l) {
  if (!is_lower_triangle_finite(n, a)) return fill_with_nan(l, n * n);
  MatrixMemory memory;
  const Strips<T> u = load_transposed_triangle(memory, n, a);
  for (std::int64_t i = 0; i < n; ++i) std::fill(l + i * n + i + 1, l + (i + 1) * n, T{0});
  for (std::int64_t first = 0; first < n; first += kPanel) {
    const std::int64_t end = std::min(first + kPanel, n);
    if (!factor_diagonal(u, first, end)) return fill_with_nan(l, n * n);
    store_columns(u, first, end, first, l);
    const std::int64_t strip = Strips<T>::count_for(end);
    solve_lower(StripSystem<T>{.l = l + first * n + first,
                               .l_stride = n,
                               .has_unit_diagonal = false,
                               .x = u.strip(strip, first),
                               .x_stride = u.stride(),
                               .size = end - first,
                               .strips = u.count() - strip});
    store_columns(u, first, end, end, l);
    update_triangle(u, first, end, l);
  }
}

template <typename T>
void triangular_solve(const TriangularForm& form, MatrixSize size, const T* a, const T* b, T* x,
                      std::int64_t first_side, std::int64_t end_side) {
  const std::int64_t n = form.left_side ? size.rows : size.cols;
  if (n == 0 || first_side == end_side) return;
  const SideLayout layout = form.left_side ? SideLayout{size.cols, 1} : SideLayout{1, size.cols};
  const std::int64_t offset = first_side * layout.of_side;
  MatrixMemory memory;
  const Strips<T> sides = memory.take_strips<T>(n, end_side - first_side);
  const auto store = [&](bool is_reversed) {
    for_elements(sides, layout, is_reversed,
                 [&](T& element, std::int64_t i) { x[offset + i] = element; });
  };
  if (!is_triangle_finite(form, n, a)) {
    fill_with_nan(sides.data, sides.count() * sides.stride());
    return store(false);
  }
  const LowerForm<T> lower(form, n, a, memory);
  if (sides.cols % kStripWidth<T> != 0) {
    std::fill_n(sides.strip(sides.count() - 1), sides.stride(), T{0});
  }
  for_elements(sides, layout, lower.is_reversed,
               [&](T& element, std::int64_t i) { element = b[offset + i]; });
  solve_lower(StripSystem<T>{.l = lower.l,
                             .l_stride = n,
                             .has_unit_diagonal = form.unit_diagonal,
                             .x = sides.data,
                             .x_stride = sides.stride(),
                             .size = n,
                             .strips = sides.count()});
  store(lower.is_reversed);
}

template <typename T>
void lu(MatrixSize size, const T* a, T* packed, std::int32_t* pivots, std::int32_t* permutation) {
  std::iota(permutation, permutation + size.rows, 0);
  std::iota(pivots, pivots + size.least(), 0);
  const std::int64_t count = size.rows * size.cols;
  if (!is_finite(a, count)) return fill_with_nan(packed, count);
  MatrixMemory memory;
  const Strips<T> m = load_strips(memory, size.rows, size.cols, a, size.cols);
  T* l = memory.take<T>(size.rows * kPanel);
  for (std::int64_t first = 0; first < size.least(); first += kPanel) {
    const Panel<T> panel = {first, std::min(first + kPanel, size.least()), l};
    factor_panel(m, panel, pivots);
    const std::int64_t first_strip = first / kStripWidth<T>;
    const std::int64_t end_strip = Strips<T>::count_for(panel.end);
    for (std::int64_t s = 0; s < m.count(); ++s) {
      if (s >= first_strip && s < end_strip) continue;
      for (std::int64_t k = first; k < panel.end; ++k) exchange_rows(m, s, k, pivots[k]);
      if (s >= end_strip) update_strip(m, panel, s);
    }
  }
  for (std::int64_t i = 0; i < size.least(); ++i) std::swap(permutation[i], permutation[pivots[i]]);
  store_strips(m, packed, size.cols);
}

template void cholesky(std::int64_t, const float*, float*);
template void cholesky(std::int64_t, const double*, double*);
template void triangular_solve(const TriangularForm&, MatrixSize, const float*, const float*,
                               float*, std::int64_t, std::int64_t);
template void triangular_solve(const TriangularForm&, MatrixSize, const double*, const double*,
                               double*, std::int64_t, std::int64_t);
template void lu(MatrixSize, const float*, float*, std::int32_t*, std::int32_t*);
template void lu(MatrixSize, const double*, double*, std::int32_t*, std::int32_t*);

}  // namespace tessera::kernels
