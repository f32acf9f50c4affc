// Matrices in strips, the form in which factorisations keep them, and the loops in which
// factorisations spend their time.
//
// A strip has as many columns as fill a cache line, and its rows are adjacent. So a row of a strip
// has the same elements on every instruction set, however many vectors it takes, and a strip of a
// matrix of medium size stays in the nearest cache.
//
// Every element of a result is one chain of fused multiply-adds in the order of the terms. Its bits
// depend neither on the instruction set nor on how a factorisation is cut into blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels {

template <typename T>
inline constexpr std::int64_t kStripWidth = 64 / sizeof(T);

/// Element (i, j) is `at(i, j)[0]`. Columns beyond the last one, up to whole strips, have memory
/// too.
template <typename T>
struct Strips {
  T* data;  // aligned to 64 bytes
  std::int64_t rows;
  std::int64_t cols;

  static std::int64_t count_for(std::int64_t cols) {
    return (cols + kStripWidth<T> - 1) / kStripWidth<T>;
  }
  std::int64_t count() const { return count_for(cols); }
  /// From one strip to the next.
  std::int64_t stride() const { return rows * kStripWidth<T>; }
  T* at(std::int64_t i, std::int64_t j) const {
    return data + (j / kStripWidth<T> * rows + i) * kStripWidth<T> + j % kStripWidth<T>;
  }
  T* strip(std::int64_t s, std::int64_t row = 0) const {
    return data + s * stride() + row * kStripWidth<T>;
  }
};

/// c -= a * b. `a` is row-major, [rows, terms]. The rows of b and c are rows of strips.
template <typename T>
struct StripProduct {
  const T* a;
  std::int64_t a_stride;  // from one row to the next
  const T* b;
  std::int64_t b_stride;  // from one strip to the next
  T* c;
  std::int64_t c_stride;
  std::int64_t rows;
  std::int64_t terms;
  std::int64_t strips;
};
void subtract_product(const StripProduct<float>& p);
void subtract_product(const StripProduct<double>& p);

/// y -= x * b for a vector x of `terms` elements, the rows of b from `row` on, and the strips from
/// the one that has column `col` up to column `end`. y is aligned like the columns of b.
template <typename T>
void subtract_vector_product(const T* x, std::int64_t terms, const Strips<T>& b, std::int64_t row,
                             std::int64_t col, std::int64_t end, T* y) {
  const std::int64_t strip = col / kStripWidth<T>;
  subtract_product(StripProduct<T>{.a = x,
                                   .a_stride = terms,
                                   .b = b.strip(strip, row),
                                   .b_stride = b.stride(),
                                   .c = y + strip * kStripWidth<T>,
                                   .c_stride = kStripWidth<T>,
                                   .rows = 1,
                                   .terms = terms,
                                   .strips = Strips<T>::count_for(end) - strip});
}

/// Subtracts left * right from the part of c from row and column `first` on. left is row-major,
/// with `stride` from one row to the next, and has `terms` columns; row i of right belongs to its
/// column i.
template <typename T>
void subtract_panel(const T* left, std::int64_t stride, std::int64_t terms, const Strips<T>& right,
                    std::int64_t first, const Strips<T>& c) {
  if (first == c.rows) return;
  const std::int64_t strip = first / kStripWidth<T>;
  subtract_product(StripProduct<T>{.a = left + first * stride,
                                   .a_stride = stride,
                                   .b = right.strip(strip),
                                   .b_stride = right.stride(),
                                   .c = c.strip(strip, first),
                                   .c_stride = c.stride(),
                                   .rows = c.rows - first,
                                   .terms = terms,
                                   .strips = c.count() - strip});
}

/// Solves l * x = b, where x has the elements of b at the beginning.
template <typename T>
struct StripSystem {
  const T* l;  // row-major, lower triangular
  std::int64_t l_stride;
  bool has_unit_diagonal;  // the diagonal is not read: it is 1
  T* x;
  std::int64_t x_stride;  // from one strip to the next
  std::int64_t size;
  std::int64_t strips;
};
void solve_lower(const StripSystem<float>& s);
void solve_lower(const StripSystem<double>& s);

/// y = a * x, for rows of strips and a vector. Terms whose columns differ by a multiple of the
/// width of strips are a chain; the chains are added in a tree.
template <typename T>
struct StripRows {
  const T* a;
  std::int64_t a_stride;  // from one strip to the next
  const T* x;             // aligned like a strip
  T* y;
  std::int64_t rows;
  std::int64_t strips;
};
void multiply_rows(const StripRows<float>& r);
void multiply_rows(const StripRows<double>& r);

template <typename T>
struct Turn {
  T cosine, sine;
};
/// Turns of rows first and first + 1, then of first + 1 and first + 2, and so on.
struct Sweep {
  std::int64_t first;
  std::int64_t count;
};
/// A turn makes cosine * x - sine * y and sine * x + cosine * y of two rows x and y.
template <typename T>
struct StripTurns {
  const Turn<T>* turns;  // of all sweeps
  const Sweep* sweeps;
  std::int64_t num_sweeps;
  T* x;
  std::int64_t x_stride;  // from one strip to the next
  std::int64_t strips;
};
void turn_rows(const StripTurns<float>& t);
void turn_rows(const StripTurns<double>& t);

}  // namespace tessera::kernels
