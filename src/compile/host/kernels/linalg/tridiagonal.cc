#include "compile/host/kernels/linalg/tridiagonal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "compile/host/kernels/linalg/scaled.h"
#include "compile/host/kernels/linalg/turns.h"

namespace tessera::kernels {

namespace {

constexpr double kPrecision = std::numeric_limits<double>::epsilon() / 2;

// --- Small matrices: implicit QR

/// The eigenvalue of rows `end` - 1 and `end` that is nearer to the last element.
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

/// Makes the matrix diagonal. Returns whether the iteration converged.
template <typename T>
bool diagonalise(const Tridiagonal& t, TurnList<T>& turns) {
  const auto is_split = [&](std::int64_t i) {
    return std::abs(t.beside[i]) <=
           kPrecision * (std::abs(t.diagonal[i]) + std::abs(t.diagonal[i + 1]));
  };
  const auto step = [&](std::int64_t first, std::int64_t end) { chase(t, first, end, turns); };
  if (!iterate(t.size, is_split, step)) return false;
  turns.make();
  return true;
}

// --- Large matrices: divide and conquer

/// d + rho * z * transpose(z) for a diagonal matrix d in ascending order, where no two elements are
/// close and none of z is small. Like LAPACK's laed4.
class RankOne {
 public:
  RankOne(std::span<const double> d, std::span<const double> z, double rho)
      : d_(d), z_(z), rho_(rho) {}

  /// The k-th eigenvalue. distances[j] becomes d[j] minus the eigenvalue, exact except for its last
  /// digits.
  double solve(std::size_t k, double* distances) const {
    const bool is_last = k + 1 == d_.size();
    double square = 0.0;
    for (const double element : z_) square += element * element;
    const double width = is_last ? rho_ * square : d_[k + 1] - d_[k];
    // The nearer pole is the origin.
    set(d_[k], width / 2.0, distances);
    const bool is_left = is_last || evaluate(k, distances).value >= 0.0;
    const double origin = is_left ? d_[k] : d_[k + 1];
    double low = is_left ? 0.0 : -width / 2.0;
    double high = is_left ? (is_last ? width : width / 2.0) : 0.0;
    double at = is_last ? width / 2.0 : (low + high) / 2.0;
    constexpr int kMostSteps = 100;
    for (int step = 0; step < kMostSteps; ++step) {
      set(origin, at, distances);
      const Value f = evaluate(k, distances);
      if (std::abs(f.value) <= 4.0 * kPrecision * f.size) break;
      (f.value < 0.0 ? low : high) = at;
      double next = at + step_of(k, f, distances);
      if (!(next > low && next < high)) next = (low + high) / 2.0;
      if (next == at) break;
      at = next;
    }
    set(origin, at, distances);
    return origin + at;
  }

 private:
  struct Value {
    double value;        // of 1 + rho * the sum of z[j]^2 / distances[j]
    double left, right;  // the derivatives of the terms up to the k-th and after it
    double size;         // the sum of the sizes of what was added
  };

  void set(double origin, double at, double* distances) const {
    for (std::size_t j = 0; j < d_.size(); ++j) distances[j] = (d_[j] - origin) - at;
  }

  Value evaluate(std::size_t k, const double* distances) const {
    const auto sum = [&](std::size_t first, std::size_t end, double& derivative) {
      constexpr std::size_t kLanes = 4;
      double totals[kLanes] = {};
      double squares[kLanes] = {};
      const auto add = [&](std::size_t lane, std::size_t j) {
        const double quotient = z_[j] / distances[j];
        totals[lane] += z_[j] * quotient;
        squares[lane] += quotient * quotient;
      };
      for (; first + kLanes <= end; first += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) add(lane, first + lane);
      }
      for (; first < end; ++first) add(0, first);
      derivative = rho_ * ((squares[0] + squares[1]) + (squares[2] + squares[3]));
      return rho_ * ((totals[0] + totals[1]) + (totals[2] + totals[3]));
    };
    Value f{};
    const double left = sum(0, k + 1, f.left);
    const double right = sum(k + 1, d_.size(), f.right);
    f.value = 1.0 + left + right;
    f.size = 1.0 + right - left;
    return f;
  }

  /// The step to the root of a function that has the poles on both sides of the root, and the same
  /// value and derivatives on each side.
  double step_of(std::size_t k, const Value& f, const double* distances) const {
    const double newton = -f.value / (f.left + f.right);
    if (k + 1 == d_.size() && k == 0) return newton;
    const std::size_t first = k + 1 == d_.size() ? k - 1 : k;
    const double x = distances[first];
    const double y = distances[first + 1];
    const bool is_last = first != k;
    const double left = is_last ? f.left - rho_ * square_of(k, distances) : f.left;
    const double right = is_last ? rho_ * square_of(k, distances) : f.right;
    const double c = f.value - x * left - y * right;
    const double a = (x + y) * f.value - x * y * (left + right);
    const double b = x * y * f.value;
    const double root = std::sqrt(std::abs(a * a - 4.0 * b * c));
    double step = a <= 0.0 ? (a - root) / (2.0 * c) : 2.0 * b / (a + root);
    if (is_last) step = a >= 0.0 ? (a + root) / (2.0 * c) : 2.0 * b / (a - root);
    return f.value * step < 0.0 ? step : newton;
  }
  double square_of(std::size_t k, const double* distances) const {
    const double quotient = z_[k] / distances[k];
    return quotient * quotient;
  }

  std::span<const double> d_;
  std::span<const double> z_;
  double rho_;
};

/// Merges the rows of eigenvectors of two halves, which a change of rank one couples.
template <typename T>
class Merge {
 public:
  /// Rows and columns [first, end) of `vectors`, whose rows are `stride` apart.
  Merge(const Tridiagonal& t, std::int64_t first, std::int64_t middle, std::int64_t end,
        double coupling, T* vectors)
      : size_(end - first),
        half_(middle - first),
        stride_(t.size),
        values_(t.diagonal + first),
        vectors_(vectors + first * t.size + first),
        rho_(2.0 * std::abs(coupling)),
        order_(at(size_)),
        z_(at(size_)),
        kinds_(at(size_)) {
    const double sign = coupling < 0.0 ? -1.0 : 1.0;
    for (std::int64_t k = 0; k < size_; ++k) {
      const bool is_upper = k < half_;
      const double element = static_cast<double>(row(k)[is_upper ? half_ - 1 : half_]);
      z_[at(k)] = (is_upper ? 1.0 : sign) * element * std::sqrt(0.5);
      kinds_[at(k)] = is_upper ? Kind::upper : Kind::lower;
    }
    sort_positions(size_, values_, order_.data());
  }

  void run() {
    deflate();
    // Rows with an upper part come first, those with a lower part last.
    std::vector<std::int64_t> kept;
    for (const Kind kind : {Kind::upper, Kind::both, Kind::lower}) {
      for (const std::int64_t k : coupled_) {
        if (kinds_[at(k)] == kind) kept.push_back(k);
      }
    }
    MatrixMemory memory;
    const auto count = static_cast<std::int64_t>(kept.size());
    T* factors = memory.take<T>(count * count);
    std::vector<double> roots(kept.size());
    find_vectors(kept, factors, roots.data());
    multiply(memory, kept, factors);
    for (std::size_t i = 0; i < coupled_.size(); ++i) values_[coupled_[i]] = roots[i];
    sort_rows(memory);
  }

 private:
  enum class Kind { upper, both, lower };
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  T* row(std::int64_t k) const { return vectors_ + k * stride_; }

  /// Leaves in coupled_, in the order of their values, the rows that the change of rank one
  /// affects. If two rows have close values, a turn takes one of them out of the reach of the
  /// change.
  void deflate() {
    double largest = 0.0;
    for (std::int64_t k = 0; k < size_; ++k)
      largest = std::max({largest, std::abs(values_[k]), std::abs(z_[at(k)])});
    const double least = 8.0 * kPrecision * largest;
    for (const std::int64_t k : order_) {
      if (rho_ * std::abs(z_[at(k)]) <= least) continue;
      if (!coupled_.empty() && turn_out(coupled_.back(), k, least)) coupled_.pop_back();
      coupled_.push_back(k);
    }
  }

  bool turn_out(std::int64_t i, std::int64_t k, double least) {
    const double length = length_of(z_[at(i)], z_[at(k)]);
    const double cosine = z_[at(k)] / length;
    const double sine = z_[at(i)] / length;
    if (std::abs((values_[k] - values_[i]) * cosine * sine) > least) return false;
    z_[at(k)] = length;
    z_[at(i)] = 0.0;
    for (std::int64_t j = 0; j < size_; ++j) {
      const auto x = static_cast<double>(row(i)[j]);
      const auto y = static_cast<double>(row(k)[j]);
      row(i)[j] = static_cast<T>(cosine * x - sine * y);
      row(k)[j] = static_cast<T>(sine * x + cosine * y);
    }
    const double lesser = values_[i];
    values_[i] = lesser * cosine * cosine + values_[k] * sine * sine;
    values_[k] = lesser * sine * sine + values_[k] * cosine * cosine;
    if (kinds_[at(i)] != kinds_[at(k)]) kinds_[at(i)] = kinds_[at(k)] = Kind::both;
    return true;
  }

  /// Row i of `factors` is the i-th eigenvector of the change of rank one, with its elements in
  /// the order of `kept`.
  void find_vectors(const std::vector<std::int64_t>& kept, T* factors, double* roots) const {
    const std::size_t count = coupled_.size();
    std::vector<double> d(count);
    std::vector<double> z(count);
    std::vector<std::size_t> position(at(size_));
    for (std::size_t i = 0; i < count; ++i) {
      d[i] = values_[coupled_[i]];
      z[i] = z_[at(coupled_[i])];
      position[at(kept[i])] = i;
    }
    std::vector<double> distances(count * count);
    const RankOne matrix(d, z, rho_);
    for (std::size_t i = 0; i < count; ++i) roots[i] = matrix.solve(i, &distances[i * count]);
    // The vector z for which these are the eigenvalues, as Gu and Eisenstat compute it.
    std::vector<double> exact(count, 1.0);
    for (std::size_t i = 0; i < count; ++i) {
      const double* of_root = &distances[i * count];
      for (std::size_t j = 0; j < i; ++j) exact[j] *= of_root[j] / (d[j] - d[i]);
      exact[i] *= of_root[i];
      for (std::size_t j = i + 1; j < count; ++j) exact[j] *= of_root[j] / (d[j] - d[i]);
    }
    for (std::size_t j = 0; j < count; ++j)
      exact[j] = std::copysign(std::sqrt(std::abs(exact[j])), z[j]);
    std::vector<double> vector(count);
    for (std::size_t i = 0; i < count; ++i) {
      double square = 0.0;
      for (std::size_t j = 0; j < count; ++j) {
        vector[j] = exact[j] / distances[i * count + j];
        square += vector[j] * vector[j];
      }
      const double length = std::sqrt(square);
      for (std::size_t j = 0; j < count; ++j)
        factors[i * count + position[at(coupled_[j])]] = static_cast<T>(vector[j] / length);
    }
  }

  /// Multiplies the rows `kept` by `factors`; row i of the result becomes row coupled_[i].
  void multiply(MatrixMemory& memory, const std::vector<std::int64_t>& kept, const T* factors) {
    const auto count = static_cast<std::int64_t>(kept.size());
    const auto count_of = [&](Kind kind) {
      return std::count_if(kept.begin(), kept.end(),
                           [&](std::int64_t k) { return kinds_[at(k)] == kind; });
    };
    const std::int64_t lower_first = count_of(Kind::upper);
    const std::int64_t upper_end = count - count_of(Kind::lower);
    multiply_columns(memory, kept, factors, {0, half_}, {0, upper_end});
    multiply_columns(memory, kept, factors, {half_, size_}, {lower_first, count});
  }

  struct Span {
    std::int64_t first, end;
  };
  void multiply_columns(MatrixMemory& memory, const std::vector<std::int64_t>& kept,
                        const T* factors, Span columns, Span terms) {
    const auto count = static_cast<std::int64_t>(kept.size());
    const std::int64_t width = columns.end - columns.first;
    const Strips<T> from = memory.take_zero_strips<T>(terms.end - terms.first, width);
    const Strips<T> to = memory.take_zero_strips<T>(count, width);
    for (std::int64_t i = terms.first; i < terms.end; ++i) {
      for (std::int64_t j = 0; j < width; ++j)
        from.at(i - terms.first, j)[0] = row(kept[at(i)])[columns.first + j];
    }
    subtract_product(StripProduct<T>{.a = factors + terms.first,
                                     .a_stride = count,
                                     .b = from.data,
                                     .b_stride = from.stride(),
                                     .c = to.data,
                                     .c_stride = to.stride(),
                                     .rows = count,
                                     .terms = terms.end - terms.first,
                                     .strips = to.count()});
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < width; ++j)
        row(coupled_[at(i)])[columns.first + j] = to.at(i, j)[0];
    }
  }

  void sort_rows(MatrixMemory& memory) {
    sort_positions(size_, values_, order_.data());
    T* rows = memory.take<T>(size_ * size_);
    const std::vector<double> values(values_, values_ + size_);
    for (std::int64_t k = 0; k < size_; ++k)
      std::copy_n(row(order_[at(k)]), size_, rows + k * size_);
    for (std::int64_t k = 0; k < size_; ++k) {
      values_[k] = values[at(order_[at(k)])];
      std::copy_n(rows + k * size_, size_, row(k));
    }
  }

  std::int64_t size_, half_, stride_;
  double* values_;
  T* vectors_;
  double rho_;
  std::vector<std::int64_t> order_;  // of the values
  std::vector<double> z_;
  std::vector<Kind> kinds_;
  std::vector<std::int64_t> coupled_;
};

/// Solves rows [first, end) by the QR iteration.
template <typename T>
bool solve_small(const Tridiagonal& t, std::int64_t first, std::int64_t end, T* vectors) {
  const Tridiagonal part = {end - first, t.diagonal + first, t.beside + first};
  MatrixMemory memory;
  const Strips<T> rows = memory.take_zero_strips<T>(part.size, part.size);
  for (std::int64_t i = 0; i < part.size; ++i) rows.at(i, i)[0] = T{1};
  TurnList<T> turns(memory, rows);
  if (!diagonalise(part, turns)) return false;
  std::int64_t* order = memory.take<std::int64_t>(part.size);
  sort_positions(part.size, part.diagonal, order);
  double* values = memory.take<double>(part.size);
  std::copy_n(part.diagonal, part.size, values);
  for (std::int64_t k = 0; k < part.size; ++k) {
    part.diagonal[k] = values[order[k]];
    for (std::int64_t j = 0; j < part.size; ++j)
      vectors[(first + k) * t.size + first + j] = rows.at(order[k], j)[0];
  }
  return true;
}

template <typename T>
bool solve_rows(const Tridiagonal& t, std::int64_t first, std::int64_t end, T* vectors) {
  constexpr std::int64_t kMostSmall = 32;
  if (end - first <= kMostSmall) return solve_small(t, first, end, vectors);
  const std::int64_t middle = (first + end) / 2;
  const double coupling = t.beside[middle - 1];
  t.diagonal[middle - 1] -= std::abs(coupling);
  t.diagonal[middle] -= std::abs(coupling);
  if (!solve_rows(t, first, middle, vectors) || !solve_rows(t, middle, end, vectors)) return false;
  Merge<T>(t, first, middle, end, coupling, vectors).run();
  return true;
}

}  // namespace

template <typename T>
bool solve_tridiagonal(const Tridiagonal& t, T* vectors) {
  std::fill_n(vectors, t.size * t.size, T{0});
  return solve_rows(t, 0, t.size, vectors);
}

template bool solve_tridiagonal(const Tridiagonal&, float*);
template bool solve_tridiagonal(const Tridiagonal&, double*);

}  // namespace tessera::kernels
