#include "compile/host/kernels/linalg/bidiagonal.h"

#include <algorithm>

namespace tessera::kernels {

namespace {

/// Works on a panel of columns and rows at a time. Within a panel the matrix is a - left * right.
/// Each column adds its vector v to left, and what v is multiplied by to right; each row does the
/// same with the sides exchanged. So each column or row takes one product of a vector with the
/// matrix, and the matrix changes once per panel.
template <typename T>
class Bidiagonalisation {
 public:
  Bidiagonalisation(MatrixMemory& memory, const Strips<T>& a)
      : memory_(memory),
        a_(a),
        size_(a.rows),
        left_(memory.take<T>(a.rows * kTerms)),
        left_strips_(memory.take_strips<T>(a.rows, kTerms)),
        left_rows_(memory.take_strips<T>(kTerms, a.rows)),
        right_(memory.take_strips<T>(kTerms, a.cols)),
        vector_(memory.take<T>(a.count() * kStripWidth<T>)),
        product_(memory.take<T>(a.count() * kStripWidth<T>)),
        result_{a.rows, memory.take<double>(a.rows), memory.take<double>(a.rows), {}, {}} {}

  Bidiagonal<T> run() {
    for (std::int64_t first = 0; first < size_; first += kReflections) {
      const std::int64_t count = std::min(kReflections, size_ - first);
      const std::int64_t rows = size_ - first;
      T* of_columns = memory_.take_zeros<T>(rows * kReflections);
      T* of_rows = memory_.take_zeros<T>(rows * kReflections);
      T column_taus[kReflections];
      T row_taus[kReflections];
      for (std::int64_t j = 0; j < count; ++j) {
        column_taus[j] = reflect_column(first + j, j);
        keep(first + j, first, j, of_columns);
        if (first + j + 1 == size_) continue;
        row_taus[j] = reflect_row(first + j, j);
        keep(first + j + 1, first + 1, j, of_rows);
      }
      result_.left.push_back(make_block(memory_, first, rows, count, of_columns, column_taus));
      if (rows > 1) {
        result_.right.push_back(
            make_block(memory_, first + 1, rows - 1, std::min(count, rows - 1), of_rows, row_taus));
      }
      subtract_panel(left_, kTerms, 2 * count, right_, first + count, a_);
    }
    return std::move(result_);
  }

 private:
  static constexpr std::int64_t kTerms = 2 * kReflections;

  static std::int64_t strip_begin(std::int64_t col) {
    return col / kStripWidth<T> * kStripWidth<T>;
  }

  /// Keeps the vector, which begins in row `begin`, as column j of a block.
  void keep(std::int64_t begin, std::int64_t first, std::int64_t j, T* block) const {
    for (std::int64_t i = begin; i < size_; ++i) block[(i - first) * kReflections + j] = vector_[i];
  }

  /// Stores a vector with zeros before element `begin` as a row of strips, from there on.
  void store_row(const T* from, std::int64_t begin, std::int64_t row, const Strips<T>& to) const {
    for (std::int64_t i = strip_begin(begin); i < size_; i += kStripWidth<T>)
      std::copy_n(from + i, kStripWidth<T>, to.at(row, i));
  }

  /// Stores a vector with zeros before element `begin` as a column of left.
  void store_left(const T* from, std::int64_t begin, std::int64_t term) {
    for (std::int64_t i = begin; i < size_; ++i)
      left_[i * kTerms + term] = left_strips_.at(i, term)[0] = from[i];
    store_row(from, begin, term, left_rows_);
  }

  /// Clears `data` from the strip of `begin` on.
  void clear(T* data, std::int64_t begin) const {
    std::fill(data + strip_begin(begin), data + a_.count() * kStripWidth<T>, T{0});
  }

  /// Scales what is in `data` from `begin` on, and clears what is before it in its strip.
  void scale(T* data, std::int64_t begin, T factor) const {
    std::fill(data + strip_begin(begin), data + begin, T{0});
    for (std::int64_t i = begin; i < size_; ++i) data[i] *= factor;
  }

  /// Reflects column c, the j-th of its panel. Leaves its vector in vector_; returns its tau.
  T reflect_column(std::int64_t c, std::int64_t j) {
    alignas(64) T terms[kTerms] = {};
    for (std::int64_t t = 0; t < 2 * j; ++t) terms[t] = right_.at(t, c)[0];
    clear(vector_, c);
    for (std::int64_t i = c; i < size_; ++i) vector_[i] = a_.at(i, c)[0];
    subtract_vector_product(terms, 2 * j, left_rows_, 0, c, size_, vector_);
    const Reflection<T> reflection = make_reflection(size_ - c, vector_ + c);
    result_.diagonal[c] = static_cast<double>(reflection.length);
    std::fill(vector_ + strip_begin(c), vector_ + c, T{0});
    // The negative of the product with the matrix.
    alignas(64) T inner[kTerms] = {};
    subtract_vector_product(vector_ + c, size_ - c, left_strips_, c, 0, 2 * j, inner);
    store_left(vector_, c, 2 * j);
    if (c + 1 == size_) return reflection.tau;
    clear(product_, c + 1);
    subtract_vector_product(vector_ + c, size_ - c, a_, c, c + 1, size_, product_);
    subtract_vector_product(inner, 2 * j, right_, 0, c + 1, size_, product_);
    scale(product_, c + 1, -reflection.tau);
    store_row(product_, c + 1, 2 * j, right_);
    return reflection.tau;
  }

  /// Reflects row c, from the element above the diagonal on.
  T reflect_row(std::int64_t c, std::int64_t j) {
    const std::int64_t next = c + 1;
    const std::int64_t terms = 2 * j + 1;
    for (std::int64_t i = strip_begin(next); i < size_; i += kStripWidth<T>)
      std::copy_n(a_.at(c, i), kStripWidth<T>, vector_ + i);
    subtract_vector_product(left_ + c * kTerms, terms, right_, 0, next, size_, vector_);
    const Reflection<T> reflection = make_reflection(size_ - next, vector_ + next);
    result_.above[c] = static_cast<double>(reflection.length);
    std::fill(vector_ + strip_begin(next), vector_ + next, T{0});
    const std::int64_t strip = next / kStripWidth<T>;
    const auto multiply = [&](const Strips<T>& m, std::int64_t first, std::int64_t rows, T* to) {
      multiply_rows(StripRows<T>{.a = m.strip(strip, first),
                                 .a_stride = m.stride(),
                                 .x = vector_ + strip_begin(next),
                                 .y = to,
                                 .rows = rows,
                                 .strips = m.count() - strip});
    };
    alignas(64) T inner[kTerms];
    multiply(right_, 0, terms, inner);
    clear(product_, next);
    multiply(a_, next, size_ - next, product_ + next);
    subtract_vector_product(inner, terms, left_rows_, 0, next, size_, product_);
    scale(product_, next, reflection.tau);
    store_left(product_, next, terms);
    store_row(vector_, next, terms, right_);
    return reflection.tau;
  }

  MatrixMemory& memory_;
  Strips<T> a_;
  std::int64_t size_;
  T* left_;                // row-major, [size, kTerms]
  Strips<T> left_strips_;  // the same
  Strips<T> left_rows_;    // its transpose
  Strips<T> right_;
  T* vector_;
  T* product_;
  Bidiagonal<T> result_;
};

}  // namespace

template <typename T>
Bidiagonal<T> make_bidiagonal(MatrixMemory& memory, const Strips<T>& a) {
  return Bidiagonalisation<T>(memory, a).run();
}

template Bidiagonal<float> make_bidiagonal(MatrixMemory&, const Strips<float>&);
template Bidiagonal<double> make_bidiagonal(MatrixMemory&, const Strips<double>&);

}  // namespace tessera::kernels
