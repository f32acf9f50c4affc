// Eigenvectors of symmetric matrices: reflections make the matrix tridiagonal, and turns make that
// diagonal.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "compile/host/kernels/linalg/finite.h"
#include "compile/host/kernels/linalg/linalg.h"
#include "compile/host/kernels/linalg/reflections.h"
#include "compile/host/kernels/linalg/scaled.h"
#include "compile/host/kernels/linalg/turns.h"

namespace tessera::kernels {

namespace {

struct Tridiagonal {
  std::int64_t size;
  double* diagonal;
  double* beside;
};

/// Makes a symmetric matrix tridiagonal, a panel of columns at a time. Within a panel the matrix is
/// a - left * right: for each reflection, left has the columns v and w, right the rows w and v. So
/// each column takes one product of a vector with the matrix, and the matrix changes once.
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
      update(first + count, 2 * count);
    }
    result.diagonal[size_ - 1] = static_cast<double>(a_.at(size_ - 1, size_ - 1)[0]);
    return blocks;
  }

 private:
  static constexpr std::int64_t kTerms = 2 * kReflections;

  /// Column `c`, which is the `j`-th of its panel.
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

  /// Makes the vectors v and w of the j-th reflection, where v has zeros up to row `next`.
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

  /// Subtracts `terms` terms of the panel from what is right of it and below.
  void update(std::int64_t first, std::int64_t terms) {
    const std::int64_t strip = first / kStripWidth<T>;
    subtract_product(StripProduct<T>{.a = left_ + first * kTerms,
                                     .a_stride = kTerms,
                                     .b = right_.strip(strip),
                                     .b_stride = right_.stride(),
                                     .c = a_.strip(strip, first),
                                     .c_stride = a_.stride(),
                                     .rows = size_ - first,
                                     .terms = terms,
                                     .strips = a_.count() - strip});
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

/// The eigenvalue of the last two rows up to `end` that is nearer to the last element.
double shift_of(const Tridiagonal& t, std::int64_t end) {
  const double half = (t.diagonal[end - 1] - t.diagonal[end]) / 2.0;
  const double beside = t.beside[end - 1];
  const double distance = half + std::copysign(length_of(half, beside), half);
  return t.diagonal[end] - beside * (beside / distance);
}

/// One step of the implicit QR iteration on rows [first, end].
template <typename T>
void chase(const Tridiagonal& t, std::int64_t first, std::int64_t end, TurnList<T>& turns) {
  double* e = t.beside;
  double x = t.diagonal[first] - shift_of(t, end);
  double bulge = e[first];
  double here = t.diagonal[first];
  double beside = e[first];
  turns.begin_sweep(first);
  for (std::int64_t k = first; k < end; ++k) {
    const Turn<double> turn = turn_away(x, bulge);
    const auto [c, s] = turn;
    turns.add(turn);
    if (k > first) e[k - 1] = c * x - s * bulge;
    const double next = t.diagonal[k + 1];
    const double upper = c * here - s * beside;
    const double upper_beside = c * beside - s * next;
    const double lower_beside = s * here + c * beside;
    const double lower = s * beside + c * next;
    t.diagonal[k] = c * upper - s * upper_beside;
    here = s * lower_beside + c * lower;
    x = c * lower_beside - s * lower;
    if (k + 1 < end) {
      bulge = -s * e[k + 1];
      beside = c * e[k + 1];
    }
  }
  t.diagonal[end] = here;
  e[end - 1] = x;
}

/// Makes the matrix diagonal. Returns whether that came to an end.
template <typename T>
bool diagonalise(const Tridiagonal& t, TurnList<T>& turns) {
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon() / 2;
  constexpr std::int64_t kStepsPerRow = 30;
  const auto is_split = [&](std::int64_t i) {
    return std::abs(t.beside[i]) <=
           kEpsilon * (std::abs(t.diagonal[i]) + std::abs(t.diagonal[i + 1]));
  };
  std::int64_t end = t.size - 1;
  for (std::int64_t steps = kStepsPerRow * t.size; end > 0;) {
    if (is_split(end - 1)) {
      --end;
      continue;
    }
    if (steps-- == 0) return false;
    std::int64_t first = end - 1;
    while (first > 0 && !is_split(first - 1)) --first;
    chase(t, first, end, turns);
  }
  turns.make();
  return true;
}

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
  transpose(product_of(memory, blocks, n, n), m);  // its rows become eigenvectors
  TurnList<T> turns(memory, m);
  if (!diagonalise(tridiagonal, turns)) return fail();
  std::int64_t* order = memory.take<std::int64_t>(n);
  sort_positions(n, tridiagonal.diagonal, order);
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t row = order[k];
    eigenvalues[k] = static_cast<T>(tridiagonal.diagonal[row] / static_cast<double>(scale));
    const T sign = sign_of_row(m, row);
    for (std::int64_t i = 0; i < n; ++i) v[i * n + k] = sign * m.at(row, i)[0];
  }
}

template void eigh(std::int64_t, const float*, float*, float*);
template void eigh(std::int64_t, const double*, double*, double*);

}  // namespace tessera::kernels
