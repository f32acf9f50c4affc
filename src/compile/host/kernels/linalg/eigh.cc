// Eigenvectors of symmetric matrices, from those of a tridiagonal form.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "compile/host/kernels/linalg/finite.h"
#include "compile/host/kernels/linalg/linalg.h"
#include "compile/host/kernels/linalg/reflections.h"
#include "compile/host/kernels/linalg/scaled.h"
#include "compile/host/kernels/linalg/tridiagonal.h"

namespace tessera::kernels {

namespace {

/// Makes a symmetric matrix tridiagonal, a panel of columns at a time. Within a panel the matrix is
/// a - left * right: for each reflection, left has the columns v and w, and right has the rows w
/// and v. So each column takes one product of a vector with the matrix, and the matrix changes once
/// per panel.
template <typename T>
class Tridiagonalisation {
 public:
  Tridiagonalisation(MatrixMemory& memory, const Strips<T>& a)
      : memory_(memory),
        a_(a),
        size_(a.rows),
        left_(memory.take<T>(a.rows * kTerms)),
        left_strips_(memory.take_strips<T>(a.rows, kTerms)),
        right_(memory.take_strips<T>(kTerms, a.cols)),
        v_(memory.take<T>(a.count() * kStripWidth<T>)),
        product_(memory.take<T>(a.count() * kStripWidth<T>)) {}

  /// Returns the reflections that led to the result.
  std::vector<ReflectionBlock<T>> run(const Tridiagonal& result) {
    std::vector<ReflectionBlock<T>> blocks;
    for (std::int64_t first = 0; first + 1 < size_; first += kReflections) {
      const std::int64_t count = std::min(kReflections, size_ - 1 - first);
      T taus[kReflections];
      T* vectors = memory_.take_zeros<T>((size_ - first - 1) * kReflections);
      for (std::int64_t j = 0; j < count; ++j) {
        const Reflection<T> reflection = reflect(first + j, j, result);
        taus[j] = reflection.tau;
        for (std::int64_t i = first + j + 1; i < size_; ++i)
          vectors[(i - first - 1) * kReflections + j] = v_[i];
      }
      blocks.push_back(make_block(memory_, first + 1, size_ - first - 1, count, vectors, taus));
      subtract_panel(left_, kTerms, 2 * count, right_, first + count, a_);
    }
    result.diagonal[size_ - 1] = static_cast<double>(a_.at(size_ - 1, size_ - 1)[0]);
    return blocks;
  }

 private:
  static constexpr std::int64_t kTerms = 2 * kReflections;

  /// Reflects column `c`, the `j`-th of its panel.
  Reflection<T> reflect(std::int64_t c, std::int64_t j, const Tridiagonal& result) {
    for (std::int64_t s = c / kStripWidth<T>; s < a_.count(); ++s)
      std::copy_n(a_.strip(s, c), kStripWidth<T>, v_ + s * kStripWidth<T>);
    subtract_vector_product(left_ + c * kTerms, 2 * j, right_, 0, c, size_, v_);
    result.diagonal[c] = static_cast<double>(v_[c]);
    const std::int64_t next = c + 1;
    const Reflection<T> reflection = make_reflection(size_ - next, v_ + next);
    result.beside[c] = static_cast<double>(reflection.length);
    std::fill(v_ + next / kStripWidth<T> * kStripWidth<T>, v_ + next, T{0});
    multiply(next, j, reflection.tau);
    return reflection;
  }

  /// Computes the vectors v and w of the j-th reflection, where v has zeros up to row `next`.
  void multiply(std::int64_t next, std::int64_t j, T tau) {
    const std::int64_t begin = next / kStripWidth<T> * kStripWidth<T>;
    const std::int64_t end = a_.count() * kStripWidth<T>;
    T* w = product_;  // at first -a * v
    std::fill(w + begin, w + end, T{0});
    subtract_vector_product(v_ + next, size_ - next, a_, next, next, size_, w);
    alignas(64) T inner[kTerms] = {};
    subtract_vector_product(v_ + next, size_ - next, left_strips_, next, 0, 2 * j, inner);
    subtract_vector_product(inner, 2 * j, right_, 0, next, size_, w);
    T overlap = 0;
    for (std::int64_t i = next; i < size_; ++i) {
      w[i] *= -tau;
      overlap += w[i] * v_[i];
    }
    const T share = tau * overlap / 2;
    for (std::int64_t i = next; i < size_; ++i) w[i] -= share * v_[i];
    std::fill(w + begin, w + next, T{0});
    for (std::int64_t i = begin; i < end; i += kStripWidth<T>) {
      std::copy_n(w + i, kStripWidth<T>, right_.at(2 * j, i));
      std::copy_n(v_ + i, kStripWidth<T>, right_.at(2 * j + 1, i));
    }
    for (std::int64_t i = next; i < size_; ++i) {
      left_[i * kTerms + 2 * j] = left_strips_.at(i, 2 * j)[0] = v_[i];
      left_[i * kTerms + 2 * j + 1] = left_strips_.at(i, 2 * j + 1)[0] = w[i];
    }
  }

  MatrixMemory& memory_;
  Strips<T> a_;
  std::int64_t size_;
  T* left_;
  Strips<T> left_strips_;
  Strips<T> right_;
  T* v_;
  T* product_;
};

}  // namespace

template <typename T>
void eigh(std::int64_t n, const T* a, T* eigenvalues, T* v) {
  if (n == 0) return;
  const auto fail = [&] {
    fill_with_nan(eigenvalues, n);
    fill_with_nan(v, n * n);
  };
  if (!is_lower_triangle_finite(n, a)) return fail();
  T largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, largest_of(i + 1, a + i * n));
  const T scale = scale_for(largest);
  MatrixMemory memory;
  const Strips<T> m = memory.take_zero_strips<T>(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) m.at(i, j)[0] = m.at(j, i)[0] = a[i * n + j] * scale;
  }
  const Tridiagonal tridiagonal = {n, memory.take<double>(n), memory.take<double>(n)};
  const auto blocks = Tridiagonalisation<T>(memory, m).run(tridiagonal);
  T* rows = memory.take<T>(n * n);
  if (!solve_tridiagonal(tridiagonal, rows)) return fail();
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t i = 0; i < n; ++i) m.at(i, k)[0] = rows[k * n + i];
  }
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) apply(*block, false, m, 0);
  for (std::int64_t k = 0; k < n; ++k) {
    eigenvalues[k] = static_cast<T>(tridiagonal.diagonal[k] / static_cast<double>(scale));
  }
  make_signs_unique(m);
  store_strips(m, v, n);
}

template void eigh(std::int64_t, const float*, float*, float*);
template void eigh(std::int64_t, const double*, double*, double*);

}  // namespace tessera::kernels
