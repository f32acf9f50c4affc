#include "compile/host/kernels/fourier/roots.h"

#include <algorithm>
#include <cmath>

namespace tessera::kernels {

namespace {

/// An unevaluated sum of two numbers, of about 106 bits.
struct Double2 {
  double high;
  double low;
};

/// |high| >= |low|
Double2 normal(double high, double low) {
  const double sum = high + low;
  return {sum, low - (sum - high)};
}

Double2 operator+(Double2 x, Double2 y) {
  const double sum = x.high + y.high;
  const double part = sum - x.high;
  const double error = (x.high - (sum - part)) + (y.high - part);
  return normal(sum, error + (x.low + y.low));
}

Double2 operator-(Double2 x) { return {-x.high, -x.low}; }

Double2 operator*(Double2 x, Double2 y) {
  const double product = x.high * y.high;
  const double error = std::fma(x.high, y.high, -product);
  return normal(product, error + (x.high * y.low + x.low * y.high));
}

Double2 operator/(Double2 x, double y) {
  const double first = x.high / y;
  const Double2 rest = x + -(Double2{first, 0.0} * Double2{y, 0.0});
  return normal(first, rest.high / y);
}

struct Root2 {
  Double2 cosine;
  Double2 sine;
};

Root2 operator*(const Root2& x, const Root2& y) {
  return {x.cosine * y.cosine + -(x.sine * y.sine), x.cosine * y.sine + x.sine * y.cosine};
}

/// The cosine and sine of an angle between 0 and pi / 4, by Taylor's series.
Root2 root_of_small(Double2 angle) {
  constexpr int kTerms = 28;
  Double2 sums[2] = {{0.0, 0.0}, {0.0, 0.0}};
  Double2 term = {1.0, 0.0};
  Double2 terms[kTerms];
  for (int i = 0; i < kTerms; ++i) {
    terms[i] = i % 4 < 2 ? term : -term;
    term = term * angle / static_cast<double>(i + 1);
  }
  for (int i = kTerms; i-- > 0;) sums[i % 2] = sums[i % 2] + terms[i];
  return {sums[0], sums[1]};
}

/// exp(2 pi i k / length), 0 <= k < length, from an angle of at most an eighth of a turn.
Root2 exact_root(std::int64_t k, std::int64_t length) {
  constexpr Double2 kTwoPi = {6.283185307179586, 2.4492935982947064e-16};
  const std::int64_t quarter = 4 * k / length;         // the quarter of the turn
  const std::int64_t rest = 4 * k - quarter * length;  // in units of a quarter / length
  const bool is_late = 2 * rest > length;
  const auto numerator = static_cast<double>(is_late ? length - rest : rest);
  const Double2 angle = kTwoPi * Double2{numerator, 0.0} / (4.0 * static_cast<double>(length));
  Root2 root = root_of_small(angle);
  if (is_late) std::swap(root.cosine, root.sine);
  for (std::int64_t i = 0; i < quarter; ++i) root = {-root.sine, root.cosine};
  return root;
}

}  // namespace

std::vector<Root> roots_of_unity(std::int64_t length, std::int64_t count) {
  std::vector<Root> roots(static_cast<std::size_t>(count));
  // Each root is the product of a root from each of two short tables.
  const auto step = static_cast<std::int64_t>(std::sqrt(static_cast<double>(count))) + 1;
  std::vector<Root2> fine;
  for (std::int64_t k = 0; k < std::min(step, count); ++k)
    fine.push_back(exact_root(k % length, length));
  for (std::int64_t first = 0; first < count; first += step) {
    const Root2 coarse = exact_root(first % length, length);
    for (std::int64_t k = first; k < std::min(first + step, count); ++k) {
      const Root2 root = coarse * fine[static_cast<std::size_t>(k - first)];
      // Numbers that should be zero are set to zero: tiny errors in them would not cancel.
      const auto part = [](Double2 x) { return std::abs(x.high) < 1e-25 ? 0.0 : x.high; };
      roots[static_cast<std::size_t>(k)] = {part(root.cosine), part(root.sine)};
    }
  }
  return roots;
}

}  // namespace tessera::kernels
